//go:build e2e_cgroup

package cgroup

import (
	"strconv"
	"strings"
	"testing"
	"time"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// TestABurstEndsTheThrottlingOfABurstyLoad has a load that needs 70 ms of CPU time at once, and little on average,
// beside a limit of half a CPU.
func TestABurstEndsTheThrottlingOfABurstyLoad(t *testing.T) {
	if !*setFiles {
		t.Skip("NOT RUN: needs CPUs without other work: beside it a load is spread over several periods")
	}
	n := newNode(t)
	n.engine.Prune(none)
	n.engine.Burst(slo.CPUBurstConfig{})
	p := desired.Pod{
		Entry:  ledger.Entry{UID: "bursty", Namespace: "ns", Name: "bursty", Role: qos.SharedPool},
		Limits: map[string]int64{"c": 500}, Limit: 500,
	}
	c := n.bind("bursty", qos.SharedPool, "")
	n.engine.Update(p)
	file, _ := here.Dialect().Quota()
	for _, group := range []string{"kubepods/podbursty", c.group} {
		n.must(here.Write(group, file, "50000"))
	}
	if _, err := here.Read(c.group, here.Dialect().Burst()); err != nil {
		t.Skipf("NOT RUN: the kernel has no CPU burst: %v", err)
	}
	n.must(n.run(c))
	if _, err := here.tasks[c.pid].say("bursty"); err != nil {
		t.Fatal(err)
	}
	// throttled returns how often the pod was throttled, in so many periods with a load.
	throttled := func() (throttled, bursts int) {
		read := func(key string) (sum int) {
			for _, group := range []string{"kubepods/podbursty", c.group} {
				text, err := here.Read(group, "cpu.stat")
				n.must(err)
				for line := range strings.Lines(text) {
					if value, found := strings.CutPrefix(line, key+" "); found {
						number, err := strconv.Atoi(strings.TrimSpace(value))
						n.must(err)
						sum += number
					}
				}
			}
			return sum
		}
		time.Sleep(time.Second) // what was saved meanwhile
		wasThrottled, hadBursts := read("nr_throttled"), read("nr_bursts")
		time.Sleep(5 * time.Second)
		return read("nr_throttled") - wasThrottled, read("nr_bursts") - hadBursts
	}
	without, _ := throttled()
	p.Burst = slo.CPUBurstConfig{Policy: slo.CPUBurstOnly}
	n.engine.Update(p)
	n.must(n.engine.Reconcile())
	if got, err := here.Read(c.group, here.Dialect().Burst()); err != nil || got != "50000" {
		t.Fatalf("the burst is %s, %v", got, err)
	}
	with, bursts := throttled()
	t.Logf("throttled %d times without a burst, and %d times with one, which was used %d times", without, with, bursts)
	if without == 0 || with*2 > without || bursts == 0 {
		t.Errorf("throttled %d times without a burst, and %d times with one, which was used %d times", without, with,
			bursts)
	}
	p.Burst = slo.CPUBurstConfig{}
	n.engine.Update(p)
	n.must(n.engine.Reconcile())
	if got, err := here.Read(c.group, here.Dialect().Burst()); err != nil || got != "0" {
		t.Errorf("once it is not asked for, the burst is %s, %v", got, err)
	}
}

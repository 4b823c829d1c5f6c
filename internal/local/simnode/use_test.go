package simnode

import (
	"fmt"
	"maps"
	"os"
	"path"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// measured are a machine and the groups of its pods. A test calls Tick alone, which asks for nothing else.
type measured struct {
	usage.Agent
	groups  map[string]string
	machine *topo.Machine
}

func (m measured) Machine() *topo.Machine          { return m.machine }
func (m measured) Groups(into map[string]string)   { maps.Copy(into, m.groups) }
func (m measured) IsBestEffort(string) bool        { return false }
func (m measured) Containers(func(string, string)) {}

func TestPatternsOfUse(t *testing.T) {
	t.Parallel()
	minute := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	for pattern, want := range map[string]map[int]float64{ // by second
		"":                       {0: 1, 59: 1},
		annotation.SimulateSine:  {0: 0, 15: 0.5, 30: 1, 45: 0.5},
		annotation.SimulateBurst: {0: 1, 9: 1, 10: 0.1, 59: 0.1},
		annotation.SimulateSteps: {0: 0.25, 15: 0.5, 30: 0.75, 45: 1, 59: 1},
	} {
		for second, part := range want {
			got := shareAt(pattern, minute.Add(time.Duration(second)*time.Second))
			if got < part-1e-9 || got > part+1e-9 {
				t.Errorf("%q in second %d: %v, want %v", pattern, second, got, part)
			}
		}
	}
}

// TestTheAgentMeasuresWhatPodsSimulate runs pods on four CPUs, and reads what they use as the agent does.
func TestTheAgentMeasuresWhatPodsSimulate(t *testing.T) {
	t.Parallel()
	m := grid.Machine{Cores: 4, NodeBytes: 1 << 30}.Build(t)
	n := &node{root: host.Root{Dir: t.TempDir()}, kubelet: &kubelet{containers: map[string]hook.Container{}}}
	for _, dir := range []string{"proc", "sys/devices/system/node/node0"} {
		testkit.Check(t, os.MkdirAll(n.root.Path(dir), 0o755))
	}
	var err error
	n.tree, err = kernel.Open(kernel.Options{Dir: n.root.Cgroup(), Dialect: desired.V2, Machine: m})
	testkit.Check(t, err)
	groups := map[string]string{}
	run := func(name, class, simulate string, containers int) {
		at := path.Join("kubepods", class, "pod"+name)
		groups[name] = at
		for i := range containers {
			c := hook.Container{ID: fmt.Sprint(name, i), Cgroup: path.Join(at, fmt.Sprint(i)), Pod: hook.Pod{
				Cgroup: at, Annotations: map[string]string{annotation.SimulateKey: simulate},
			}}
			testkit.Check(t, n.tree.MkdirAll(c.Cgroup))
			n.kubelet.containers[c.ID] = c
		}
	}
	run("steady", "", `{"cpu":"1500m","memory":"100Mi"}`, 2)
	run("limited", "burstable", `{"cpu":"1"}`, 1)
	testkit.Check(t, n.tree.Write(groups["limited"], desired.QuotaV2, "25000 100000"))
	run("pinned", "", `{"cpu":"3"}`, 1)
	testkit.Check(t, n.tree.Write(groups["pinned"]+"/0", desired.CPUs, "3"))
	run("greedy", "besteffort", `{"cpu":"100"}`, 1)
	run("plain", "", `{}`, 1)
	run("malformed", "", `{"cpu":"many"}`, 1)
	u, err := newUse(n, m)
	testkit.Check(t, err)
	measured := measured{groups: groups, machine: m}
	c, err := usage.New(usage.Options{
		Root: n.root, Pods: measured, Agent: measured, Clock: clock.RealClock{},
	})
	testkit.Check(t, err)
	before, err := host.Interrupts(n.root, []int{3})
	testkit.Check(t, err)
	now := u.last
	for range 3 {
		now = now.Add(time.Second)
		testkit.Check(t, u.step(now))
		c.Tick(now)
	}
	c.Read(func(s *usage.Sample) {
		for name, want := range map[string]int64{
			"steady": 1500, "limited": 250, "plain": 0, "malformed": 0,
		} {
			if got, ok := s.Pods[name]; !ok || got.MilliCPU != want {
				t.Errorf("%s uses %d milli (%v), want %d", name, got.MilliCPU, ok, want)
			}
		}
		pinned, greedy := s.Pods["pinned"].MilliCPU, s.Pods["greedy"].MilliCPU
		if pinned < 500 || pinned > 1000 {
			t.Errorf("the pod on one CPU uses %d milli, want what the others leave of that CPU", pinned)
		}
		if sum := 1750 + pinned + greedy; sum < 3990 || sum > 4000 {
			t.Errorf("a best-effort pod that wants all uses %d milli, want the rest of 4000 beside %d", greedy, pinned)
		}
		if got := s.Node.MilliCPU; got < 3950 || got > 4000 {
			t.Errorf("the node uses %d milli, want 4000", got)
		}
		if got := s.Pods["steady"].MemoryBytes; got != 100<<20 {
			t.Errorf("the pod uses %d bytes, want 100 MiB", got)
		}
		if got := s.Node.MemoryBytes; got < 100<<20 || got > 130<<20 {
			t.Errorf("the node uses %d bytes, want 100 MiB and 2 %% of 1 GiB", got)
		}
	})
	fired, err := host.Interrupts(n.root, []int{3})
	testkit.Check(t, err)
	if rate, known := fired.Since(&before, 3*time.Second, []int{3}); !known || rate.Kernel != 250 || rate.Devices != 0 {
		t.Errorf("CPU 3, which is busy, is interrupted %+v (%v) a second, want 250 times by its timer", rate, known)
	}
	testkit.Check(t, n.tree.Rmdir(groups["plain"]+"/0"))
	delete(n.kubelet.containers, "plain0")
	testkit.Check(t, u.step(now.Add(time.Second)))
	testkit.Check(t, u.step(now)) // the clock went back
}

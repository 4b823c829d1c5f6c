package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// inQuota puts a pod into a quota.
func inQuota(name string) func(*corev1.Pod) { return testobject.Label(annotation.QuotaName, name) }

// allow changes the max of a quota.
func (l *live) allow(name, cpus string) {
	all, _ := l.quotas.Objects()
	for _, q := range all {
		if q.Name == name {
			other := q.DeepCopy()
			other.Spec.Max["cpu"] = resource.MustParse(cpus)
			other.Spec.Min["cpu"] = resource.MustParse(cpus)
			l.quotas.PutQuota(other)
		}
	}
}

// held returns what holds nodes.
func (l *live) held() (units []string) {
	_, err := l.rounds.Next(func(klog.Logger) (*framework.QueuedPodInfo, error) { return nil, nil })(klog.Background())
	testkit.Check(l, err)
	for _, h := range kube.Ask(l.gangs, (*gang.State).Holds) {
		units = append(units, h.Unit())
	}
	return units
}

// TestAQuotaShrinksBelowWhatHoldsNodes: the hold ends, however often a start was looked for in vain, and the next one
// holds the nodes. When the quota has room again, the unit starts.
func TestAQuotaShrinksBelowWhatHoldsNodes(t *testing.T) {
	for name, c := range map[string]struct {
		unit     func(*live)
		searches int
		want     string
	}{
		"a gang":                       {func(l *live) { l.gang("a", 2, 4, inQuota("team")) }, 0, "gang/default/a"},
		"a gang with searches in vain": {func(l *live) { l.gang("a", 2, 4, inQuota("team")) }, 5, "gang/default/a"},
		"a pod that starts alone":      {func(l *live) { l.pod("a0", 4, inQuota("team")) }, 0, "pod/default/a0"},
		"such a pod, searches in vain": {func(l *live) { l.pod("a0", 4, inQuota("team")) }, 5, "pod/default/a0"},
	} {
		t.Run(name, func(t *testing.T) {
			in := elastic(koordinator, "team", "", "{cpu: 8}", "{cpu: 8}") +
				elastic(koordinator, "rest", "", "{cpu: 16}", "{cpu: 16}") + cpuNode("n0", 4) + cpuNode("n1", 4)
			for i := range 8 { // of use for none of the pods
				in += cpuNode(fmt.Sprint("small", i), 2)
			}
			l := newHolding(t, in)
			l.all = func(p *corev1.Pod) {
				if p.Labels[annotation.QuotaName] == "" {
					p.Labels[annotation.QuotaName] = "rest"
				}
			}
			l.pod("old0", 4, runsFor("2h"))
			l.pod("old1", 4, runsFor("2h"))
			l.runUntilIdle()
			c.unit(l)
			l.runUntilIdle()
			for range c.searches {
				l.pass(11 * time.Second)
				l.node("n0", func(n *corev1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("4") })
				l.tryGang()
			}
			if got := l.held(); len(got) != 1 || got[0] != c.want {
				t.Fatalf("%v hold nodes", got)
			}
			l.allow("team", "3")
			l.pass(11 * time.Second)
			l.tryGang()
			if got := l.held(); len(got) != 0 {
				t.Errorf("the quota has no room, and %v hold nodes", got)
			}
			l.gang("b", 2, 3)
			l.runUntilIdle()
			if got := l.held(); len(got) != 1 || got[0] != "gang/default/b" {
				t.Errorf("another gang waits by %+v, and %v hold nodes", l.why("b"), got)
			}
			l.allow("team", "8")
			l.pass(2 * time.Hour)
			l.end("old0")
			l.end("old1")
			l.tryGang()
			if !l.started("a0") {
				t.Errorf("the quota has room and all have ended; it waits by %+v, and %v hold nodes", l.why("a"),
					l.held())
			}
		})
	}
}

// TestPodsBehindAHoldStartWhenItEnds: no other event than the end of the hold wakes them.
func TestPodsBehindAHoldStartWhenItEnds(t *testing.T) {
	for name, end := range map[string]func(*live){
		"the gang is deleted": func(l *live) { l.remove("a0"); l.remove("a1") },
		"a member is deleted": func(l *live) { l.remove("a1"); l.withdraw() },
		"run times are removed": func(l *live) {
			l.update("old1", undeclared)
			l.pass(11 * time.Second)
			l.tryOnly("a")
		},
		"its quota shrinks": func(l *live) {
			l.allow("team", "3")
			l.pass(11 * time.Second)
			l.tryOnly("a")
		},
		"its pods are gated": func(l *live) {
			l.update("a0", gated)
			l.update("a1", gated)
			l.withdraw()
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := elastic(koordinator, "team", "", "{cpu: 8}", "{cpu: 8}") +
				elastic(koordinator, "rest", "", "{cpu: 12}", "{cpu: 12}")
			for i := range 4 {
				in += cpuNode(fmt.Sprint("small", i), 2)
			}
			in += cpuNode("n0", 4) + cpuNode("n1", 4)
			l := newHolding(t, in)
			for i := range 2 {
				l.pod(fmt.Sprint("old", i), 4, inQuota("rest"), runsFor("1h"))
			}
			l.runUntilIdle()
			l.gang("a", 2, 4, inQuota("team"))
			l.runUntilIdle()
			l.end("old0")
			l.pod("behind", 3, inQuota("rest"))
			l.runUntilIdle()
			if got := l.held(); len(got) != 1 || l.started("behind") {
				t.Fatalf("%v hold nodes, the pod behind was started: %t", got, l.started("behind"))
			}
			end(l)
			l.runUntilIdle()
			l.held() // the next cycle begins
			l.runUntilIdle()
			if got := l.held(); len(got) != 0 || !l.started("behind") {
				t.Errorf("%v hold nodes, the pod behind was started: %t", got, l.started("behind"))
			}
		})
	}
}

// gated gives a pod a gate.
func gated(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}} }

// tryOnly lets a gang be tried again.
func (l *live) tryOnly(prefix string) {
	pods := map[string]*corev1.Pod{}
	for _, o := range l.api.pods.GetStore().List() {
		if p := o.(*corev1.Pod); strings.HasPrefix(p.Name, prefix) && p.Spec.NodeName == "" {
			pods[p.Namespace+"/"+p.Name] = p
		}
	}
	l.core.SchedulingQueue.Activate(klog.Background(), pods)
	l.runUntilIdle()
}

// TestAGangHoldsNodesForItsMinimumInAQuota: the quota rest borrows the minimum of the quota team, and lends it back
// only by ends. A gang of team holds two of the nodes until then; no pod of rest starts beyond the minimum of rest.
func TestAGangHoldsNodesForItsMinimumInAQuota(t *testing.T) {
	in := elastic(koordinator, "team", "", "{cpu: 8}", "{cpu: 8}") +
		elastic(koordinator, "rest", "", "{cpu: 8}", "{cpu: 16}") + cpuNode("n0", 4) + cpuNode("n1", 4)
	for i := range 4 {
		in += cpuNode(fmt.Sprint("small", i), 2)
	}
	l := newHolding(t, in)
	for i := range 2 {
		l.pod(fmt.Sprint("old", i), 4, inQuota("rest"), runsFor(fmt.Sprint(i+1, "h")))
	}
	l.runUntilIdle()
	for i := range 4 {
		l.pod(fmt.Sprint("borrows", i), 2, inQuota("rest"))
	}
	l.runUntilIdle()
	l.gang("a", 2, 4, inQuota("team"))
	l.pod("a2", 4, inQuota("team"), inGangOf("a", 2)) // beyond the minimum, and beyond the quota
	l.runUntilIdle()
	if got := l.held(); len(got) != 1 || got[0] != "gang/default/a" {
		t.Fatalf("%v hold nodes; it waits by %+v", got, l.why("a"))
	}
	l.pass(time.Hour)
	l.end("old0")
	l.pod("short", 2, inQuota("rest"), runsFor("30m"))
	l.pod("own", 2, inQuota("team"), runsFor("30m"))
	l.pod("undeclared", 2, inQuota("team"))
	l.runUntilIdle()
	if l.started("short") || l.started("a0") {
		t.Errorf("a pod of the quota that borrows was started: %t, a member before the start: %t", l.started("short"),
			l.started("a0"))
	}
	if !l.started("own") || l.started("undeclared") {
		t.Errorf("behind the gang in its quota, a pod that ends in time was started: %t, one without an end: %t",
			l.started("own"), l.started("undeclared"))
	}
	l.pass(time.Hour)
	l.end("own")
	l.end("old1")
	l.runUntilIdle()
	if n := len(l.on("a")); n != 2 {
		t.Errorf("%d members were started, want 2; it waits by %+v", n, l.why("a"))
	}
}

// TestNoPodDelaysAHeldOneByItsQuota: a pod of a quota waits for nodes and for its quota until pods end as they declare.
// Whatever comes behind it in its quota, in one that borrows from it, or in none, it starts at the same time. The
// cluster has enough for all minimums, on a node that the pods may not use, so that requests of others change nothing.
func TestNoPodDelaysAHeldOneByItsQuota(t *testing.T) {
	t.Parallel()
	held, beside := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 64))
		most := 6 + r.IntN(8)
		amount := func(cpus int) string { return fmt.Sprintf("{cpu: %d, memory: 640Gi}", cpus) }
		in := plain("n0", 8) + plain("n1", 8) +
			strings.Replace(plain("other", 64), "status:", "spec: {taints: [{key: a, effect: NoSchedule}]}, status:", 1)
		if seed%2 == 0 {
			in += elastic(koordinator, "team", "", amount(most), amount(most)) +
				elastic(koordinator, "mate", "", amount(16), amount(16))
		} else { // team has lent its minimum to mate while it requests less
			in += elastic(koordinator, "all", isParent, amount(most), amount(most)) +
				elastic(koordinator, "team", below+"all", amount(most), amount(most)) +
				elastic(koordinator, "mate", below+"all", "{cpu: 0}", amount(most))
		}
		draw := func(name string, minute, cpus int, quotas, runs []string) string {
			labels := ""
			if q := quotas[r.IntN(len(quotas))]; q != "" {
				labels = ", labels: {" + annotation.QuotaName + ": " + q + "}"
			}
			head := fmt.Sprintf(", creationTimestamp: \"2000-01-01T00:%02d:00Z\"%s", minute, labels)
			if d := runs[r.IntN(len(runs))]; d != "" {
				head += expects(d)
			}
			return shared(name, fmt.Sprint(cpus), head, "")
		}
		olds := 2 + r.IntN(4)
		for i := range olds {
			in += draw(fmt.Sprint("old", i), 0, 1+r.IntN(4), []string{"team", "mate", ""},
				[]string{"", "20m", "40m", "1h"})
		}
		in += draw("held", 1, 4+r.IntN(5), []string{"team"}, []string{"", "30m"})
		start := heldStart(t, in, olds)
		if start == "" {
			continue
		}
		held++
		for i := range 8 {
			in += draw(fmt.Sprint("young", i), 2+r.IntN(30), 1+r.IntN(3), []string{"team", "mate", ""},
				[]string{"", "5m", "20m", "2h"})
		}
		_, all := passing(t, in, Until{After: 3 * time.Hour})
		if got := startOf(all, "held"); got != start {
			t.Errorf("seed %d: alone it starts at %s, beside others at %q:\n%s\nof\n%s", seed, start, got,
				strings.Join(all, "\n"), in)
		}
		for _, line := range all[:max(slices.Index(all, start+" Started held"), 0)] {
			if strings.Contains(line, "Started young") {
				beside++
			}
		}
	}
	if held < 10 || beside < 10 {
		t.Errorf("%d pods were held, and %d started before them", held, beside)
	}
}

// TestAnEndOnAnotherNodeFreesAQuota: a pod fits on one node once the pod there has ended, and in its quota once one has
// ended on a node that is too small for it. It holds its node until both have.
func TestAnEndOnAnotherNodeFreesAQuota(t *testing.T) {
	in := elastic(koordinator, "team", "", "{cpu: 4}", "{cpu: 4}") +
		elastic(koordinator, "rest", "", "{cpu: 8}", "{cpu: 8}") + cpuNode("n0", 4)
	for i := range 4 {
		in += cpuNode(fmt.Sprint("small", i), 2)
	}
	l := newHolding(t, in)
	l.pod("old0", 4, inQuota("rest"), runsFor("30m"))
	l.pod("old1", 2, inQuota("team"), runsFor("1h"))
	l.runUntilIdle()
	l.pod("big", 4, inQuota("team"))
	l.runUntilIdle()
	if got := l.held(); len(got) != 1 || got[0] != "pod/default/big" {
		t.Fatalf("%v hold nodes", got)
	}
	l.pass(30 * time.Minute)
	l.end("old0")
	l.pod("late", 1, inQuota("rest"), onlyOn("n0"), runsFor("1h"))
	l.pod("short", 1, inQuota("rest"), onlyOn("n0"), runsFor("20m"))
	l.runUntilIdle()
	if l.started("late") || !l.started("short") {
		t.Errorf("started: a pod that ends after the start %t, one before it %t", l.started("late"), l.started("short"))
	}
}

//go:build e2e_node

package runtime

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// BE pods use what LSR pods leave idle, and nothing of an LSE pod.
func TestBEPodsRunOnTheCPUsOfLSRPodsAndNeverOfLSEPods(t *testing.T) {
	for _, route := range closed {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, early := w.run(pod("early", withClass("BE")))
			w.wants(early, allCPUs)

			b, lsr := w.run(pod("lsr", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			_, ls := w.run(pod("ls", withClass("LS")))
			_, late := w.run(pod("late", withClass("BE")))
			w.wants(lsr, exclusive)
			w.wants(ls, shared) // the pools have moved
			w.wants(early, allCPUs)
			w.wants(late, allCPUs)
			w.never(early, allCPUs)
			w.never(late, allCPUs)
			testkit.Check(t, b.Remove(t.Context()))
			w.unbind(b.Pod)

			b, lse := w.run(pod("lse", withClass("LSE"), guaranteed("1"), allocated(exclusive)))
			_, beside := w.run(pod("beside", withClass("BE")))
			w.wants(lse, exclusive)
			w.wants(early, shared)
			w.wants(late, shared)
			w.wants(beside, shared)
			w.never(lse, exclusive)
			w.never(beside, shared)
			testkit.Check(t, early.Update(t.Context(), &runtimeapi.LinuxContainerResources{CpusetCpus: allCPUs}))
			w.wants(early, shared)
			testkit.Check(t, b.Remove(t.Context()))
			w.unbind(b.Pod)
			w.wants(early, allCPUs)
			w.wants(beside, allCPUs)
		})
	}
}

// The machine has two CPUs, which best-effort pods keep in any case: only a quota can take CPU time from them. Nothing
// else does here: the groups of both classes have the same weight. What the machine does besides is the system's use,
// so the target is the least quota, which the load alone asks for.
func TestBEPodsGiveTheirCPUTimeToALoadAndGetItBack(t *testing.T) {
	w := newWorld(t, byNRI, options{})
	burn := func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"burn"} }
	_, be := w.run(batch("be", burn, object.Requests("kubernetes.io/batch-cpu", "1k"),
		object.Limits("kubernetes.io/batch-cpu", "1500")))
	b := w.sandbox(pod("ls", withClass("LS"), burn))
	end := w.plane.Suppress(w.node.Name, 65)
	stage.Await(w, "a quota of best-effort pods", func() error {
		u, err := w.s.Use(b.Group)
		if err == nil && u.Quota < 0 {
			err = errors.New("there is none")
		}
		return err
	})
	const least = 2 * time.Millisecond
	r, known := stage.React(w.s.Watch(b.Group, func() {
		w.start(b, "main")
		w.file(w.s.BestEffortGroup(), "cpu.cfs_quota_us", "2000", "cpu.max", "2000 100000")
		began := time.Now()
		from, err := w.s.Use(b.Group)
		testkit.Check(w, err)
		stage.Await(w, "a second of the load's CPU time", func() error {
			to, err := w.s.Use(b.Group)
			// On a busy machine the load takes long to get its second. What the quota gives meanwhile is theirs.
			switch be, ls, quota := to.BE-from.BE, to.LS-from.LS, time.Since(began)/50; {
			case err != nil:
				return err
			case ls < time.Second:
				return fmt.Errorf("it used %v", ls)
			case be > max(ls/5, quota+quota/10):
				w.Errorf("best-effort pods used %v beside %v of the load in %v", be, ls, time.Since(began))
			}
			return nil
		})
	}), least)
	if known {
		fmt.Printf("     best-effort pods have the least quota %v after a load began, and keep to it after %v\n",
			r.Quota.Round(time.Millisecond), r.Use.Round(time.Millisecond))
	}
	w.file(be.Group, "cpu.cfs_quota_us", "2000", "cpu.max", "2000 100000")
	// Where the rest of the machine leaves the load next to no CPU time, the strategy alone bounds them.
	w.condition("tenon.sh/BestEffortSuppressed", "True", "OtherPodsUseTheNode", "CPUSuppressThreshold")
	end()
	w.file(w.s.BestEffortGroup(), "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000")
	w.file(be.Group, "cpu.cfs_quota_us", "150000", "cpu.max", "150000 100000")
}

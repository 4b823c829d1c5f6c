//go:build e2e_node

package runtime

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/testkit"
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

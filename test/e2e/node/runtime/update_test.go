//go:build e2e_node

package runtime

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/testkit"
)

// A kubelet with the static policy sends every container its own idea of a set, again and again.
func TestAnUpdateByTheKubeletDoesNotUndoASet(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, plain := w.run(pod("plain"))
			w.wants(plain, allCPUs)
			_, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			w.wants(plain, shared)

			testkit.Check(t, bound.Update(t.Context(), &runtimeapi.LinuxContainerResources{CpusetCpus: allCPUs}))
			testkit.Check(t, plain.Update(t.Context(), &runtimeapi.LinuxContainerResources{CpusetCpus: allCPUs}))
			w.wants(bound, exclusive)
			w.wants(plain, shared)
			w.never(bound, exclusive)
			w.never(plain, allCPUs, shared)
			if lines := w.count(plain, "Cpus_allowed_list="+allCPUs); lines != 1 {
				t.Errorf("the plain container was on CPUs %s %d times, want once, before the bound pod came", allCPUs,
					lines)
			}
		})
	}
}

func TestAQuotaIsNotPutBackOnABoundContainer(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			w.file(bound.Group, "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000")
			if err := bound.Update(t.Context(), &runtimeapi.LinuxContainerResources{
				CpuQuota:  100_000,
				CpuPeriod: 100_000, CpuShares: 1024,
			}); err != nil {
				t.Fatal(err)
			}
			w.file(bound.Group, "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000")
			w.wants(bound, exclusive)
		})
	}
}

func TestMemoryOfARunningContainerCanBeResized(t *testing.T) {
	for _, route := range paths {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, ls := w.run(pod("ls", withClass("LS"), guaranteed("1")))
			const limit = "134217728"
			if err := ls.Update(t.Context(),
				&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}); err != nil {
				t.Fatal(err)
			}
			w.file(ls.Group, "memory.limit_in_bytes", limit, "memory.max", limit)
			if err := ls.Update(t.Context(), &runtimeapi.LinuxContainerResources{
				CpuQuota: 50_000, CpuPeriod: 100_000,
				CpuShares: 512,
			}); err != nil {
				t.Fatal(err)
			}
			w.file(ls.Group, "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000")
			w.wants(ls, allCPUs)
		})
	}
}

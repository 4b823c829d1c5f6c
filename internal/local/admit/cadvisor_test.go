package admit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/cadvisor/lib/utils/sysinfo"
	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"

	cadvisor "github.com/google/cadvisor/lib/model"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// treeFS lets cadvisor read a machine below a folder.
type treeFS struct {
	sysfs.SysFs
	dir string
}

func (t treeFS) GetNodesPaths() ([]string, error) {
	return filepath.Glob(filepath.Join(t.dir, "sys/devices/system/node/node*[0-9]"))
}

func (t treeFS) cache(cpu int) string {
	return filepath.Join(t.dir, fmt.Sprintf("sys/devices/system/cpu/cpu%d/cache", cpu))
}

func (t treeFS) GetCaches(cpu int) ([]os.FileInfo, error) {
	entries, err := os.ReadDir(t.cache(cpu))
	var out []os.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, err
}

func (t treeFS) GetCacheInfo(cpu int, name string) (sysfs.CacheInfo, error) {
	read := func(file string) string {
		text, _ := os.ReadFile(filepath.Join(t.cache(cpu), name, file))
		return strings.TrimSpace(string(text))
	}
	level, err := strconv.Atoi(read("level"))
	if err != nil {
		return sysfs.CacheInfo{}, err
	}
	id, err := strconv.Atoi(read("id"))
	if err != nil {
		return sysfs.CacheInfo{}, err
	}
	shared, err := cpuset.ParseIDs(read("shared_cpu_list"))
	return sysfs.CacheInfo{Id: id, Level: level, Type: read("type"), Cpus: len(shared)}, err
}

func (t treeFS) IsCPUOnline(dir string) bool {
	text, err := os.ReadFile(filepath.Join(t.dir, "sys/devices/system/cpu/online"))
	if err != nil {
		return false
	}
	ids, err := cpuset.ParseIDs(strings.TrimSpace(string(text)))
	return err == nil && slices.Contains(ids, number(filepath.Base(dir)))
}

func number(name string) int {
	n, _ := strconv.Atoi(strings.TrimLeft(name, "cpu"))
	return n
}

// What cadvisor itself reads out of a machine's tree is the measure of what the managers are given.
func TestMachineIsDescribedAsCadvisorWould(t *testing.T) {
	t.Parallel()
	for _, d := range machine.Presets() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(testkit.Dir(t), "node")
			testkit.Check(t, d.Write(dir))
			nodes, cpus, err := sysinfo.GetNodesInfo(treeFS{SysFs: sysfs.NewRealSysFs(), dir: dir})
			testkit.Check(t, err)
			read, err := host.Read(host.Root{Dir: dir}, d.Arch())
			testkit.Check(t, err)
			got, want := machineInfo(read.Machine),
				&cadvisor.MachineInfo{NumCores: cpus, NumSockets: read.Machine.NumSockets(), Topology: nodes}
			compare(t, got, want)
		})
	}
}

// compare compares what the kubelet derives from two descriptions of a machine.
func compare(t *testing.T, got, want *cadvisor.MachineInfo) {
	t.Helper()
	derive := func(info *cadvisor.MachineInfo) *topology.CPUTopology {
		out, err := topology.Discover(klog.Background(), info)
		testkit.Check(t, err)
		return out
	}
	if diff := cmp.Diff(derive(want), derive(got)); diff != "" {
		t.Errorf("CPUs (-cadvisor +ours):\n%s", diff)
	}
	strip := func(nodes []cadvisor.Node) []cadvisor.Node {
		var out []cadvisor.Node
		for _, n := range nodes {
			pages := slices.Clone(n.HugePages)
			slices.SortFunc(pages, func(a, b cadvisor.HugePagesInfo) int { return int(a.PageSize) - int(b.PageSize) })
			out = append(out, cadvisor.Node{Id: n.Id, Memory: n.Memory, HugePages: pages, Distances: n.Distances})
		}
		return out
	}
	if diff := cmp.Diff(strip(want.Topology), strip(got.Topology)); diff != "" {
		t.Errorf("NUMA nodes (-cadvisor +ours):\n%s", diff)
	}
}

func TestOddMachinesAreDescribedById(t *testing.T) {
	t.Parallel()
	m := grid.Build(t, topo.Spec{
		CPUs: []topo.CPUSpec{
			{ID: 0, Core: 0, NUMA: 2, Offline: true},
			{ID: 4, Core: 0, NUMA: 2},
			{ID: 1, Core: 1, NUMA: 2, Offline: true},
			{ID: 6, Core: 0, L3: 1, Socket: 3, NUMA: 8},
			{ID: 7, Core: 1, L3: 2, Socket: 3, NUMA: 8},
		},
		NUMA: []topo.NUMASpec{
			{ID: 2, MemoryBytes: 8 << 30, Hugepages: map[int64]int64{64 << 10: 16}, Distances: []int{10, 20, 30}},
			{ID: 5, MemoryBytes: 4 << 30, Distances: []int{20, 10, 20}},
			{ID: 8, Distances: []int{30, 20, 10}},
		},
	})
	info := machineInfo(m)
	if info.NumCores != 3 || info.NumPhysicalCores != 3 || info.NumSockets != 2 || len(info.Topology) != 3 {
		t.Fatalf("%d CPUs on %d cores of %d sockets, %d NUMA nodes; want 3, 3, 2, 3", info.NumCores,
			info.NumPhysicalCores, info.NumSockets, len(info.Topology))
	}
	first, memory, last := info.Topology[0], info.Topology[1], info.Topology[2]
	if first.Id != 2 || len(first.Cores) != 1 || !slices.Equal(first.Cores[0].Threads, []int{4}) ||
		!slices.Equal(first.Distances, []uint64{10, 20, 30}) {
		t.Errorf("node 2 is %+v: want core 0 with its one online thread 4, and not core 1, which is offline", first)
	}
	if first.HugePages[0] != (cadvisor.HugePagesInfo{PageSize: 64, NumPages: 16}) || len(first.HugePages) != 3 {
		t.Errorf("huge pages of node 2 are %+v", first.HugePages)
	}
	if memory.Id != 5 || len(memory.Cores) != 0 || memory.Memory != 4<<30 {
		t.Errorf("node 5 is %+v: want memory without cores", memory)
	}
	if last.Id != 8 || len(last.Cores) != 2 || last.Cores[1].SocketID != 3 || len(last.Cores[1].UncoreCaches) != 1 ||
		last.Cores[0].UncoreCaches[0].Id == last.Cores[1].UncoreCaches[0].Id {
		t.Errorf("node 8 is %+v: want two cores of socket 3 with an L3 each", last)
	}
}

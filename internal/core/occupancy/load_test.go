package occupancy_test

import (
	"flag"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/occupancy"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestMain raises the number of random nodes.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "2000"); err != nil {
		panic(err)
	}
	m.Run()
}

// ample is room for any number of pods.
var ample = occupancy.Room{MilliCPU: 64_000, MemoryBytes: 1 << 40, Pods: 110}

// node is a node with GPUs of 80 GiB in test cases.
type node struct {
	devices []device.Device
	table   []device.Partition
	foreign []device.Foreign
	held    []ledger.Entry
	facts   func(*ledger.Facts)
}

// cards are healthy GPUs.
func cards(n int) (all []device.Device) {
	for i := range n {
		all = append(all, device.Device{
			Type: device.GPU, ID: fmt.Sprint("gpu-", i), Minor: int32(i), Module: int32(i), Healthy: true, Model: "A",
			Total: device.Vector{device.Bytes: 80 << 30}, Location: device.Location{Bus: fmt.Sprint(i)},
		})
	}
	return all
}

// slice is a MIG device.
func slice(id, parent string) device.Device {
	return device.Device{
		Type: device.GPU, ID: id, Parent: parent, Profile: "1g.5gb", Healthy: true, Model: "A",
	}
}

// change returns devices, one of them changed.
func change(all []device.Device, i int, f func(*device.Device)) []device.Device {
	f(&all[i])
	return all
}

// on is a pod of a namespace that has percent of the cores and of the memory of a GPU.
func on(gpu int, namespace string, cores, memory int64) ledger.Entry {
	return ledger.Entry{
		UID: fmt.Sprint(namespace, gpu), Namespace: namespace, Name: fmt.Sprint("p", gpu),
		Devices: []device.Grant{{
			Type: device.GPU, ID: fmt.Sprint("gpu-", gpu), Minor: int32(gpu),
			Amount: device.Vector{device.Cores: cores, device.Bytes: (80 << 30) * memory / 100},
		}},
	}
}

func (n *node) view(t interface{ Fatal(...any) }) *ledger.View {
	f := ledger.Facts{OwnDevices: true, MinSharedCPUs: -1}
	if n.facts != nil {
		n.facts(&f)
	}
	if n.devices != nil {
		spec := &device.Spec{Devices: n.devices, Foreign: n.foreign}
		if spec.Partitions.Table = n.table; n.table != nil {
			spec.Partitions.Policy = device.HonorPartitions
		}
		inventory, err := device.NewInventory(spec, f.Machine, nil)
		if err != nil {
			t.Fatal(err)
		}
		f.Devices = inventory
	}
	l := ledger.New(f)
	for _, e := range n.held {
		l.Put(e)
	}
	return l.View()
}

// fit is occupancy.Load.Fit.
func fit(one, two, four, eight int) map[string]int {
	return map[string]int{"1": one, "2": two, "4": four, "8": eight}
}

func TestLoadOfGPUs(t *testing.T) {
	t.Parallel()
	load := func(l occupancy.Load, causes ...any) occupancy.Load {
		l.Model, l.Stranded = "A", []occupancy.Stranded{}
		if l.Isolation == "" {
			l.Isolation = device.NotIsolated
		}
		if l.Fit == nil {
			l.Fit = map[string]int{}
		}
		for i := 0; i < len(causes); i += 2 {
			l.Stranded = append(l.Stranded, occupancy.Stranded{Cause: causes[i].(string), GPUs: causes[i+1].(int)})
		}
		return l
	}
	used := func(pairs ...any) (all []occupancy.NamespaceUse) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, occupancy.NamespaceUse{
				Namespace: pairs[i].(string), UsedPercent: int64(pairs[i+1].(int)),
			})
		}
		return all
	}
	mixed := load(occupancy.Load{GPUs: 2, Free: 2, Fit: fit(2, 1, 0, 0)})
	mixed.Model = "mixed"
	sick := func(d *device.Device) { d.Healthy = false }
	failing := func(d *device.Device) { d.Degraded = true }
	for name, c := range map[string]struct {
		node
		room occupancy.Room
		want occupancy.Load
	}{
		"all free": {node{devices: cards(4)}, ample, load(occupancy.Load{GPUs: 4, Free: 4, Fit: fit(4, 2, 1, 0)})},
		"two models": {
			node{devices: change(cards(2), 1, func(d *device.Device) { d.Model = "B" })}, ample, mixed,
		},
		"an unhealthy GPU": {
			node{devices: change(cards(2), 0, sick)},
			ample,
			load(occupancy.Load{GPUs: 2, Free: 1, Fit: fit(1, 0, 0, 0)}, "unhealthy", 1),
		},
		"a GPU that is likely to fail": {
			node{devices: change(cards(2), 0, failing)},
			ample,
			load(occupancy.Load{GPUs: 2, Free: 2, Degraded: 1, Fit: fit(2, 1, 0, 0)}),
		},
		"an unhealthy one is not degraded as well": {
			node{devices: change(change(cards(2), 0, sick), 0, failing)},
			ample,
			load(occupancy.Load{GPUs: 2, Free: 1, Fit: fit(1, 0, 0, 0)}, "unhealthy", 1),
		},
		"pods of two namespaces": {
			node{devices: cards(3), held: []ledger.Entry{on(0, "b", 100, 100), on(1, "a", 30, 40)}},
			ample,
			load(occupancy.Load{
				GPUs: 3, Free: 1, UsedPercent: 140, InParts: 1, Shared: 1, FreeShares: 60, Fit: fit(1, 0, 0, 0),
				Namespaces: used("a", 40, "b", 100),
			}),
		},
		"cores are left without memory": {
			node{devices: cards(1), held: []ledger.Entry{on(0, "a", 30, 100)}},
			ample,
			load(occupancy.Load{
				GPUs: 1, UsedPercent: 100, Fit: fit(0, 0, 0, 0), Namespaces: used("a", 100),
			}, "share", 1),
		},
		"a pod of another program, which is not known, beside one that is": {
			node{
				devices: cards(1), held: []ledger.Entry{{UID: "p", Namespace: "a", Name: "p", Unallocated: true}},
				foreign: []device.Foreign{
					{UID: "p", Names: []string{"gpu-0"}}, {UID: "q", Names: []string{"gpu-0::1"}},
				},
			},
			ample,
			load(occupancy.Load{
				GPUs: 1, UsedPercent: 100, InParts: 1, Fit: fit(0, 0, 0, 0), Namespaces: used("", 50, "a", 50),
			}),
		},
		"the kubelet gives the devices": {
			node{devices: cards(2), facts: func(f *ledger.Facts) { f.OwnDevices = false }},
			ample,
			load(occupancy.Load{GPUs: 2, Free: 2}, "kubelet", 2),
		},
		"a pod may have any of them": {
			node{devices: cards(2), held: []ledger.Entry{{UID: "p", Unallocated: true}}, foreign: []device.Foreign{
				{UID: "p", Names: []string{"gone"}},
			}},
			ample,
			load(occupancy.Load{GPUs: 2, Free: 2}, "kubelet", 2),
		},
		"a cordoned node": {
			node{devices: cards(2)},
			occupancy.Room{MilliCPU: 64_000, MemoryBytes: 1 << 40, Pods: 110, Closed: health.Cordon},
			load(occupancy.Load{GPUs: 2, Free: 2}, "cordon", 2),
		},
		"a node whose kubelet is silent, with a part left of a GPU": {
			node{devices: cards(3), held: []ledger.Entry{on(0, "a", 40, 40)}},
			occupancy.Room{MilliCPU: 64_000, MemoryBytes: 1 << 40, Pods: 110, Closed: health.NotReady},
			load(occupancy.Load{
				GPUs: 3, Free: 2, UsedPercent: 40, InParts: 1, Shared: 1, FreeShares: 60, Namespaces: used("a", 40),
			}, "notReady", 3),
		},
		"two pods that share a whole GPU": {
			node{devices: cards(1), held: []ledger.Entry{on(0, "a", 50, 50), on(0, "b", 50, 50)}},
			ample,
			load(occupancy.Load{
				GPUs: 1, UsedPercent: 100, InParts: 1, Fit: fit(0, 0, 0, 0), Namespaces: used("a", 50, "b", 50),
			}),
		},
		"too few CPUs": {
			node{devices: cards(4)},
			occupancy.Room{MilliCPU: 1_999, MemoryBytes: 1 << 40, Pods: 110},
			load(occupancy.Load{GPUs: 4, Free: 4, Fit: fit(1, 0, 0, 0)}, "cpu", 3),
		},
		"CPUs, then memory": {
			node{devices: cards(4)},
			occupancy.Room{MilliCPU: 3_000, MemoryBytes: 1 << 30, Pods: 110},
			load(occupancy.Load{GPUs: 4, Free: 4, Fit: fit(1, 0, 0, 0)}, "cpu", 1, "memory", 2),
		},
		"more is requested than there is": {
			node{devices: cards(1)},
			occupancy.Room{MilliCPU: -1, MemoryBytes: -1, Pods: -1},
			load(occupancy.Load{GPUs: 1, Free: 1, Fit: fit(0, 0, 0, 0)}, "cpu", 1),
		},
		"one pod more": {
			node{devices: cards(8)},
			occupancy.Room{MilliCPU: 64_000, MemoryBytes: 1 << 40, Pods: 1},
			load(occupancy.Load{GPUs: 8, Free: 8, Fit: fit(1, 1, 1, 1)}),
		},
		"one pod more, and no partition of all": {
			node{devices: cards(3)},
			occupancy.Room{MilliCPU: 64_000, MemoryBytes: 1 << 40, Pods: 1},
			load(occupancy.Load{GPUs: 3, Free: 3, Fit: fit(1, 1, 0, 0)}, "pods", 1),
		},
		"no partition has the last one": {
			node{devices: cards(4), table: []device.Partition{
				{Modules: []int32{0, 1}}, {Modules: []int32{2, 3}}, {Modules: []int32{0}}, {Modules: []int32{2}},
			}, held: []ledger.Entry{on(2, "a", 100, 100)}},
			ample,
			load(occupancy.Load{
				GPUs: 4, Free: 3, UsedPercent: 100, Fit: fit(1, 1, 0, 0), Namespaces: used("a", 100),
			}, "partition", 1),
		},
		"the topology policy refuses": {
			node{devices: cards(2), facts: func(f *ledger.Facts) {
				f.Machine = grid.Machine{Sockets: 2, Nodes: 1, Cores: 4, Threads: 2}.Build(t)
				f.Topology = hint.SingleNUMANode
				f.Amounts = []align.Amount{{Resource: why.Memory}, {NUMAID: 1, Resource: why.Memory, N: 1 << 29}}
			}},
			ample,
			load(occupancy.Load{GPUs: 2, Free: 2, Fit: fit(0, 0, 0, 0)}, "numa", 2),
		},
		"MIG devices are free, and for no pod of whole GPUs": {
			node{devices: append(cards(2), slice("MIG-0", "gpu-1"), slice("MIG-1", "gpu-1"))},
			ample,
			load(occupancy.Load{GPUs: 3, Free: 3, Fit: fit(1, 0, 0, 0)}),
		},
		"MIG devices alone": {
			node{devices: append(cards(1), slice("MIG-0", "gpu-0"))},
			ample,
			load(occupancy.Load{GPUs: 1, Free: 1, Isolation: device.Hard, Fit: fit(0, 0, 0, 0)}),
		},
		"a library keeps pods to their parts": {
			node{devices: cards(1), facts: func(f *ledger.Facts) { f.GPUIsolation = "HAMi-core" }},
			ample,
			load(occupancy.Load{GPUs: 1, Free: 1, Isolation: device.Cooperative, Fit: fit(1, 0, 0, 0)}),
		},
	} {
		got, has := occupancy.Of(c.view(t), c.room)
		if diff := cmp.Diff(c.want, got); diff != "" || !has {
			t.Errorf("%s: %t (-want +got):\n%s", name, has, diff)
		}
	}
	adapters := node{devices: []device.Device{{Type: device.RDMA, ID: "nic", Healthy: true}}}
	for name, n := range map[string]node{"no devices": {}, "network adapters alone": adapters} {
		if got, has := occupancy.Of(n.view(t), ample); has {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestEachGPUCountsOnce: each free GPU is placed, or stranded for one cause. With more room no less fits, and with
// another pod no more.
func TestEachGPUCountsOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		n := node{devices: cards(rapid.IntRange(1, 6).Draw(t, "GPUs"))}
		for i := range n.devices {
			n.devices[i].Healthy = rapid.IntRange(0, 5).Draw(t, "sick") > 0
			if rapid.IntRange(0, 2).Draw(t, "held") == 0 {
				n.held = append(n.held, on(i, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"),
					rapid.SampledFrom([]int64{0, 40, 100}).Draw(t, "cores"),
					rapid.SampledFrom([]int64{20, 40, 100}).Draw(t, "memory")))
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "table") == 0 {
			for i := range n.devices {
				if rapid.Bool().Draw(t, "row") {
					n.table = append(n.table, device.Partition{Modules: []int32{int32(i)}})
				}
				if i%2 == 1 && rapid.Bool().Draw(t, "pair") {
					n.table = append(n.table, device.Partition{Modules: []int32{int32(i) - 1, int32(i)}})
				}
			}
		}
		room := occupancy.Room{
			MilliCPU:    rapid.Int64Range(0, 9_000).Draw(t, "CPU"),
			MemoryBytes: rapid.Int64Range(0, 9).Draw(t, "GiB") << 30,
			Pods:        rapid.Int64Range(0, 9).Draw(t, "pods"),
		}
		v := n.view(t)
		got, has := occupancy.Of(v, room)
		if !has || got.GPUs != len(n.devices) {
			t.Fatalf("%+v of %d GPUs", got, len(n.devices))
		}
		stranded := 0
		for _, s := range got.Stranded {
			if seen[s.Cause]++; s.Cause != "unhealthy" && s.Cause != "share" {
				stranded += s.GPUs
			}
			if s.GPUs <= 0 {
				t.Fatalf("%+v", got)
			}
		}
		most := 0
		for size, fits := range got.Fit {
			n, _ := strconv.Atoi(size)
			if most = max(most, n*fits); int64(fits) > room.Pods {
				t.Fatalf("%d pods fit where %d may run: %+v", fits, room.Pods, got)
			}
		}
		if most > got.Free || stranded > got.Free || room.Pods > 8 && most < got.Free-stranded && n.table == nil {
			t.Fatalf("%d of %d free GPUs fit, %d are stranded: %+v", most, got.Free, stranded, got)
		}
		sum := int64(0)
		for _, u := range got.Namespaces {
			sum += u.UsedPercent
		}
		if sum != got.UsedPercent {
			t.Fatalf("namespaces have %d%%: %+v", sum, got)
		}
		more := room
		more.MilliCPU, more.MemoryBytes, more.Pods = more.MilliCPU+1000, more.MemoryBytes+1<<30, more.Pods+1
		wider, _ := occupancy.Of(v, more)
		fuller := n
		fuller.held = append(fuller.held[:len(fuller.held):len(fuller.held)], on(0, "c", 100, 100))
		less, _ := occupancy.Of(fuller.view(t), room)
		for size, fits := range got.Fit {
			if wider.Fit[size] < fits || less.Fit[size] > fits {
				t.Fatalf("%s GPUs fit %d times, %d times with more room, %d times with a pod more: %+v", size, fits,
					wider.Fit[size], less.Fit[size], got)
			}
		}
		cordoned := room
		cordoned.Closed = health.Cordon
		if shut, _ := occupancy.Of(v, cordoned); len(shut.Fit) > 0 || shut.Free != got.Free {
			t.Fatalf("cordoned: %+v, want nothing to fit and %d free", shut, got.Free)
		}
	})
	for _, cause := range []string{"unhealthy", "share", "cpu", "memory", "pods", "partition"} {
		if seen[cause] == 0 {
			t.Errorf("no node has GPUs that are stranded as %s", cause)
		}
	}
}

package view_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// cards are GPUs of 16 GiB in pairs with four lanes, each pair below a root complex with a NIC.
func cards(t rapidOrTest, n int, policy device.PartitionPolicy, table ...device.Partition) *device.Inventory {
	t.Helper()
	s := device.Spec{Partitions: device.Partitions{Policy: policy, Table: table}}
	for i := range n {
		root := fmt.Sprintf("pci0000:%d0", i/2)
		s.Devices = append(s.Devices, device.Device{
			Type: device.GPU, ID: fmt.Sprintf("GPU-%d", i), Minor: int32(i), Module: int32(i), Healthy: true,
			Total: device.Vector{device.Bytes: 16 << 30}, Vendor: device.NVIDIAGPU, Model: "nvidia-T4",
			Location: device.Location{NUMAID: i * 2 / n, PCIe: root, Bus: fmt.Sprintf("0000:%02x:00.0", i)},
		})
		if i%2 == 1 {
			s.Links = append(s.Links, device.Link{
				Type: device.GPU, A: fmt.Sprintf("GPU-%d", i-1), B: fmt.Sprintf("GPU-%d", i), Lanes: 4,
			})
			s.Devices = append(s.Devices, device.Device{
				Type: device.RDMA, ID: fmt.Sprintf("0000:%02x:01.0", i), Minor: int32(i / 2), Healthy: true,
				Location: device.Location{NUMAID: i * 2 / n, PCIe: root, Bus: fmt.Sprintf("0000:%02x:01.0", i)},
			})
		}
	}
	inventory, err := device.NewInventory(&s, nil, nil)
	if err != nil {
		t.Fatalf("devices: %v", err)
	}
	return inventory
}

type rapidOrTest interface {
	Helper()
	Fatalf(format string, args ...any)
}

func accountOf(inventory *device.Inventory, held map[int]int64) *ledger.View {
	l := ledger.New(ledger.Facts{Devices: inventory, OwnDevices: true, MinSharedCPUs: -1})
	for i, percent := range held {
		name := fmt.Sprintf("h%d", i)
		l.Put(ledger.Entry{UID: name, Namespace: "d", Name: name, Devices: []device.Grant{{
			Type: device.GPU, ID: fmt.Sprintf("GPU-%d", i), Minor: int32(i), Ratio: percent,
			Amount: device.Vector{device.Cores: percent},
		}}})
	}
	return l.View()
}

func wants(t rapidOrTest, amounts map[string]int64) *place.Request {
	t.Helper()
	r, faults := device.NewRequest(device.Pod{Containers: []device.Container{
		{Name: "c", Requests: amounts, Limits: amounts},
	}}, nil)
	if len(faults) > 0 {
		t.Fatalf("%v: %v", amounts, faults)
	}
	return &place.Request{UID: "p", Namespace: "d", Role: qos.SharedPool, Devices: r}
}

// What is shown as the best set is what the scheduler would take; sets are in the order of their keys.
func TestTheFirstSetIsTheOneThatIsTaken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		held := map[int]int64{}
		for i := range 8 {
			if n := rapid.SampledFrom([]int64{0, 0, 30, 100}).Draw(rt, "held"); n > 0 {
				held[i] = n
			}
		}
		v := accountOf(cards(rt, 8, device.NoPartitionPolicy), held)
		r := wants(rt, rapid.SampledFrom([]map[string]int64{
			{device.NVIDIAGPU: 1},
			{device.NVIDIAGPU: 2},
			{device.GPUPercent: 50},
			{device.NVIDIAGPU: 3, device.RDMAShare: 10},
		}).Draw(rt, "amounts"))
		offer, reason := place.Try(v, r)
		choice, fit := view.DeviceChoiceOf(v, r, offer.Entry.Devices), view.DeviceFitOf(v, r)
		if !reason.OK() {
			if choice != nil || fit == nil || fit.Set != nil || fit.Miss == "" {
				rt.Fatalf("refused for %+v, but choice %+v, fit %+v", reason, choice, fit)
			}
			return
		}
		if choice == nil || !choice.Sets[0].Held || fit.Set == nil {
			rt.Fatalf("offer %+v, choice %+v, fit %+v", offer.Entry.Devices, choice, fit)
		}
		if (choice.Decided == "") != (len(choice.Sets) == 1) {
			rt.Fatalf("%d sets are decided by %q", len(choice.Sets), choice.Decided)
		}
		for i := 1; i < len(choice.Sets); i++ {
			before, after := choice.Sets[i-1].Keys, choice.Sets[i].Keys
			at := slices.IndexFunc(before, func(k view.DeviceKey) bool { return !slices.Contains(after, k) })
			if at < 0 || (before[at].Value < after[at].Value) != before[at].Less {
				rt.Fatalf("set %d is not worse than the one before: %+v, %+v", i, before, after)
			}
		}
	})
}

// TestAPodThatWaitsForGPUsLearnsWhoHoldsThem: Reservations and pods of its own namespace by name, pods of others as a
// number, and none that holds devices of another type.
func TestAPodThatWaitsForGPUsLearnsWhoHoldsThem(t *testing.T) {
	t.Parallel()
	l := ledger.New(ledger.Facts{
		Devices: cards(t, 5, device.NoPartitionPolicy), OwnDevices: true, MinSharedCPUs: -1,
	})
	put := func(namespace, name string, kind device.Type, minors ...int) {
		e := ledger.Entry{UID: namespace + name, Namespace: namespace, Name: name}
		for _, i := range minors {
			e.Devices = append(e.Devices, device.Grant{
				Type: kind, ID: fmt.Sprintf("%s-%d", strings.ToUpper(string(kind)), i), Minor: int32(i), Ratio: 100,
				Amount: device.Vector{device.Cores: 100},
			})
		}
		l.Put(e)
	}
	put("d", "small", device.GPU, 0)
	put("d", "large", device.GPU, 1, 2)
	put("team-b", "secret", device.GPU, 3)
	put(ledger.OfReservation, "r", device.GPU, 4)
	put("d", "nic", device.RDMA, 0)
	l.Put(ledger.Entry{UID: "cpus", Namespace: "d", Name: "cpus"})
	got := view.DeviceFitOf(l.View(), wants(t, map[string]int64{device.NVIDIAGPU: 4}))
	want := []view.HoldingPod{
		{Pod: "d/large", Devices: 2}, {Pod: "d/small", Devices: 1}, {Pod: "reservation/r", Devices: 1},
	}
	if got == nil || !slices.Equal(got.Holders, want) || got.Elsewhere != 1 {
		t.Errorf("got %+v, want the holders %v and one in another namespace", got, want)
	}
}

func TestWhatANodeLacksForDevices(t *testing.T) {
	t.Parallel()
	inventory := cards(t, 4, device.NoPartitionPolicy)
	memory := func(percent string) map[string]string {
		return map[string]string{device.GPUCore: percent, device.GPUMemory: "16Gi"}
	}
	for name, c := range map[string]struct {
		held map[int]int64
		asks map[string]int64
		want view.DeviceFit
	}{
		"whole GPUs": {
			map[int]int64{0: 50, 1: 100},
			map[string]int64{device.NVIDIAGPU: 4},
			view.DeviceFit{
				Type: "gpu", Asked: 4, Need: "whole", Fit: 2, Whole: 2, Best: memory("100"), Miss: "2 more gpus",
				Holders: []view.HoldingPod{{Pod: "d/h0", Devices: 1}, {Pod: "d/h1", Devices: 1}},
			},
		},
		"more memory than a card has": {
			nil,
			map[string]int64{device.GPUMemory: 20 << 30},
			view.DeviceFit{
				Type: "gpu", Asked: 1, Need: "20Gi", Whole: 4, Best: memory("100"), Miss: "4Gi more memory of one gpu",
			},
		},
		"a share of cards in use": {
			map[int]int64{0: 50, 1: 60, 2: 70, 3: 80},
			map[string]int64{device.GPUCore: 60, device.GPURatio: 20},
			view.DeviceFit{
				Type: "gpu", Asked: 1, Need: "60% of the cores and 20% of the memory",
				Best: map[string]string{device.GPUCore: "50", device.GPUMemory: "8Gi"}, Miss: "10% more of one gpu",
				Holders: []view.HoldingPod{
					{Pod: "d/h0", Devices: 1},
					{Pod: "d/h1", Devices: 1},
					{Pod: "d/h2", Devices: 1},
					{Pod: "d/h3", Devices: 1},
				},
			},
		},
		"network adapters": {
			nil,
			map[string]int64{device.RDMAShare: 300},
			view.DeviceFit{
				Type: "rdma", Asked: 3, Need: "100%", Fit: 2, Whole: 2,
				Best: map[string]string{device.RDMAShare: "100"}, Miss: "1 more rdma",
			},
		},
	} {
		got := view.DeviceFitOf(accountOf(inventory, c.held), wants(t, c.asks))
		if diff := cmp.Diff(&c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := view.DeviceFitOf(accountOf(nil, nil), wants(t, map[string]int64{device.NVIDIAGPU: 1})); got != nil {
		t.Errorf("a node without devices: %+v", got)
	}
}

// TestGPUsOfTheKubelet: their pods are shown as holders of all of them, and a node that waits for a report says so.
func TestGPUsOfTheKubelet(t *testing.T) {
	t.Parallel()
	inv, err := device.NewInventory(&device.Spec{
		Devices: []device.Device{
			{Type: device.GPU, ID: "a", Healthy: true}, {Type: device.GPU, ID: "b", Healthy: true},
		},
		Foreign: []device.Foreign{{UID: "p", Names: []string{"a"}}, {UID: "gone", Names: []string{"a::1"}}},
	}, nil, nil)
	testkit.Check(t, err)
	l := ledger.New(ledger.Facts{Devices: inv, OwnDevices: true, MinSharedCPUs: -1})
	l.Put(ledger.Entry{UID: "p", Namespace: "d", Name: "p", Unallocated: true})
	all := view.NodeDevicesOf(l.View())
	var holders []string
	for _, h := range all.List[0].Holders {
		holders = append(holders, fmt.Sprint(h.Pod, " ", h.Foreign, " ", h.Resources[device.GPUCore]))
	}
	if diff := cmp.Diff([]string{"d/p true 100", "gone true 100"}, holders); diff != "" || all.UnknownHolders != 0 ||
		len(all.List[1].Holders) != 0 {
		t.Errorf("unknown holders %d; holders (-want +got):\n%s", all.UnknownHolders, diff)
	}
	l.Put(ledger.Entry{UID: "q", Namespace: "d", Name: "q", Unallocated: true})
	if all = view.NodeDevicesOf(l.View()); all.UnknownHolders != 1 {
		t.Errorf("closed: unknown holders %d", all.UnknownHolders)
	}
}

// A card whose memory size is not reported counts its memory in percent; no text may show these as bytes.
func TestACardOfUnknownMemoryLacksItsSizeAndNotBytes(t *testing.T) {
	t.Parallel()
	inventory, err := device.NewInventory(&device.Spec{Devices: []device.Device{{
		Type: device.GPU, ID: "GPU-0", Healthy: true, Vendor: device.NVIDIAGPU,
	}}}, nil, nil)
	if err != nil {
		t.Fatalf("devices: %v", err)
	}
	asks := map[string]int64{device.GPUCore: 60, device.GPUMemory: 4 << 30}
	got := view.DeviceFitOf(accountOf(inventory, nil), wants(t, asks))
	want := &view.DeviceFit{
		Type: "gpu", Asked: 1, Need: "60% of the cores and 4Gi", Whole: 1,
		Best: map[string]string{device.GPUCore: "100"},
		Miss: "a known memory size of one gpu: its Device object has no koordinator.sh/gpu-memory (the agent reports " +
			"it where it can read the driver's library); koordinator.sh/gpu-memory-ratio needs no size",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAClaimIsAHolderOfItsCard, by its own name, for the node and for pods that do not fit.
func TestAClaimIsAHolderOfItsCard(t *testing.T) {
	t.Parallel()
	claim := ledger.Entry{UID: ledger.OfClaim + "u", Namespace: "ns", Name: "c", Devices: []device.Grant{
		{Hardware: &device.Hardware{Name: "d/p/x", UUID: "GPU-0"}},
		{Hardware: &device.Hardware{Name: "d/p/other", UUID: "not a card of the node"}},
	}}
	v := ledger.New(ledger.Facts{Devices: cards(t, 2, 0), OwnDevices: true}, claim).View()
	var got []string
	for _, d := range view.NodeDevicesOf(v).List {
		for _, h := range d.Holders {
			cores := h.Resources[device.GPUCore]
			got = append(got, fmt.Sprint(d.ID, " ", h.Pod, " ", h.Claim, " ", cores, " ", d.UsedPercent))
		}
	}
	if diff := cmp.Diff([]string{"GPU-0 ns/c true 100 100"}, got); diff != "" {
		t.Errorf("holders (-want +got):\n%s", diff)
	}
	if problems := view.NodeOf("n", v, nil).Problems; len(problems) > 0 {
		t.Errorf("the node has problems: %+v", problems)
	}
}

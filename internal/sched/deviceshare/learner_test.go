package deviceshare

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/testkit"
)

const memory = 80 << 30 // of the GPUs in tests, in bytes

// asks is a request of containers for amounts of GPUs.
func asks(t *testing.T, containers ...map[string]int64) *device.Request {
	t.Helper()
	var pod device.Pod
	for i, amounts := range containers {
		pod.Containers = append(pod.Containers, device.Container{
			Name: fmt.Sprintf("c%d", i), Requests: amounts, Limits: amounts,
		})
	}
	r, faults := device.NewRequest(pod, device.Kinds{})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return r
}

// none is what a cluster without free GPUs has.
func none() fragment.Supply { return fragment.Supply{} }

type amounts = map[string]int64

// viewOf is the account of a node that Tenon gives out the devices of.
func viewOf(t testing.TB, own bool, devices []device.Device, entries ...ledger.Entry) *ledger.View {
	t.Helper()
	inventory, err := device.NewInventory(&device.Spec{Devices: devices}, nil, &device.Classes{})
	testkit.Check(t, err)
	l := ledger.New(ledger.Facts{Devices: inventory, OwnDevices: own, MinSharedCPUs: -1})
	for _, e := range entries {
		l.Put(e)
	}
	return l.View()
}

// gpusOf are GPUs GPU-0, GPU-1, ….
func made(n int, model string) []device.Device {
	var list []device.Device
	for i := range n {
		list = append(list, device.Device{
			Type: device.GPU, ID: fmt.Sprintf("GPU-%d", i), Minor: int32(i), Module: -1, Healthy: true, Model: model,
			Total: device.Vector{device.Bytes: memory}, Location: device.Location{NUMAID: -1},
		})
	}
	return list
}

func holds(uid string, percent int64, ids ...string) ledger.Entry {
	e := ledger.Entry{UID: uid, Namespace: "default", Name: uid}
	for _, id := range ids {
		e.Devices = append(e.Devices, device.Grant{
			Type: device.GPU, ID: id, Minor: -1, Ratio: percent, Amount: device.Vector{device.Cores: percent},
			Containers: []device.ContainerGrant{{Name: "c"}},
		})
	}
	return e
}

func TestWhatAPodAsksForByTheThousandth(t *testing.T) {
	t.Parallel()
	unit := device.Vector{device.Cores: 100, device.Bytes: memory}
	for name, tc := range map[string]struct {
		containers []amounts
		gpus, each int64
	}{
		"nothing":           {nil, 0, 0},
		"half a GPU":        {[]amounts{{device.GPUPercent: 50}}, 1, 500},
		"two whole ones":    {[]amounts{{device.GPUPercent: 200}}, 2, 1000},
		"by a vendor":       {[]amounts{{device.NVIDIAGPU: 8}}, 8, 1000},
		"more cores":        {[]amounts{{device.GPUCore: 60, device.GPURatio: 20}}, 1, 600},
		"more memory":       {[]amounts{{device.GPUCore: 10, device.GPUMemory: memory / 4}}, 1, 250},
		"memory alone":      {[]amounts{{device.GPURatio: 30}}, 1, 300},
		"very little":       {[]amounts{{device.GPUMemory: 1}}, 1, 1},
		"spread over two":   {[]amounts{{device.GPUShared: 2, device.GPUCore: 100, device.GPURatio: 100}}, 2, 500},
		"two on one GPU":    {[]amounts{{device.GPUPercent: 50}, {device.GPUPercent: 30}}, 1, 800},
		"two on two GPUs":   {[]amounts{{device.GPUPercent: 60}, {device.GPUPercent: 60}}, 2, 600},
		"one does not ask":  {[]amounts{{device.GPUPercent: 60}, {}}, 1, 600},
		"a NIC":             {[]amounts{{device.RDMAShare: 50}}, 0, 0},
		"a MIG device, too": {[]amounts{{"nvidia.com/mig-1g.10gb": 2}}, 0, 0},
		"too many":          {[]amounts{{device.NVIDIAGPU: 1 << 40}}, 64, 1000},
	} {
		want := fragment.Spec{MilliCPU: 4000, GPUs: tc.gpus, Milli: tc.each}
		if diff := cmp.Diff(want, specOf(asks(t, tc.containers...), 4000, &unit)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := specOf(nil, 500, &unit); got != (fragment.Spec{MilliCPU: 500}) {
		t.Errorf("a pod without devices asks for %+v", got)
	}
}

func TestWhatNodesHaveFree(t *testing.T) {
	t.Parallel()
	l := newLearner()
	devices := append(made(4, "nvidia-A"), device.Device{Type: device.RDMA, ID: "0000:01:00.0", Healthy: true})
	devices[3].Healthy = false
	v := viewOf(t, true, devices, holds("a", 30, "GPU-1"), holds("b", 100, "GPU-2"))
	g := l.gpusOf("n", v)
	if diff := cmp.Diff([]int64{1000, 700, 0, 0}, g.free); diff != "" {
		t.Errorf("free (-want +got):\n%s", diff)
	}
	if l.gpusOf("n", v) != g {
		t.Error("the same account is read twice")
	}
	if again := l.gpusOf("n", v.Without("b")); again == g || again.free[2] != 1000 {
		t.Errorf("without a pod, free are %v", again.free)
	}
	if more := l.gpusOf("m", viewOf(t, true, made(1, "nvidia-B"))); more.model == g.model {
		t.Error("two models have one number")
	}
	if other := l.gpusOf("o", viewOf(t, false, made(1, "nvidia-A"))); len(other.free) > 0 {
		t.Error("GPUs that the kubelet gives out are valued")
	}
	slices := made(3, "nvidia-A")
	slices[1].Profile, slices[1].Parent = "1g.10gb", "GPU-0"
	if mig := l.gpusOf("p", viewOf(t, true, slices)); len(mig.free) != 1 || mig.ids[0] != "GPU-2" {
		t.Errorf("a GPU in MIG mode, or a slice, is valued: %v", mig.ids)
	}
}

func TestAPodIsLearntFromOnce(t *testing.T) {
	t.Parallel()
	const pods = 75
	l, straight := newLearner(), newLearner()
	want := fragment.NewHistogram()
	state := fragment.State{MilliCPU: 64_000, Free: []int64{1000, 300, 700, 500}}
	left := 0 // until the generation that is due is in force
	for i := range pods {
		s := fragment.Spec{MilliCPU: int64(1000 * (i % 7)), GPUs: 1, Milli: int64(100 * (1 + i%10))}
		uid := types.UID(fmt.Sprintf("p%d", i))
		before := l.current()
		for range 3 {
			if l.first(uid) {
				l.learn(s, none)
			}
		}
		if left--; (left == 0) != (l.current() != before) {
			t.Errorf("pod %d: a new generation: %t, want %t", i, left != 0, left == 0)
		}
		l.current().Value(state)
		if want.Count(s) {
			left = want.Notice()
		}
		straight.learn(s, none)
	}
	if diff := cmp.Diff(want.Specs(), l.demand.Specs()); diff != "" {
		t.Errorf("demand (-want +got):\n%s", diff)
	}
	// The first generation, and one for each 25 pods, but for the last. One that no pod asked for is never made.
	if a, b := l.current().number, straight.current().number; a != pods/25 || b != 1 {
		t.Errorf("generations %d and %d, want %d and 1", a, b, pods/25)
	}
	for range want.Notice() {
		l.learn(fragment.Spec{MilliCPU: 1}, none)
	}
	if a, b := l.current().Value(state), straight.current().Value(state); a != b {
		t.Errorf("the same demand gives values %d and %d", a, b)
	}
}

func TestPodsForAModel(t *testing.T) {
	t.Parallel()
	l := newLearner()
	for i, model := range []string{"nvidia-H100", "nvidia-A100", "H100"} {
		l.gpusOf(model, viewOf(t, true, made(1+i, model)))
	}
	r := asks(t, amounts{device.GPUPercent: 100})
	selecting := asks(t, amounts{device.GPUPercent: 100})
	selecting.Hints = map[device.Type]device.Hint{device.GPU: {Selector: device.Selector{
		{Key: annotation.GPUModelLabel, Operator: device.In, Values: []string{"A100", "L4"}},
		{Key: annotation.GPUModelLabel, Operator: device.NotIn, Values: []string{"H100"}},
	}}}
	for name, tc := range map[string]struct {
		reachable fragment.Models
		r         *device.Request
		want      fragment.Models
	}{
		"any":                         {0, r, 0},
		"by node":                     {fragment.ModelsOf(0, 2), r, fragment.ModelsOf(0, 2)},
		"by device":                   {0, selecting, fragment.ModelsOf(1)},
		"by both":                     {fragment.ModelsOf(1, 2), selecting, fragment.ModelsOf(1)},
		"by both, which do not agree": {fragment.ModelsOf(2), selecting, fragment.ModelsOf(1)},
		"without device":              {fragment.ModelsOf(1), nil, 0},
	} {
		if got := l.demandOf(tc.r, 0, tc.reachable).Models; got != tc.want {
			t.Errorf("%s: models %b, want %b", name, got, tc.want)
		}
	}
}

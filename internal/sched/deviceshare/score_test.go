package deviceshare

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// nodeWith has some milli-CPU, of which pods use a part.
func nodeWith(name string, milliCPU, used int64) fwk.NodeInfo {
	n := framework.NewNodeInfo(object.Pod("p", object.Requests("cpu", fmt.Sprintf("%dm", used))))
	n.SetNode(object.Node(name, nil, "cpu", fmt.Sprintf("%dm", milliCPU)))
	return n
}

// The score of a node is the fall of the value, of the best of all ways to serve the pod, tried one by one.
func TestTheScoreIsTheFallOfTheValue(t *testing.T) {
	t.Parallel()
	l := newLearner()
	for i := range 60 {
		l.learn(fragment.Spec{MilliCPU: int64(i%9) * 1000, GPUs: int64(1 + i%2*i%3), Milli: 1000}, none)
		l.learn(fragment.Spec{MilliCPU: int64(i%5) * 1000, GPUs: 1, Milli: int64(1+i%9) * 100}, none)
	}
	values := l.current()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "gpus")
		free := make([]int64, n)
		var entries []ledger.Entry
		for i := range free {
			percent := rapid.SampledFrom([]int64{0, 0, 10, 30, 50, 81, 100}).Draw(rt, "used")
			free[i] = 1000 - 10*percent
			if percent > 0 {
				entries = append(entries, holds(fmt.Sprintf("p%d", i), percent, fmt.Sprintf("GPU-%d", i)))
			}
		}
		g := l.gpusOf("n", viewOf(t, true, made(n, "A"), entries...))
		if !slices.Equal(g.free, free) {
			rt.Fatalf("free %v, want %v", g.free, free)
		}
		all := int64(64_000)
		used := 1000 * rapid.Int64Range(0, 40).Draw(rt, "used CPUs")
		s := &scoring{milliCPU: 1000 * rapid.Int64Range(0, 24).Draw(rt, "CPUs"), values: values}
		percent := rapid.SampledFrom([]int64{0, 10, 50, 70, 100, 200}).Draw(rt, "asked")
		if percent > 0 {
			s.devices = asks(t, amounts{device.GPUPercent: percent})
		}
		state := fragment.State{MilliCPU: all - used, Free: free, Model: g.model}
		count, each := max(percent/100, 1), min(10*percent, 1000)
		if percent == 0 {
			count = 0
		}
		best, fits := int64(0), false
		for mask := range 1 << n {
			after := fragment.State{MilliCPU: state.MilliCPU - s.milliCPU, Free: slices.Clone(free), Model: g.model}
			taken, ok := int64(0), true
			for i := range n {
				if mask>>i&1 == 1 {
					after.Free[i] -= each
					taken, ok = taken+1, ok && after.Free[i] >= 0
				}
			}
			if ok && taken == count {
				if fall := values.Value(state) - values.Value(after); !fits || fall > best {
					best, fits = fall, true
				}
			}
		}
		got := gain(values, g.state(nodeWith("n", all, used)), specOf(s.devices, s.milliCPU, &g.unit), ^uint64(0))
		if fits && got != best || !fits && got >= 0 {
			rt.Fatalf("free %v, %d %% asked: score %d, want %d (fits: %t)", free, percent, got, best, fits)
		}
	})
}

// A pod is scored by the GPUs that its hints and the node's partitions leave it, and by the partitions that it breaks.
func TestHintsAndPartitionsCount(t *testing.T) {
	t.Parallel()
	l := newLearner()
	for i := range 60 {
		l.learn(fragment.Spec{MilliCPU: 1000, GPUs: int64(1 + i%2), Milli: 1000}, none) // half of them ask for two
		l.learn(fragment.Spec{MilliCPU: 1000, GPUs: 1, Milli: 300}, none)
	}
	values := l.current()
	devices := made(4, "A")
	for i := range devices {
		devices[i].Module = int32(i)
		devices[i].Labels = map[string]string{"slow": fmt.Sprint(i > 0)}
	}
	table := []device.Partition{{Modules: []int32{0, 1}}, {Modules: []int32{2, 3}}, {Modules: []int32{0, 1, 2, 3}}}
	account := func(policy device.PartitionPolicy, entries ...ledger.Entry) *ledger.View {
		inventory, err := device.NewInventory(&device.Spec{
			Devices: devices, Partitions: device.Partitions{Policy: policy, Table: table},
		}, nil, nil)
		testkit.Check(t, err)
		return ledger.New(ledger.Facts{Devices: inventory, OwnDevices: true, MinSharedCPUs: -1}, entries...).View()
	}
	third, slow := asks(t, amounts{device.GPUPercent: 30}), asks(t, amounts{device.GPUPercent: 30})
	slow.Hints = map[device.Type]device.Hint{device.GPU: {
		Selector: device.Selector{{Key: "slow", Operator: device.In, Values: []string{"true"}}},
	}}
	pair := values.Demand(2) * 2
	whole := func(n int64) *device.Request { return asks(t, amounts{device.NVIDIAGPU: n}) }
	for name, tc := range map[string]struct {
		account *ledger.View
		asks    *device.Request
		demands bool
		usable  uint64
		broken  int64
	}{
		"no hint, no table":   {account(device.NoPartitionPolicy), whole(1), false, 1, 0},
		"a hint":              {account(device.NoPartitionPolicy), slow, true, 2, 0},
		"a pair":              {account(device.HonorPartitions), whole(2), true, 3, pair},
		"a share of a pair":   {account(device.HonorPartitions), third, true, 1, pair},
		"of a broken pair":    {account(device.HonorPartitions, holds("p", 30, "GPU-1")), slow, true, 2, 0},
		"more than there are": {account(device.HonorPartitions), whole(3), true, ^uint64(0), 0},
	} {
		r := &place.Request{UID: "new", Devices: tc.asks}
		if got := demands(tc.asks, tc.account.Devices()); got != tc.demands {
			t.Errorf("%s: demands %t, want %t", name, got, tc.demands)
		}
		usable, broken := taken(values, tc.account.Devices(), r, l.gpusOf(name, tc.account))
		if usable != tc.usable || broken != tc.broken {
			t.Errorf("%s: GPUs %b, broken %d; want %b, %d", name, usable, broken, tc.usable, tc.broken)
		}
	}
	if pair < 450_000 || pair > 550_000 || values.Demand(8) != 0 {
		t.Errorf("a pair is worth %d, want two GPUs times about a quarter", pair)
	}
}

// A node is worth less to a pod by the penalty of each device that is likely to fail and that the pod would get there:
// of any type, and only where it needs them.
func TestDegradedDevicesCostTheirPenalty(t *testing.T) {
	t.Parallel()
	devices := append(made(3, "A"), device.Device{Type: device.RDMA, ID: "nic", Healthy: true, Degraded: true})
	devices[0].Degraded, devices[1].Degraded = true, true
	v := viewOf(t, true, devices)
	l := newLearner()
	values := l.current()
	for name, tc := range map[string]struct {
		asks amounts
		cost int64
	}{
		"the healthy GPU": {amounts{device.NVIDIAGPU: 1}, 0},
		"a share":         {amounts{device.GPUPercent: 30}, 0},
		"two GPUs":        {amounts{device.NVIDIAGPU: 2}, degradedPenalty},
		"all GPUs":        {amounts{device.NVIDIAGPU: 3}, 2 * degradedPenalty},
		"an adapter":      {amounts{device.RDMAShare: 100}, degradedPenalty},
		"both":            {amounts{device.GPUPercent: 30, device.RDMAShare: 50}, degradedPenalty},
		"what is missing": {amounts{device.NVIDIAGPU: 4}, 0},
	} {
		r := &place.Request{UID: "new", Devices: asks(t, tc.asks)}
		if _, cost := taken(values, v.Devices(), r, l.gpusOf("n", v)); cost != tc.cost {
			t.Errorf("%s: costs %d, want %d", name, cost, tc.cost)
		}
	}
}

// P11: scores are from 0 to 100 and in the order of the values; a pod with devices has one best node, which does not
// depend on the order of the nodes; a pod without has all that are best.
// A pod without devices avoids GPUs that are not allocated: among nodes that lose nothing, and not before a node that
// loses.
func TestPodsWithoutDevicesAvoidIdleGPUs(t *testing.T) {
	t.Parallel()
	p := &Plugin{avoids: true}
	cs := framework.NewCycleState()
	cs.Write(stateKey, &scoring{})
	list := fwk.NodeScoreList{
		{Name: "no GPUs", Score: withIdle(0, (&gpus{}).idle())},
		{Name: "all allocated", Score: withIdle(0, (&gpus{free: []int64{0, 0}}).idle())},
		{Name: "half allocated", Score: withIdle(0, (&gpus{free: []int64{1000, 0}}).idle())},
		{Name: "none allocated", Score: withIdle(0, (&gpus{free: []int64{1000, 1000}}).idle())},
		{Name: "too many allocated", Score: withIdle(0, (&gpus{free: []int64{-500, 0}}).idle())},
		{Name: "loses, all allocated", Score: withIdle(-1_000_000, 0)},
		{Name: "loses the most", Score: withIdle(unfit, 100)},
	}
	if status := p.NormalizeScore(t.Context(), cs, nil, list); !status.IsSuccess() {
		t.Fatal(status)
	}
	want := []int64{100, 100, 95, 90, 100, 98, 0}
	for i, n := range list {
		if n.Score != want[i] {
			t.Errorf("%s: score %d, want %d", n.Name, n.Score, want[i])
		}
	}
}

func TestNormalizedScores(t *testing.T) {
	t.Parallel()
	p := &Plugin{}
	rapid.Check(t, func(rt *rapid.T) {
		value := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64())
		var list fwk.NodeScoreList
		for i, v := range rapid.SliceOfN(value, 1, 12).Draw(rt, "values") {
			list = append(list, fwk.NodeScore{Name: fmt.Sprintf("n%02d", i), Score: v})
		}
		list = rapid.Permutation(list).Draw(rt, "order")
		s := &scoring{}
		if rapid.Bool().Draw(rt, "devices") {
			s.devices = &device.Request{}
		}
		cs := framework.NewCycleState()
		cs.Write(stateKey, s)
		got := slices.Clone(list)
		if status := p.NormalizeScore(t.Context(), cs, nil, got); !status.IsSuccess() {
			rt.Fatal(status)
		}
		best := slices.MinFunc(list, func(a, b fwk.NodeScore) int {
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Name, b.Name))
		})
		for i, score := range got {
			switch {
			case score.Score < 0 || score.Score > 100:
				rt.Errorf("score %d", score.Score)
			case s.devices != nil && (score.Score == 100) != (score.Name == best.Name):
				rt.Errorf("%v: score %d of node %s, the best is %s", list, score.Score, score.Name, best.Name)
			case s.devices == nil && (score.Score == 100) != (list[i].Score == best.Score):
				rt.Errorf("%v: score %d of node %s", list, score.Score, score.Name)
			}
			for j, other := range got {
				if list[i].Score < list[j].Score && score.Score > other.Score {
					rt.Errorf("%v: %s before %s", list, score.Name, other.Name)
				}
			}
		}
	})
}

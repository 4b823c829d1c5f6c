package place_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
)

// TestMissingDevicesComeBeforeATopologyPolicy: a looser policy or a pod that ends would not give the node devices; a
// request that no machine can take is reported all the same.
func TestMissingDevicesComeBeforeATopologyPolicy(t *testing.T) {
	t.Parallel()
	for code, want := range map[why.Code]bool{
		why.TopologyPolicy: true, why.TopologyMismatch: true, why.TopologyUndecided: true, why.InsufficientCPU: true,
		why.InsufficientExclusiveCPU: true,
		why.None:                     false, why.SMTAlignment: false, why.CPURequestNotInteger: false,
		why.InvalidTopology: false,
	} {
		if got := place.YieldsToDevices(why.Reason{Code: code}); got != want {
			t.Errorf("%v yields to missing devices: %t, want %t", code, got, want)
		}
	}
}

// TestNoRefusalHidesAnother: what refuses a pod without its devices, and what refuses its devices alone, is among the
// refusals of the pod, of which that of Fits is the first.
func TestNoRefusalHidesAnother(t *testing.T) {
	t.Parallel()
	m := worked(t)
	amounts := []map[string]int64{
		{"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 3}, {"koordinator.sh/gpu": 50}, {"koordinator.sh/gpu": 400},
	}
	hidden := 0
	rapid.Check(t, func(rt *rapid.T) {
		facts := ledger.Facts{
			Machine: m, OwnDevices: rapid.Bool().Draw(rt, "devices of Tenon"),
			Topology: rapid.SampledFrom([]hint.Policy{hint.None, hint.SingleNUMANode}).Draw(rt, "policy"),
		}
		if rapid.Bool().Draw(rt, "has devices") {
			facts.Devices = cards(rt, m, []int{0, 1})
		}
		v := ledger.New(facts, holding(0, 60)).View()
		r := binding(rapid.IntRange(1, 9).Draw(rt, "CPUs"), gpus(rt, rapid.SampledFrom(amounts).Draw(rt, "devices")))
		r.Required = rapid.SampledFrom([]place.BindWish{place.NoWish, place.WantFullPCPUs}).Draw(rt, "bind policy")
		bare := *r
		bare.Devices = nil
		devices := place.Request{Class: qos.LS, Role: qos.SharedPool, Devices: r.Devices}
		got, first := place.Refusals(v, r), place.Fits(v, r)
		if first.OK() != (len(got) == 0) || !first.OK() && got[0] != first {
			rt.Fatalf("got %+v, Fits refuses with %+v", got, first)
		}
		for _, want := range []why.Reason{place.Fits(v, &bare), place.Fits(v, &devices)} {
			if !want.OK() && !slices.ContainsFunc(got, func(r why.Reason) bool { return r.Code == want.Code }) {
				rt.Fatalf("got %+v, want %v too", got, want.Code)
			}
		}
		if len(got) > 1 {
			hidden++
		}
	})
	if hidden == 0 {
		t.Error("no pod was refused for two reasons")
	}
}

// TestAPodIsAlsoRefusedAsItIsWithoutItsDevices: the devices need two NUMA nodes, and let the CPUs use both. Without
// them the policy Restricted wants the CPUs on one, and none has them all.
func TestAPodIsAlsoRefusedAsItIsWithoutItsDevices(t *testing.T) {
	t.Parallel()
	m := worked(t)
	facts := ledger.Facts{Machine: m, Devices: cards(t, m, []int{0, 0, 1, 1}), OwnDevices: true}
	busy := held("0-2,4-6,8-10,12-14,16-18,20-22,24-26,28-30") // each NUMA node has two CPUs left
	v := ledger.New(facts, busy, holding(0, 10)).View()
	var got []why.Code
	r := binding(4, policy(hint.Restricted), gpus(t, map[string]int64{device.NVIDIAGPU: 4}))
	for _, reason := range place.Refusals(v, r) {
		got = append(got, reason.Code)
	}
	if want := []why.Code{why.InsufficientDevices, why.TopologyPolicy}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

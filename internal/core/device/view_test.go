package device_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/why"
)

// TestRebuiltIsLive is P1, P2, P4 and P10 for random pods that come, change and go, and devices that fail, vanish and
// return.
func TestRebuiltIsLive(t *testing.T) {
	t.Parallel()
	placed, failed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t, 5, 3)
		inv := inventory(t, &s.spec)
		full := inv
		v := device.NewView(inv, slices.Values([]*device.Holding(nil)))
		pods := map[string]*device.Holding{}
		for step := range 12 {
			uid := strconv.Itoa(s.rng.IntN(6))
			switch s.rng.IntN(5) {
			case 0:
				delete(pods, uid)
				gone := v.Without(uid)
				if again := gone.Without(uid); again != gone {
					t.Fatal("removed twice is not removed once")
				}
				v = gone
			case 1:
				if inv = full; s.rng.IntN(2) == 0 {
					lost := s.spec
					lost.Devices = slices.Clone(lost.Devices)
					i := s.rng.IntN(len(lost.Devices))
					if lost.Devices[i].Healthy = false; s.rng.IntN(2) == 0 {
						lost.Devices = slices.Delete(lost.Devices, i, i+1)
					}
					inv = inventory(t, &lost)
					failed++
				}
				before := v
				if v = v.On(inv); inv == full && !v.On(inv).Equal(device.NewView(full, before.Holdings())) {
					t.Fatal("recovery does not restore the account")
				}
			default:
				_, r := drawRequest(t, s.rng, dpu())
				others := v.Without(uid)
				c, reason := others.Choose(r, nil)
				if !reason.OK() || len(c.Grants) == 0 {
					continue
				}
				for _, g := range c.Grants {
					if g.Amount[device.Slots] != 0 {
						t.Fatalf("step %d: a grant writes %d slots, which follow from containers", step,
							g.Amount[device.Slots])
					}
				}
				h := &device.Holding{UID: uid, Grants: c.Grants}
				if refused := v.Admits(h); !refused.OK() {
					t.Fatalf("step %d: chosen and not admitted: %+v", step, refused)
				}
				next := others.With(h)
				if !v.With(h).Equal(next) {
					t.Fatal("replaced is not removed and added")
				}
				if back := next.Without(uid); !back.Equal(others) {
					t.Fatal("added and removed is not as before")
				}
				second := &device.Holding{UID: "other", Grants: c.Grants}
				if next.Admits(second).OK() && !shared(c.Grants) {
					t.Fatalf("step %d: devices are admitted twice: %+v", step, c.Grants)
				}
				pods[uid], v = h, next
				placed++
			}
			checkAccount(t, v, pods)
			rebuilt := device.NewView(inv, maps.Values(pods))
			if !v.Equal(rebuilt) {
				t.Fatalf("step %d: live %v, rebuilt %v", step, slices.Collect(v.Devices()),
					slices.Collect(rebuilt.Devices()))
			}
		}
	})
	if placed < cases || failed < cases/5 {
		t.Errorf("only %d pods placed, %d devices failed", placed, failed)
	}
}

// shared reports whether another pod may have room beside each grant.
func shared(grants []device.Grant) bool {
	for _, g := range grants {
		if g.Amount[device.Cores] > 50 || g.Amount[device.Share] > 50 || len(g.VFs) > 0 {
			return false
		}
	}
	return true
}

// checkAccount recomputes every device from the pods.
func checkAccount(t *rapid.T, v *device.View, pods map[string]*device.Holding) {
	for d := range v.Devices() {
		var used device.Vector
		holders := 0
		for _, h := range pods {
			for _, g := range h.Grants {
				if g.Type != d.Type || g.ID != d.ID {
					continue
				}
				holders++
				used[device.Cores] += g.Amount[device.Cores]
				used[device.Share] += g.Amount[device.Share]
				if d.Type == device.GPU {
					used[device.Slots] += int64(len(g.Containers))
				}
				if d.Total[device.Bytes] == 100 {
					used[device.Bytes] += g.Ratio // its memory is not known
				} else {
					used[device.Bytes] += g.Amount[device.Bytes]
				}
			}
		}
		if d.Used != used || d.Holders != holders || !d.Used.Within(&d.Total) {
			t.Fatalf("device %s: used %v of %v by %d, want %v by %d", d.ID, d.Used, d.Total, d.Holders, used, holders)
		}
		for dim := range d.Free {
			want := d.Total[dim] - used[dim]
			if !d.Healthy {
				want = 0
			}
			if d.Free[dim] != want {
				t.Fatalf("device %s: free %v beside %v of %v, healthy %t", d.ID, d.Free, used, d.Total, d.Healthy)
			}
		}
	}
}

// TestASliceOfAGPU: MIG devices are devices of their own, and their parent is not given.
func TestASliceOfAGPU(t *testing.T) {
	t.Parallel()
	slice := device.Vector{device.Cores: 14, device.Bytes: 5 * gib}
	spec := device.Spec{Devices: []device.Device{
		{Type: device.GPU, ID: "GPU-0", Healthy: true},
		{Type: device.GPU, ID: "MIG-a", Healthy: true, Profile: "1g.5gb", Parent: "GPU-0", Total: slice},
		{Type: device.GPU, ID: "MIG-b", Healthy: true, Profile: "1g.5gb", Parent: "GPU-0", Total: slice},
	}}
	v := device.NewView(inventory(t, &spec), slices.Values([]*device.Holding(nil)))
	r, _ := device.NewRequest(pod(asks{"nvidia.com/mig-1g.5gb": 2}), nil)
	c, reason := v.Choose(r, nil)
	if !reason.OK() || len(c.Grants) != 2 || c.Grants[0].ID != "MIG-a" || c.Grants[0].Amount[device.Cores] != 14 {
		t.Fatalf("slices: %+v %+v", c.Grants, reason)
	}
	for _, a := range []asks{{device.NVIDIAGPU: 1}, {device.GPUPercent: 10}, {"nvidia.com/mig-2g.10gb": 1}} {
		r, _ = device.NewRequest(pod(a), nil)
		if c, reason = v.Choose(r, nil); reason.Code != why.DeviceMissing {
			t.Errorf("%v gets %+v, %+v", a, c.Grants, reason)
		}
	}
}

// TestTheRestOfADeviceOfUnknownMemory: it has a ratio, and no bytes, since they would be percent.
func TestTheRestOfADeviceOfUnknownMemory(t *testing.T) {
	t.Parallel()
	spec := device.Spec{Devices: []device.Device{
		{Type: device.GPU, ID: "GPU-0", Healthy: true},
		{Type: device.GPU, ID: "GPU-1", Minor: 1, Healthy: true, Total: device.Vector{device.Bytes: 80 * gib}},
	}}
	rest := empty(t, spec).Rest([]device.Type{device.GPU})
	want := []device.Grant{
		{Type: device.GPU, ID: "GPU-0", Ratio: 100, Amount: device.Vector{device.Cores: 100}},
		{
			Type: device.GPU, ID: "GPU-1", Minor: 1, Ratio: 100,
			Amount: device.Vector{device.Cores: 100, device.Bytes: 80 * gib},
		},
	}
	if !slices.EqualFunc(rest, want, device.Grant.Equal) {
		t.Errorf("the rest is %+v, want %+v", rest, want)
	}
}

func TestHoldingsAreEqualByPodAndGrants(t *testing.T) {
	t.Parallel()
	held := func(uid, id string) *device.Holding {
		return &device.Holding{UID: uid, Grants: []device.Grant{{Type: device.GPU, ID: id}}}
	}
	if h := held("p", "a"); !h.Equal(held("p", "a")) || h.Equal(held("q", "a")) || h.Equal(held("p", "b")) {
		t.Error("holdings are not compared by their pods and grants")
	}
}

func TestWhatAPodLeavesOfGrants(t *testing.T) {
	t.Parallel()
	gpu := func(id string, cores, bytes, ratio int64, vfs ...string) device.Grant {
		return device.Grant{
			Type: device.GPU, ID: id, Ratio: ratio, VFs: vfs,
			Amount: device.Vector{device.Cores: cores, device.Bytes: bytes},
		}
	}
	list := func(grants ...device.Grant) []device.Grant { return grants }
	named := gpu("b", 30, 30, 30)
	named.Containers = []device.ContainerGrant{{Name: "main"}}
	for name, c := range map[string]struct{ list, taken, want []device.Grant }{
		"nothing is taken": {list(named), nil, list(named)},
		"a part is":        {list(named), list(gpu("b", 10, 20, 20)), list(gpu("b", 20, 10, 10))},
		"all is":           {list(named, gpu("c", 1, 1, 1)), list(gpu("b", 30, 30, 30)), list(gpu("c", 1, 1, 1))},
		"twice": {
			list(gpu("b", 30, 30, 30)), list(gpu("b", 10, 10, 10), gpu("b", 10, 10, 10)), list(gpu("b", 10, 10, 10)),
		},
		"a ratio beyond it": {list(gpu("b", 30, 30, 10)), list(gpu("b", 10, 10, 20)), list(gpu("b", 20, 20, 0))},
		"a ratio alone":     {list(gpu("b", 0, 0, 30)), list(gpu("b", 0, 0, 10)), list(gpu("b", 0, 0, 20))},
		"a virtual function": {
			list(gpu("b", 0, 0, 0, "v0", "v1")), list(gpu("b", 0, 0, 0, "v0")), list(gpu("b", 0, 0, 0, "v1")),
		},
		"of another device": {list(named), list(gpu("c", 30, 30, 30)), list(named)},
		"of another type":   {list(named), list(device.Grant{Type: device.RDMA, ID: "b"}), list(named)},
		"of another minor":  {list(named), list(device.Grant{Type: device.GPU, ID: "b", Minor: 1}), list(named)},
	} {
		if got := device.Minus(c.list, c.taken); !slices.EqualFunc(got, c.want, device.Grant.Equal) {
			t.Errorf("%s: left are %+v, want %+v", name, got, c.want)
		}
	}
}

package device_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
)

func TestPCIAddressesOfDrivers(t *testing.T) {
	t.Parallel()
	want, _ := device.ParseBus("0000:0a:1f.7")
	for _, text := range []string{"0000:0a:1f.7", "00000000:0A:1F.7", "0a:1f.7", "0:a:1f.7"} {
		if got, ok := device.ParseBus(text); !ok || got != want {
			t.Errorf("%q is %#x, %t, want %#x", text, got, ok, want)
		}
	}
	if other, ok := device.ParseBus("0001:0a:1f.7"); !ok || other == want {
		t.Errorf("another domain is %#x, %t", other, ok)
	}
	for _, text := range []string{
		"", ":", "0a", "0a:1f", "0000:0a:1f", "0000:0a:20.0", "0000:0a:1f.8", "0000:100:1f.0", "100000000:0a:1f.0",
		"0000:0a:1f.7.0", "x:0a:1f.0", "0000:0a:1f.-1", "0:0000:0a:1f.7", " 0a:1f.7",
	} {
		if got, ok := device.ParseBus(text); ok {
			t.Errorf("%q is %#x, want an error", text, got)
		}
	}
}

// claimed is what a claim has: the devices of a driver.
func claimed(uid string, list ...device.Hardware) *device.Holding {
	h := &device.Holding{UID: uid}
	for i := range list {
		list[i].Name = fmt.Sprint("d/p/", uid, i)
		h.Grants = append(h.Grants, device.Grant{Hardware: &list[i]})
	}
	return h
}

// TestDevicesOfAClaimAreItsCards: which cards a device of a ResourceSlice is, on the node of moved.
func TestDevicesOfAClaimAreItsCards(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h    device.Hardware
		want []string
	}{
		"UUID": {device.Hardware{UUID: "GPU-a"}, []string{"GPU-a"}},
		"the UUID goes before the address": {
			device.Hardware{UUID: "GPU-a", Bus: "0000:10:00.0"}, []string{"GPU-a"},
		},
		"an address where the UUID is not known": {
			device.Hardware{UUID: "x", Bus: "00000000:10:00.0"}, []string{"GPU-b"},
		},
		"an address in another case": {device.Hardware{Bus: "09:00.0"}, []string{"0000:09:00.0"}},
		"a virtual function":         {device.Hardware{Bus: "0000:09:00.2"}, []string{"0000:09:00.0"}},
		"a GPU includes its slices": {
			device.Hardware{UUID: "GPU-a-7"}, []string{"GPU-a-7", "MIG-1", "MIG-2"},
		},
		"a slice": {
			device.Hardware{UUID: "MIG-1", Parent: "GPU-a-7", Bus: "0000:30:00.0"}, []string{"MIG-1"},
		},
		"a slice that the node does not list": {
			device.Hardware{UUID: "MIG-9", Parent: "GPU-a-7"}, []string{"GPU-a-7", "MIG-1", "MIG-2"},
		},
		"a slice of a GPU that is not in slices": {
			device.Hardware{UUID: "MIG-9", Parent: "GPU-a"}, []string{"GPU-a"},
		},
		"the address of a GPU includes its slices": {
			device.Hardware{Bus: "0000:30:00.0"}, []string{"GPU-a-7", "MIG-1", "MIG-2"},
		},
		"neither":        {device.Hardware{UUID: "GPU-z", Bus: "0000:99:00.0"}, nil},
		"not an address": {device.Hardware{Bus: "1f3b"}, nil},
		"nothing":        {device.Hardware{}, nil},
		"no replica: GPU-a-3 is a name of plugins": {device.Hardware{UUID: "GPU-a-3"}, nil},
	} {
		inv := inventory(t, moved())
		var got []string
		for _, g := range inv.Whole(&c.h) {
			got = append(got, g.ID)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		v := device.NewView(inv, slices.Values([]*device.Holding{claimed("c", c.h)}))
		for d := range v.Devices() {
			has := slices.Contains(c.want, d.ID)
			if has != (d.Holders == 1) || has && (d.Free != (device.Vector{}) || d.Used != d.Total) {
				t.Errorf("%s: %s has %d holders, %v of %v used", name, d.ID, d.Holders, d.Used, d.Total)
			}
		}
		if !v.Without("c").Equal(device.NewView(inv, slices.Values([]*device.Holding(nil)))) {
			t.Errorf("%s: something is left of a claim that is gone", name)
		}
	}
	var none *device.Inventory
	if got := none.Whole(&device.Hardware{UUID: "GPU-a"}); got != nil {
		t.Errorf("a node without devices has %v", got)
	}
}

// TestPodsThatHaveTheCardsOfADriver: who has a part of a device of a ResourceSlice outside of claims.
func TestPodsThatHaveTheCardsOfADriver(t *testing.T) {
	t.Parallel()
	grant := func(uid, id string) *device.Holding {
		return &device.Holding{UID: uid, Grants: []device.Grant{{
			Type: device.GPU, ID: id, Amount: device.Vector{device.Cores: 10}, Ratio: 10,
		}}}
	}
	inv := inventory(t, moved(device.Foreign{UID: "plugin", Names: []string{"1f3b"}}))
	v := device.NewView(inv, slices.Values([]*device.Holding{
		grant("share", "GPU-a"), grant("other share", "GPU-a"), grant("slice", "MIG-1"),
		claimed("claim", device.Hardware{UUID: "GPU-b"}),
	}))
	for name, c := range map[string]struct {
		h     device.Hardware
		pods  []string
		found bool
	}{
		"shares":                       {device.Hardware{UUID: "GPU-a"}, []string{"other share", "share"}, true},
		"a device plugin":              {device.Hardware{Bus: "0000:18:00.0"}, []string{"plugin"}, true},
		"a claim alone":                {device.Hardware{UUID: "GPU-b"}, nil, true},
		"the GPU of a slice":           {device.Hardware{UUID: "GPU-a-7"}, []string{"slice"}, true},
		"the slice":                    {device.Hardware{UUID: "MIG-1", Parent: "GPU-a-7"}, []string{"slice"}, true},
		"another slice":                {device.Hardware{UUID: "MIG-2", Parent: "GPU-a-7"}, nil, true},
		"a card that no inventory has": {device.Hardware{UUID: "GPU-z"}, nil, false},
	} {
		pods, found := v.Users().Of(&c.h)
		if diff := cmp.Diff(c.pods, pods); diff != "" || found != c.found {
			t.Errorf("%s: found %t (-want +got):\n%s", name, found, diff)
		}
	}
	whole := v.With(grant("whole", "GPU-a-7")) // before it was sliced
	if pods, _ := whole.Users().Of(&device.Hardware{UUID: "MIG-2"}); !slices.Equal(pods, []string{"whole"}) {
		t.Errorf("the GPU of a slice has %v", pods)
	}
}

// TestNoCardIsGivenToAClaimAndToAPod in any order of events: claims whose card no pod has, pods by the choice of the
// account, programs that give out whole cards. The oracle knows which piece of silicon each name means.
func TestNoCardIsGivenToAClaimAndToAPod(t *testing.T) {
	t.Parallel()
	refused, met := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "node"), 0))
		s := &device.Spec{}
		silicon := map[string][2]int{} // by id: the card, and its part; 0 is all of it
		var drivers []device.Hardware
		for card := range 1 + rng.IntN(4) {
			d := device.Device{Type: device.GPU, ID: fmt.Sprint("GPU-", card), Healthy: true, Minor: int32(card)}
			d.Bus, d.NUMAID, d.Total[device.Bytes] = fmt.Sprintf("0000:%02x:00.0", card), -1, 100
			s.Devices = append(s.Devices, d)
			silicon[d.ID] = [2]int{card, 0}
			forms := [...]device.Hardware{{UUID: d.ID}, {Bus: "00000000" + d.Bus[4:]}, {UUID: d.ID, Bus: "ff:00.0"}}
			drivers = append(drivers, forms[rng.IntN(len(forms))])
			for part := 1; part <= rng.IntN(3); part++ {
				m := d
				m.ID, m.Parent, m.Profile = fmt.Sprintf("MIG-%d-%d", card, part), d.ID, "1g"
				s.Devices = append(s.Devices, m)
				silicon[m.ID] = [2]int{card, part}
				drivers = append(drivers, device.Hardware{UUID: m.ID, Parent: d.ID, Bus: m.Bus})
			}
		}
		v := device.NewView(inventory(t, s), slices.Values([]*device.Holding(nil)))
		claims, pods := map[string][2]int{}, map[string][][2]int{}
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			uid := fmt.Sprint(step)
			switch rng.IntN(5) {
			case 0, 1:
				h := drivers[rng.IntN(len(drivers))]
				at := silicon[h.UUID]
				if h.UUID == "" {
					at = silicon["GPU-"+fmt.Sprint(busNumber(h.Bus))]
				}
				if users, _ := v.Users().Of(&h); len(users) > 0 {
					refused++
					break
				}
				claims[uid] = at
				v = v.With(claimed(uid, h))
			case 2, 3:
				_, r := drawRequest(t, rng, nil)
				c, reason := v.Choose(r, nil)
				if !reason.OK() || len(c.Grants) == 0 {
					break
				}
				for _, g := range c.Grants {
					pods[uid] = append(pods[uid], silicon[g.ID])
				}
				v = v.With(&device.Holding{UID: uid, Grants: c.Grants})
			default:
				for gone := range claims {
					delete(claims, gone)
					v = v.Without(gone)
					break
				}
			}
			for c, at := range claims {
				for p, all := range pods {
					for _, part := range all {
						if met++; part[0] == at[0] && (part[1] == at[1] || part[1] == 0 || at[1] == 0) {
							t.Fatalf("step %d: claim %s and pod %s have card %d, parts %d and %d", step, c, p, at[0],
								at[1], part[1])
						}
					}
				}
			}
			if !v.Equal(device.NewView(v.Inventory, v.Holdings())) {
				t.Fatalf("step %d: rebuilt is not live", step)
			}
		}
	})
	if (refused == 0 || met == 0) && !testing.Short() {
		t.Errorf("%d claims were refused, %d pairs compared: the generator is too narrow", refused, met)
	}
}

// busNumber is the number of the bus of a PCI address.
func busNumber(text string) uint64 {
	address, _ := device.ParseBus(text)
	return address >> 8 & 0xff
}

// TestSiteOfADevice: where a card is connected, and how close two cards are.
func TestSiteOfADevice(t *testing.T) {
	t.Parallel()
	at := func(kind device.Type, id string, bridges ...string) device.Device {
		return device.Device{Type: kind, ID: id, Healthy: true, Location: device.Location{
			NUMAID: -1, PCIe: "root-" + id, Bridges: bridges,
		}}
	}
	inventory, err := device.NewInventory(&device.Spec{
		Devices: []device.Device{
			at(device.GPU, "a", "r", "s"), at(device.GPU, "b", "r", "s"), at(device.GPU, "c"),
			at(device.RDMA, "n", "r", "s"),
		},
		Links: []device.Link{{Type: device.GPU, A: "a", B: "c", Lanes: 4}},
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for _, id := range []string{"a", "b", "c", "n"} {
		i, node, root, ok := inventory.Site(&device.Hardware{UUID: id})
		if !ok || node != 0 || root != "root-"+id {
			t.Errorf("%s: got NUMA node %v, root complex %q, %t", id, node, root, ok)
		}
		index[id] = i
	}
	for pair, want := range map[string]int64{
		"ab": device.SameSwitch, "ba": device.SameSwitch, "ac": 4*100 + device.Remote, "an": device.SameSwitch,
		"cn": device.Remote,
	} {
		if got := inventory.Closeness(index[pair[:1]], index[pair[1:]]); got != want {
			t.Errorf("%s: got %d, want %d", pair, got, want)
		}
	}
	if _, _, _, ok := inventory.Site(&device.Hardware{UUID: "x"}); ok {
		t.Error("a card that no one lists has a place")
	}
	if _, _, _, ok := (*device.Inventory)(nil).Site(&device.Hardware{UUID: "a"}); ok {
		t.Error("a node without a Device has cards")
	}
}

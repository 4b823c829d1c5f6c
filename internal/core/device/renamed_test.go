package device_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
)

// named returns a Spec of the same server with other IDs.
func named(s *device.Spec, name func(id string) string) (device.Spec, []string) {
	out, ids := *s, []string{}
	out.Devices, out.Links, out.Switches = slices.Clone(s.Devices), slices.Clone(s.Links), slices.Clone(s.Switches)
	for i := range out.Devices {
		out.Devices[i].ID = name(out.Devices[i].ID)
		ids = append(ids, out.Devices[i].ID)
	}
	for i := range out.Links {
		out.Links[i].A, out.Links[i].B = name(out.Links[i].A), name(out.Links[i].B)
	}
	for i, sw := range out.Switches {
		lanes := map[string]int64{}
		for id, n := range sw.Lanes {
			lanes[name(id)] = n
		}
		out.Switches[i].Lanes = lanes
	}
	return out, ids
}

// TestRenamedIsBuiltWhole: the inventory of an equal server with other IDs is the one that its own Spec makes, and
// gives the same devices to the same pods.
func TestRenamedIsBuiltWhole(t *testing.T) {
	t.Parallel()
	shared, apart := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t, 6, 3)
		if s.rng.IntN(2) == 0 {
			s.spec.Switches = nil // which may name a device that is not there
		}
		inv := inventory(t, &s.spec)
		order := s.rng.Perm(100)
		spec, ids := named(&s.spec, func(id string) string {
			kind, number, found := strings.Cut(id, "-")
			n, err := strconv.Atoi(number)
			if !found || err != nil {
				return id
			}
			return fmt.Sprintf("%s-%02d", kind, order[n])
		})
		want := inventory(t, &spec)
		got := inv.Renamed(ids)
		if got == nil {
			apart++
			return
		}
		shared++
		if !got.Equal(want) || !want.Equal(got) {
			t.Fatalf("%+v with IDs %v is not the inventory of %+v", s.spec, ids, spec)
		}
		if got.Equal(inv) != slices.Equal(ids, idsOf(&s.spec)) {
			t.Fatalf("IDs %v: equal to the server with %v: %t", ids, idsOf(&s.spec), got.Equal(inv))
		}
		none := slices.Values([]*device.Holding(nil))
		a, b := device.NewView(got, none), device.NewView(want, none)
		for i := range 4 {
			_, r := drawRequest(t, s.rng, dpu())
			c, refused := a.Choose(r, nil)
			d, reason := b.Choose(r, nil)
			if diff := cmp.Diff(d.Grants, c.Grants); diff != "" || refused != reason {
				t.Fatalf("%v, want %v: %s", refused, reason, diff)
			}
			if h := (&device.Holding{UID: fmt.Sprint(i), Grants: c.Grants}); refused.OK() {
				a, b = a.With(h), b.With(h)
			}
			if diff := cmp.Diff(slices.Collect(b.Devices()), slices.Collect(a.Devices())); diff != "" || !a.Equal(b) {
				t.Fatalf("accounts differ: %s", diff)
			}
			for _, id := range ids {
				if got.Resolve(id) != want.Resolve(id) {
					t.Fatalf("%s: resolves to %q, want %q", id, got.Resolve(id), want.Resolve(id))
				}
			}
		}
		if !device.NewView(inv, none).Equal(device.NewView(inventory(t, &s.spec), none)) {
			t.Fatal("an account changes those of equal servers")
		}
	})
	if shared < cases/4 || apart < cases/20 {
		t.Errorf("shared %d, apart %d of %d cases", shared, apart, cases)
	}
}

func idsOf(s *device.Spec) (ids []string) {
	for i := range s.Devices {
		ids = append(ids, s.Devices[i].ID)
	}
	return ids
}

func TestServersThatDifferInMoreThanIDsAreBuilt(t *testing.T) {
	t.Parallel()
	gpu := func(id, bus string) device.Device {
		return device.Device{Type: device.GPU, ID: id, Healthy: true, Location: device.Location{NUMAID: -1, Bus: bus}}
	}
	plain := []device.Device{gpu("a", "1"), gpu("b", "2")}
	slice := gpu("c", "2")
	slice.Parent = "a"
	tests := map[string]struct {
		spec   device.Spec
		ids    []string
		shared bool
	}{
		"other IDs":            {device.Spec{Devices: plain}, []string{"z", "y"}, true},
		"an ID is there twice": {device.Spec{Devices: plain}, []string{"z", "z"}, false},
		"an ID is missing":     {device.Spec{Devices: plain}, []string{"z", ""}, false},
		"fewer devices":        {device.Spec{Devices: plain}, []string{"z"}, false},
		"IDs order devices of one bus": {
			device.Spec{Devices: []device.Device{gpu("a", "1"), gpu("b", "1")}}, []string{"z", "y"}, false,
		},
		"slices": {device.Spec{Devices: []device.Device{gpu("a", "1"), slice}}, []string{"z", "y"}, false},
		"another program gives devices": {
			device.Spec{Devices: plain, Foreign: []device.Foreign{{UID: "p", Names: []string{"a"}}}},
			[]string{"z", "y"},
			false,
		},
	}
	for name, test := range tests {
		if got := inventory(t, &test.spec).Renamed(test.ids); (got != nil) != test.shared {
			t.Errorf("%s: shared %t, want %t", name, got != nil, test.shared)
		}
	}
	inv := inventory(t, &device.Spec{Devices: plain})
	if inv.Renamed([]string{"a", "b"}) != inv {
		t.Error("the same IDs make another inventory")
	}
}

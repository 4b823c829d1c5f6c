package view_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

func TestIsolationIsThatOfTheWeakestPart(t *testing.T) {
	t.Parallel()
	gpu := func(id string, minor int32) device.Device {
		return device.Device{
			Type: device.GPU, ID: id, Minor: minor, Healthy: true, Total: device.Vector{device.Bytes: 16 << 30},
			Vendor: device.NVIDIAGPU,
		}
	}
	slice := gpu("MIG-0", 2)
	slice.Profile, slice.Parent = "1g.10gb", "sliced"
	devices := []device.Device{gpu("card", 0), gpu("sliced", 1), slice}
	inventory, err := device.NewInventory(&device.Spec{Devices: devices}, nil, nil)
	testkit.Check(t, err)
	grant := func(id string, percent int64) device.Grant {
		return device.Grant{Type: device.GPU, ID: id, Amount: device.Vector{device.Cores: percent}, Ratio: percent}
	}
	limited := &view.Isolation{Strength: "cooperative", By: "HAMi-core"}
	whole, part, mig := grant("card", 100), grant("card", 40), grant("MIG-0", 100)
	for name, test := range map[string]struct {
		grants  []device.Grant
		library string
		want    *view.Isolation
	}{
		"a whole card is not shared": {[]device.Grant{whole}, "HAMi-core", nil},
		"a part that nothing limits": {[]device.Grant{part}, "", &view.Isolation{Strength: "none"}},
		"a part with the library":    {[]device.Grant{part}, "HAMi-core", limited},
		"a MIG device":               {[]device.Grant{mig}, "", &view.Isolation{Strength: "hard"}},
		"a MIG device beside a part": {[]device.Grant{mig, part}, "", &view.Isolation{Strength: "none"}},
		"a share of an adapter":      {[]device.Grant{{Type: device.RDMA, ID: "nic"}}, "", nil},
	} {
		l := ledger.New(ledger.Facts{Devices: inventory, OwnDevices: true, MinSharedCPUs: -1})
		l.Put(ledger.Entry{UID: "p", Namespace: "d", Name: "p", Devices: test.grants})
		s := view.Subject{Head: view.Pod{UID: "p"}, Node: "n", Isolation: test.library}
		if diff := cmp.Diff(test.want, view.PlacementOf(s, l.View()).Isolation); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

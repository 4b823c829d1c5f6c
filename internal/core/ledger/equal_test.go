package ledger_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/vary"
)

// TestFactsDifferByEveryField: a field that Equal forgets is a change that no view takes notice of.
func TestFactsDifferByEveryField(t *testing.T) {
	t.Parallel()
	m, other := worked(t), grid.Machine{Cores: 2}.Build(t)
	node, reason := kubelet.NewNode(m, kubelet.Config{}, kubelet.Inventory{})
	if !reason.OK() {
		t.Fatal(reason)
	}
	another, reason := kubelet.NewNode(other, kubelet.Config{}, kubelet.Inventory{})
	if !reason.OK() {
		t.Fatal(reason)
	}
	facts := ledger.Facts{Machine: m, Model: kubelet.Facts{Node: node}, Devices: gpus(t, m, "a")}
	kinds := vary.Whole(other, another, cpuset.Of(5), gpus(t, m, "b"))
	vary.Fill(&facts, kinds)
	same := facts
	if !facts.Equal(&same) {
		t.Fatal("facts differ from themselves")
	}
	vary.Each(&facts, kinds, func(field string) {
		if facts.Equal(&same) || same.Equal(&facts) {
			t.Errorf("Facts%s makes no difference", field)
		}
	})
}

// gpus is an inventory of GPUs with the given IDs.
func gpus(t interface{ Fatal(...any) }, m *topo.Machine, ids ...string) *device.Inventory {
	var spec device.Spec
	for _, id := range ids {
		spec.Devices = append(spec.Devices, device.Device{Type: device.GPU, ID: id, Healthy: true})
	}
	inventory, err := device.NewInventory(&spec, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	return inventory
}

// TestEntriesDifferByEveryField: of the roles that give a field a meaning, at least one must differ.
func TestEntriesDifferByEveryField(t *testing.T) {
	t.Parallel()
	missed := map[string]int{}
	roles := []qos.Role{qos.Exclusive, qos.SharedPool}
	for _, role := range roles {
		entry := ledger.Entry{CPUList: "1-2"}
		kinds := vary.Whole(device.Vector{device.Cores: 7})
		vary.Fill(&entry, kinds)
		entry.Role = role
		same := entry
		if !entry.Equal(same) {
			t.Fatalf("role %v: an entry differs from itself", role)
		}
		vary.Each(&entry, kinds, func(field string) {
			if entry.Equal(same) || same.Equal(entry) {
				missed[field]++
			}
		})
	}
	delete(missed, ".Unallocated") // means nothing beside devices
	if (ledger.Entry{Unallocated: true}).Equal(ledger.Entry{}) {
		t.Error("Entry.Unallocated makes no difference without devices")
	}
	for field, times := range missed {
		if times == len(roles) {
			t.Errorf("Entry%s makes no difference", field)
		}
	}
}

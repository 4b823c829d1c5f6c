package tenancy_test

import (
	"reflect"
	"testing"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// TestOnlyCertainPredictionsAreModelErrors: what a device plugin chooses otherwise does not mean that the model is
// wrong.
func TestOnlyCertainPredictionsAreModelErrors(t *testing.T) {
	t.Parallel()
	machine := grid.Machine{Sockets: 2, Cores: 4}.Build(t)
	model, _ := kubelet.ModelOf("v1.36.3")
	node, reason := kubelet.NewNode(machine, kubelet.Config{
		Model: model, CPU: kubelet.CPU{Static: true}, Topology: kubelet.Topology{Policy: hint.BestEffort},
	}, kubelet.Inventory{Devices: []kubelet.DeviceSet{{Resource: "d", Nodes: 1, Registered: 1, Healthy: 1}}})
	if !reason.OK() {
		t.Fatalf("NewNode: %+v", reason)
	}
	p := &kubelet.Pod{UID: "p", Guaranteed: true, Containers: []kubelet.Container{{Name: "c", CPUs: 1}}}
	for name, tt := range map[string]struct {
		held       kubelet.Held
		reported   string
		modelError bool
	}{
		"as predicted":      {kubelet.Held{CPUList: "1"}, "1", false},
		"other CPUs":        {kubelet.Held{CPUList: "1"}, "2", true},
		"by chance":         {kubelet.Held{CPUList: "1", Uncertain: true}, "2", false},
		"devices were open": {kubelet.Held{CPUList: "1", Devices: openDevices()}, "2", false},
	} {
		tt.held.Container = "c"
		actual := kubelet.PlacementOf(node.Machine(), []kubelet.Held{{Container: "c", CPUList: tt.reported}})
		tenants := []*tenancy.Tenant{tenancy.NewTenant(node.Machine(), "p", "ns", "p", &tenancy.Guest{
			Pod: p, Prediction: &tenancy.Prediction{Gen: 1, Held: []kubelet.Held{tt.held}},
		})}
		facts := &kubelet.Facts{Node: node, Config: node.Config(), Gen: 2}
		got := tenancy.New(tenancy.Report{
			Facts: facts, Given: []tenancy.Grant{{UID: "p", Placement: actual}},
		}, tenants).Confirmations(nil)
		if len(got) != 1 || got[0].ModelError != tt.modelError {
			t.Errorf("%s: confirmations %+v, want one with model error %v", name, got, tt.modelError)
		}
		back := kubelet.HeldOf(node.Machine(), kubelet.PlacementOf(node.Machine(), []kubelet.Held{tt.held}))
		if !reflect.DeepEqual(back[0], tt.held) {
			t.Errorf("%s: %+v is read as %+v", name, tt.held, back[0])
		}
	}
}

func openDevices() []kubelet.HeldDevices {
	return []kubelet.HeldDevices{{Resource: "d", NUMAIDs: []int{0}, Count: 1, Open: true}}
}

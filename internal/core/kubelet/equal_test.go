package kubelet_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/testkit/vary"
)

// TestNodesDifferByEverySetting: nodes that are equal share one value, so a setting that Equal forgets is answered
// wrongly.
func TestNodesDifferByEverySetting(t *testing.T) {
	t.Parallel()
	type settings struct {
		Config  kubelet.Config
		Devices []kubelet.DeviceSet
		Bytes   []int64
	}
	s := settings{Config: static(hint.BestEffort), Bytes: []int64{7, 8}}
	s.Config.Topology.MaxNodes = 8
	s.Config.CPU.Reserved = cpuset.Set{}
	s.Devices = []kubelet.DeviceSet{{Resource: gpu, Nodes: 1, Registered: 3, Healthy: 2}}
	m := even(t, 2, 8)
	build := func() *kubelet.Node {
		inv := kubelet.Inventory{Zones: make([]map[string]int64, 2), Devices: s.Devices}
		for i, bytes := range s.Bytes {
			inv.Zones[i] = map[string]int64{"memory": bytes}
		}
		return node(t, m, s.Config, inv)
	}
	base := build()
	if !base.Equal(build()) {
		t.Fatal("a node differs from itself")
	}
	vary.Each(&s, vary.Whole(cpuset.Of(5)), func(field string) {
		if changed := build(); base.Equal(changed) || changed.Equal(base) {
			t.Errorf("%s makes no difference", field)
		}
	})
}

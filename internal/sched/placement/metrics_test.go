package placement

import (
	"testing"

	basemetrics "k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/testkit"
)

// A pod that gets one GPU of each of two pairs misses the lanes between two of one pair.
func TestLinkRegretIsObserved(t *testing.T) {
	t.Parallel()
	spec := device.Spec{Links: []device.Link{
		{Type: device.GPU, A: "0", B: "1", Lanes: 4},
		{Type: device.GPU, A: "2", B: "3", Lanes: 4},
	}}
	for _, id := range []string{"0", "1", "2", "3"} {
		spec.Devices = append(spec.Devices, device.Device{
			Type: device.GPU, ID: id, Healthy: true, Model: "M", Location: device.Location{NUMAID: -1},
		})
	}
	inventory, err := device.NewInventory(&spec, nil, nil)
	testkit.Check(t, err)
	registry := basemetrics.NewKubeRegistry()
	m, account := NewMetrics(registry.MustRegister), device.NewView(inventory, func(func(*device.Holding) bool) {})
	m.granted(nil, nil)
	for _, ids := range [][]string{{"0"}, {"0", "1"}, {"1", "2"}} {
		var grants []device.Grant
		for _, id := range ids {
			grants = append(grants, device.Grant{Type: device.GPU, ID: id})
		}
		m.granted(account, grants)
	}
	families, err := registry.Gather()
	testkit.Check(t, err)
	for _, f := range families {
		if f.GetName() != "tenon_device_link_regret" {
			continue
		}
		if len(f.GetMetric()) != 1 {
			t.Fatalf("%d series, want those of two GPUs", len(f.GetMetric()))
		}
		labels := map[string]string{}
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		h := f.GetMetric()[0].GetHistogram()
		if labels["model"] != "M" || labels["k"] != "2" || h.GetSampleCount() != 2 || h.GetSampleSum() != 400 {
			t.Errorf("%v: %d pods miss %v, want 2 and 400", labels, h.GetSampleCount(), h.GetSampleSum())
		}
		return
	}
	t.Error("the metric is not there")
}

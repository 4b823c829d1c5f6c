package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/testkit"
)

// The gauge has one line for each device that is listed, and the counter one for each change between working and not.
func TestTheHealthOfDevicesIsShown(t *testing.T) {
	t.Parallel()
	m, registry := NewMetrics(), metrics.NewKubeRegistry()
	m.Register(registry.MustRegister, registry.CustomMustRegister)
	one := func(health bool, conditions ...metav1.Condition) []devicev1alpha1.DeviceInfo {
		return []devicev1alpha1.DeviceInfo{
			{Type: "gpu", ID: "a", Health: health, Conditions: conditions}, {Type: "rdma", ID: "a", Health: true},
		}
	}
	condition := func(name string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Reason: reason}
	}
	lost := one(false, condition("Healthy", "False", "Xid79"), condition("Degraded", "True", "Old"))
	var was []devicev1alpha1.DeviceInfo
	for _, step := range []struct {
		devices []devicev1alpha1.DeviceInfo
		want    []string
	}{
		{one(true), []string{"health n gpu a  1", "health n rdma a  1"}},
		{one(true, condition("Degraded", "True", "ResetNeeded")), []string{
			"health n gpu a ResetNeeded 1", "health n rdma a  1",
		}},
		{lost, []string{
			"health n gpu a Xid79 0", "health n rdma a  1", "health_transitions_total n gpu a Xid79 1",
		}},
		{lost, []string{
			"health n gpu a Xid79 0", "health n rdma a  1", "health_transitions_total n gpu a Xid79 1",
		}},
		{one(true), []string{
			"health n gpu a  1", "health n rdma a  1", "health_transitions_total n gpu a  1",
			"health_transitions_total n gpu a Xid79 1",
		}},
		{nil, []string{"health_transitions_total n gpu a  1", "health_transitions_total n gpu a Xid79 1"}},
	} {
		m.ShowDevices("n", was, step.devices)
		was = step.devices
		families, err := registry.Gather()
		testkit.Check(t, err)
		var got []string
		for _, f := range families {
			for _, s := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range s.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if name, ok := strings.CutPrefix(f.GetName(), "tenon_device_"); ok {
					got = append(got, fmt.Sprint(name, " ", labels["node"], " ", labels["type"], " ", labels["id"], " ",
						labels["reason"], " ", s.GetGauge().GetValue()+s.GetCounter().GetValue()))
				}
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestVersionAndConfigurationAreShown(t *testing.T) {
	t.Parallel()
	registry := metrics.NewKubeRegistry()
	RegisterInfo(registry.MustRegister, "v1.2.3", "00ff")
	families, err := registry.Gather()
	testkit.Check(t, err)
	got := map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if m.GetGauge().GetValue() == 1 {
					got[f.GetName()+" "+l.GetName()] = l.GetValue()
				}
			}
		}
	}
	want := map[string]string{
		"tenon_build_info component": "tenon-agent", "tenon_build_info version": "v1.2.3",
		"tenon_config_info component": "tenon-agent", "tenon_config_info hash": "00ff",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestThrottledTimeIsCountedByClass(t *testing.T) {
	t.Parallel()
	m, registry := NewMetrics(), metrics.NewKubeRegistry()
	m.Register(registry.MustRegister, registry.CustomMustRegister)
	m.AddThrottled("n", qos.LS, 1500*time.Millisecond)
	m.AddThrottled("n", qos.LS, time.Second)
	m.AddThrottled("n", qos.None, time.Second)
	families, err := registry.Gather()
	testkit.Check(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if f.GetName() == "tenon_pods_throttled_seconds_total" {
				got[s.GetLabel()[0].GetValue()] = s.GetCounter().GetValue() // class is the first label, by name
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{"LS": 2.5, "none": 1}, got); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
}

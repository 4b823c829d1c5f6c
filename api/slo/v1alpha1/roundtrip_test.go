package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestObjectsOfKoordinatorKeepTheirFields reads and writes objects with every kind of field, also with those that this
// project has no type for.
func TestObjectsOfKoordinatorKeepTheirFields(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		into runtime.Object
		text string
	}{
		"NodeMetric": {&v1alpha1.NodeMetric{}, `{
			"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "n0"},
			"spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60,
				"nodeAggregatePolicy": {"durations": ["5m0s"]}, "nodeMemoryCollectPolicy": "usageWithoutPageCache"}},
			"status": {"updateTime": "2026-01-02T03:04:05Z",
				"nodeMetric": {
					"nodeUsage": {"resources": {"cpu": "1500m", "memory": "2Gi"},
						"devices": [{"type": "gpu", "id": "a", "minor": 0, "health": false, "resources": {"x": "1"}}]},
					"aggregatedNodeUsages": [{"usage": {"p95": {"resources": {"cpu": "2"}}}, "duration": "5m0s"}],
					"systemUsage": {"resources": {"cpu": "100m"}}},
				"podsMetric": [{"name": "a", "namespace": "b", "podUsage": {"resources": {"cpu": "10m"}},
					"priority": "koord-prod", "qos": "LS", "extensions": {"any": {"thing": [1]}}}],
				"hostApplicationMetric": [{"name": "h", "usage": {"resources": {"cpu": "1"}}, "qos": "LS"}],
				"prodReclaimableMetric": {"resource": {"resources": {"cpu": "3"}}}}}`},
		"NodeSLO": {&v1alpha1.NodeSLO{}, `{
			"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": "n0"},
			"spec": {
				"resourceUsedThresholdWithBE": {"enable": false, "cpuSuppressThresholdPercent": 0,
					"cpuSuppressPolicy": "cfsQuota", "allocatableEvictPriorityThreshold": 5999},
				"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"},
					"beClass": {"memoryQOS": {"enable": true, "wmarkRatio": 95, "pageCacheReclaimSync": 1},
						"resctrlQOS": {"mbaPercent": 30}}},
				"cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 1000},
				"systemStrategy": {"schedFeatures": {"ID_ABSOLUTE_EXPEL": true}, "totalNetworkBandwidth": "0"},
				"extensions": {"x": {"y": 1}},
				"hostApplications": [{"name": "h", "cgroupPath": {"base": "Kubepods", "relativePath": "a/b"},
					"strategy": {}}]},
			"status": {}}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := map[string]any{}
			testkit.Check(t, json.Unmarshal([]byte(tt.text), &want))
			converter := runtime.DefaultUnstructuredConverter
			testkit.Check(t, converter.FromUnstructured(want, tt.into))
			fields, err := converter.ToUnstructured(tt.into.DeepCopyObject())
			testkit.Check(t, err)
			written, err := json.Marshal(fields)
			testkit.Check(t, err)
			got := map[string]any{}
			testkit.Check(t, json.Unmarshal(written, &got))
			unstructured.RemoveNestedField(got, "metadata", "creationTimestamp")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("after reading and writing (-want +got):\n%s", diff)
			}
		})
	}
}

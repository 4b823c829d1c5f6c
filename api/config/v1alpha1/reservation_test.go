package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
)

func TestDecodeReservation(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]time.Duration{
		"": 24 * time.Hour, "gcDurationSeconds: 60": time.Minute, "disableGarbageCollection: true": 0,
		"kind: ReservationArgs\nenablePreemption: true\nresyncIntervalSeconds: 5": 24 * time.Hour,
		"gcDurationSeconds: 3155760000":                                           3155760000 * time.Second,
	} {
		a, err := v1alpha1.Decode[v1alpha1.ReservationArgs](&runtime.Unknown{Raw: []byte(raw)})
		if err != nil || a.KeepEnded() != want {
			t.Errorf("%q: kept for %v, %v; want %v", raw, a.KeepEnded(), err, want)
		}
	}
	for raw, want := range map[string]string{
		"preAllocationConfig: {clusterLabelKey: a}": "preAllocationConfig.clusterLabelKey: unknown field",
		"gcDurationSeconds: 0":                      "gcDurationSeconds: Invalid value: 0: must be more than 0",
		"gcDurationSeconds: 3155760001":             "at most 3155760000 (100 years)",
		"gcDuration: 5":                             "gcDuration: unknown field",
		"kind: DeviceShareArgs":                     `kind: Unsupported value: "DeviceShareArgs"`,
	} {
		if _, err := v1alpha1.Decode[v1alpha1.ReservationArgs](&runtime.Unknown{Raw: []byte(raw)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", raw, err, want)
		}
	}
}

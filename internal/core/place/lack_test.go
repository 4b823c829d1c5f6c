package place_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
)

// TestMissingDevicesComeBeforeATopologyPolicy: a looser policy or a pod that ends would not give the node devices; a
// request that no machine can take is reported all the same.
func TestMissingDevicesComeBeforeATopologyPolicy(t *testing.T) {
	t.Parallel()
	for code, want := range map[why.Code]bool{
		why.TopologyPolicy: true, why.TopologyMismatch: true, why.TopologyUndecided: true, why.InsufficientCPU: true,
		why.InsufficientExclusiveCPU: true,
		why.None:                     false, why.SMTAlignment: false, why.CPURequestNotInteger: false,
		why.InvalidTopology: false,
	} {
		if got := place.YieldsToDevices(why.Reason{Code: code}); got != want {
			t.Errorf("%v yields to missing devices: %t, want %t", code, got, want)
		}
	}
}

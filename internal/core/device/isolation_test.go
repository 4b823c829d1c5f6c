package device_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/device"
)

func TestTheIsolationOfANodesGPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hasShares bool
		provider  string
		want      device.Strength
	}{
		"MIG devices alone":                {false, "", device.Hard},
		"MIG devices alone, and a library": {false, "HAMi-core", device.Hard},
		"shares by a library":              {true, "HAMi-core", device.Cooperative},
		"shares without a library":         {true, "", device.NotIsolated},
	} {
		if got := device.StrengthOfNode(c.hasShares, c.provider); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

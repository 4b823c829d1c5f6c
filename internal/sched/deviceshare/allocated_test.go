package deviceshare

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/device"
)

func TestLeastAndMostAllocated(t *testing.T) {
	t.Parallel()
	nic := device.Device{Type: device.RDMA, ID: "0000:01:00.0", Healthy: true}
	sick := made(4, "A")
	sick[3].Healthy = false
	ratio, both := map[string]int64{device.GPURatio: 1}, map[string]int64{device.GPUCore: 3, device.GPURatio: 1}
	for name, tc := range map[string]struct {
		devices     []device.Device
		weights     map[string]int64
		ask         amounts
		least, most int64
	}{
		// Of 4 GPUs one is half in use.
		"one of four":            {made(4, "A"), ratio, amounts{device.GPUPercent: 100}, 62, 37},
		"all that are asked for": {made(4, "A"), ratio, amounts{device.NVIDIAGPU: 3}, 12, 87},
		"a share":                {made(4, "A"), ratio, amounts{device.GPUPercent: 10}, 85, 15},
		"memory in bytes":        {made(4, "A"), ratio, amounts{device.GPUMemory: memory / 2}, 75, 25},
		// (3·87 + 75)/4 and (3·12 + 25)/4
		"weights":                  {made(4, "A"), both, amounts{device.GPURatio: 50}, 84, 15},
		"more than is free":        {made(4, "A"), ratio, amounts{device.NVIDIAGPU: 4}, 0, 100},
		"an unhealthy one is gone": {sick, ratio, amounts{device.GPUPercent: 50}, 50, 50},
		"types are added up": {
			append(made(4, "A"), nic),
			map[string]int64{device.GPURatio: 1, device.RDMAShare: 1},
			amounts{device.GPUPercent: 50, device.RDMAShare: 20},
			75 + 80, 25 + 20,
		},
		"a resource without weight": {append(made(4, "A"), nic), ratio, amounts{device.RDMAShare: 20}, 0, 0},
	} {
		v := viewOf(t, true, tc.devices, holds("other", 50, "GPU-0"))
		for _, p := range []*Plugin{{weights: tc.weights}, {weights: tc.weights, most: true}} {
			want := tc.least
			if p.most {
				want = tc.most
			}
			if got := p.allocated(v.Devices(), asks(t, tc.ask)); got != want {
				t.Errorf("%s: score %d, want %d (most: %t)", name, got, want, p.most)
			}
		}
	}
	if got := (&Plugin{weights: ratio}).allocated(nil, asks(t, amounts{device.GPUPercent: 50})); got != 0 {
		t.Errorf("a node without devices has score %d", got)
	}
}

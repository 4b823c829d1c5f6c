package place

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/device"
)

// TestTextsOfDeviceReasons: users search for Koordinator's texts; only what ending pods can help is resolvable.
func TestTextsOfDeviceReasons(t *testing.T) {
	t.Parallel()
	gpu := func(c device.ReasonCode) device.Reason {
		return device.Reason{Code: c, Type: device.GPU, Model: "H100"}
	}
	nic := func(c device.ReasonCode) device.Reason { return device.Reason{Code: c, Type: device.RDMA} }
	for text, test := range map[string]struct {
		reason     device.Reason
		resolvable bool
	}{
		"node(s) missing Device":                        {gpu(device.MissingDevice), false},
		"Insufficient gpu devices":                      {gpu(device.InsufficientDevices), true},
		"Insufficient Partitioned GPU Devices":          {gpu(device.InsufficientPartitions), true},
		"Insufficient Topology Scoped GPU Devices":      {gpu(device.InsufficientInScope), true},
		"Insufficient NUMA Scoped Devices":              {gpu(device.InsufficientOnNUMA), true},
		"Insufficient rdma VirtualFunctions":            {nic(device.InsufficientVFs), false},
		"node(s) Device Joint-Allocate rules violation": {gpu(device.JointViolation), true},
		"node(s) missing GPU Partition Table":           {gpu(device.MissingPartitions), false},
		"node(s) Unsupported number of GPU requests":    {gpu(device.UnsupportedCount), false},
		"no matched GPU shared resource template":       {gpu(device.NoTemplate), false},
		`model "H100" does not support GPU Share`:       {gpu(device.ShareUnsupported), false},
	} {
		if r := deviceReason(test.reason); r.Text() != text || r.Code.Resolvable() != test.resolvable {
			t.Errorf("got %q, resolvable %t, want %q, %t", r.Text(), r.Code.Resolvable(), text, test.resolvable)
		}
	}
	if r := deviceReason(device.Reason{}); !r.OK() {
		t.Errorf("no reason becomes %+v", r)
	}
}

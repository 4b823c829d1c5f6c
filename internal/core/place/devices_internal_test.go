package place

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/why"
)

// TestTextsOfDeviceReasons: users search for Koordinator's texts; only what ending pods can help is resolvable.
func TestTextsOfDeviceReasons(t *testing.T) {
	t.Parallel()
	gpu := func(c why.Code) device.Reason {
		return device.Reason{Code: c, Type: device.GPU, Model: "H100"}
	}
	nic := func(c why.Code) device.Reason { return device.Reason{Code: c, Type: device.RDMA} }
	for text, test := range map[string]struct {
		reason     device.Reason
		resolvable bool
	}{
		"node(s) missing Device":                        {gpu(why.DeviceMissing), false},
		"Insufficient gpu devices":                      {gpu(why.InsufficientDevices), true},
		"Insufficient Partitioned GPU Devices":          {gpu(why.InsufficientPartitions), true},
		"Insufficient Topology Scoped GPU Devices":      {gpu(why.InsufficientScopedDevices), true},
		"Insufficient NUMA Scoped Devices":              {gpu(why.InsufficientNUMADevices), true},
		"Insufficient rdma VirtualFunctions":            {nic(why.VirtualFunctionsMissing), false},
		"node(s) Device Joint-Allocate rules violation": {gpu(why.DeviceJointAllocation), true},
		"node(s) missing GPU Partition Table":           {gpu(why.PartitionTableMissing), false},
		"node(s) Unsupported number of GPU requests":    {gpu(why.PartitionCountUnsupported), false},
		"no matched GPU shared resource template: the node's devices have H100": {
			gpu(why.SharedTemplateMissing), false,
		},
		"no matched GPU shared resource template": {nic(why.SharedTemplateMissing), false},
		`model "H100" does not support GPU Share`: {gpu(why.DeviceShareUnsupported), false},
	} {
		if r := deviceReason(test.reason); r.Text() != text || r.Code.Resolvable() != test.resolvable {
			t.Errorf("got %q, resolvable %t, want %q, %t", r.Text(), r.Code.Resolvable(), text, test.resolvable)
		}
	}
	if r := deviceReason(device.Reason{}); !r.OK() {
		t.Errorf("no reason becomes %+v", r)
	}
}

// TestDevicesThatAreFreeButNotTogetherHaveNoNumbers: as many are free as the pod asks for, so that no smaller number is
// what any node has.
func TestDevicesThatAreFreeButNotTogetherHaveNoNumbers(t *testing.T) {
	t.Parallel()
	for free, want := range map[int64]string{1: "1/4", 3: "3/4", 4: "", 6: ""} {
		r := deviceReason(device.Reason{Code: why.InsufficientDevices, Type: device.GPU, Asked: 4, Free: free})
		if got := r.HaveNeed(); got != want {
			t.Errorf("%d free: got %q, want %q", free, got, want)
		}
	}
}

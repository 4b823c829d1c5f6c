package device_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/device"
)

// What is demanded of devices that a pod does not request changes nothing: a whole GPU by its vendor's name is left to
// a kubelet all the same.
func TestDemandsCountOnlyForRequestedDevices(t *testing.T) {
	t.Parallel()
	p := pod(asks{device.NVIDIAGPU: 1})
	p.Hints = map[device.Type]device.Hint{device.RDMA: {Scope: device.PCIeLevel}, device.FPGA: {}}
	r, faults := device.NewRequest(p, nil)
	if len(faults) > 0 || len(r.Hints) > 0 || !r.LeftToKubelet() {
		t.Fatalf("request %+v, faults %v: want no hint, left to the kubelet", r, faults)
	}
	want := []string{
		"fpga: has no effect: no container requests such devices",
		"rdma: has no effect: no container requests such devices",
	}
	var got []string
	for _, w := range r.Warnings {
		got = append(got, w.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}

	p = pod(asks{device.RDMAShare: 50})
	p.Partition = &device.PartitionWish{Restricted: true}
	if r, _ = device.NewRequest(p, nil); r.Partition != nil {
		t.Errorf("a pod without GPUs demands a partition of them: %+v", r)
	}
	p = pod(asks{device.GPUPercent: 50})
	p.Hints = map[device.Type]device.Hint{device.GPU: {Scope: device.DeviceLevel}}
	p.Partition = &device.PartitionWish{}
	if r, _ = device.NewRequest(p, nil); r.Hints[device.GPU].Scope != device.DeviceLevel || r.Partition == nil {
		t.Errorf("demands of a pod with GPUs are lost: %+v", r)
	}
}

func TestNamesOfDevicesAreKnownInEverySpelling(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"koordinator.sh/gpu", "kubernetes.io/gpu-core", "koordinator.sh/gpu.shared", "kubernetes.io/fpga",
		"nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "huawei.com/npu-dvpp",
	} {
		if !device.IsDevice(name) {
			t.Errorf("%s asks for no device", name)
		}
	}
	for _, name := range []string{
		"cpu", "memory", "hugepages-2Mi", "example.com/gpu", "kubernetes.io/gpu.shared", "koordinator.sh/batch-cpu",
		"nvidia.com/mig-", "nvidia.com/gpu.shared",
	} {
		if device.IsDevice(name) {
			t.Errorf("%s asks for a device", name)
		}
	}
	p := pod(asks{"nvidia.com/mig-1g.5gb": 2}, asks{"dcu.com/gpu": 1}, asks{device.GPUPercent: 50})
	r, _ := device.NewRequest(p, nil)
	var names []string
	for _, p := range r.Parts {
		names = append(names, p.Need.VendorName())
	}
	if diff := cmp.Diff([]string{"nvidia.com/mig-1g.5gb", "dcu.com/gpu", ""}, names); diff != "" {
		t.Errorf("names that a vendor's device plugin serves (-want +got):\n%s", diff)
	}
}

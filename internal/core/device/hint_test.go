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

// TestASelectorMatchesByEachOfItsOperators as Kubernetes' label selectors do.
func TestASelectorMatchesByEachOfItsOperators(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"color": "red", "speed": "200"}
	for name, c := range map[string]struct {
		key      string
		operator device.Operator
		values   []string
		want     bool
	}{
		"in":                          {"color", device.In, []string{"blue", "red"}, true},
		"in others":                   {"color", device.In, []string{"blue"}, false},
		"in, of a label that is away": {"shape", device.In, []string{""}, false},
		"not in":                      {"color", device.NotIn, []string{"red"}, false},
		"not in others":               {"color", device.NotIn, []string{"blue"}, true},
		"not in, of one that is away": {"shape", device.NotIn, []string{""}, true},
		"exists":                      {"color", device.Exists, nil, true},
		"exists, and is away":         {"shape", device.Exists, nil, false},
		"does not exist":              {"color", device.DoesNotExist, nil, false},
		"does not exist, and is away": {"shape", device.DoesNotExist, nil, true},
		"greater":                     {"speed", device.Gt, []string{"199"}, true},
		"not greater":                 {"speed", device.Gt, []string{"200"}, false},
		"less":                        {"speed", device.Lt, []string{"201"}, true},
		"not less":                    {"speed", device.Lt, []string{"200"}, false},
		"greater, of a word":          {"color", device.Gt, []string{"1"}, false},
		"greater than a word":         {"speed", device.Gt, []string{"slow"}, false},
		"greater than two numbers":    {"speed", device.Gt, []string{"1", "2"}, false},
	} {
		s := device.Selector{{Key: c.key, Operator: c.operator, Values: c.values}}
		if got := s.Matches(labels); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
		other := device.Term{Key: "color", Operator: device.In, Values: []string{"blue"}}
		if append(s, other).Matches(labels) {
			t.Errorf("%s: it matches with a term that does not hold", name)
		}
	}
	if !(device.Selector{}).Matches(nil) {
		t.Error("no term does not match")
	}
}

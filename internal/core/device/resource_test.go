package device_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
)

func TestAmountsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]device.Type{device.GPU, device.RDMA, device.FPGA, "dpu"}).Draw(t, "type")
		amount := rapid.Int64Range(0, 1<<40)
		var v device.Vector
		var ratio int64
		if kind == device.GPU {
			v = device.Vector{
				device.Cores: amount.Draw(t, "cores"), device.Bytes: amount.Draw(t, "bytes"),
				device.NPUCores: amount.Draw(t, "NPU cores"), device.NPUCPUs: amount.Draw(t, "NPU CPUs"),
				device.NPUDVPPs: amount.Draw(t, "NPU DVPPs"),
			}
			ratio = rapid.Int64Range(0, 100).Draw(t, "ratio")
		} else {
			v[device.Share] = amount.Draw(t, "share")
		}
		written := v.Amounts(kind, ratio)
		if got, gotRatio := device.Measure(kind, written); got != v || gotRatio != ratio {
			t.Fatalf("%v of %s: got %v with ratio %d, want %v with %d", written, kind, got, gotRatio, v, ratio)
		}
	})
}

// TestOnlyAmountsWithANameAreWritten: zeros and dimensions that are no resource of a type are left out.
func TestOnlyAmountsWithANameAreWritten(t *testing.T) {
	t.Parallel()
	gpu := device.Vector{device.Cores: 30, device.Slots: 2, device.Share: 7}
	want := map[string]int64{device.GPUCore: 30, device.GPURatio: 40}
	if diff := cmp.Diff(want, gpu.Amounts(device.GPU, 40)); diff != "" {
		t.Errorf("a GPU (-want +got):\n%s", diff)
	}
	nic := device.Vector{device.Cores: 30}
	if got := nic.Amounts(device.RDMA, 0); len(got) != 0 {
		t.Errorf("a NIC without a share: %v", got)
	}
}

func TestAmountsOfOtherSpellings(t *testing.T) {
	t.Parallel()
	const most = int64(1<<63-1) / 10_000
	for name, c := range map[string]struct {
		kind  device.Type
		asked asks
		want  device.Vector
		ratio int64
	}{
		"percent of cores and memory": {device.GPU, asks{device.GPUPercent: 30}, device.Vector{device.Cores: 30}, 30},
		"cores beside percent": {
			device.GPU,
			asks{device.GPUPercent: 30, device.GPUCore: 40},
			device.Vector{device.Cores: 40},
			30,
		},
		"the only resource of another type": {
			"dpu", asks{"example.com/dpu": 4}, device.Vector{device.Share: 4}, 0,
		},
		"one of several resources": {
			device.RDMA, asks{device.RDMAShare: 5, "example.com/bandwidth": 7}, device.Vector{device.Share: 5}, 0,
		},
		"more than any device has": {
			device.GPU, asks{device.GPUMemory: 1<<63 - 1}, device.Vector{device.Bytes: most}, 0,
		},
		"an empty name": {device.GPU, asks{"": 9}, device.Vector{}, 0},
	} {
		if v, ratio := device.Measure(c.kind, c.asked); v != c.want || ratio != c.ratio {
			t.Errorf("%s: got %v, %d; want %v, %d", name, v, ratio, c.want, c.ratio)
		}
	}
}

// TestContainersOfAGrantAreSortedByName: a pod is read back from its annotation, which has no other order. A pod that
// is read as the sum of its containers does not say which of them has what.
func TestContainersOfAGrantAreSortedByName(t *testing.T) {
	t.Parallel()
	p := pod(asks{device.GPUPercent: 30}, asks{device.GPUPercent: 60})
	p.Containers[0].Name, p.Containers[1].Name = "z", "a"
	c, _ := empty(t, hgx()).Choose(read(t, p), nil)
	if len(c.Grants) != 1 || len(c.Grants[0].Containers) != 2 || c.Grants[0].Containers[0].Name != "a" {
		t.Errorf("two containers: %+v", c.Grants)
	}
	p = pod(asks{device.GPUCore: 50}, asks{device.GPURatio: 50})
	if c, _ = empty(t, hgx()).Choose(read(t, p), nil); len(c.Grants) != 1 || c.Grants[0].Containers != nil {
		t.Errorf("the sum of containers: %+v", c.Grants)
	}
}

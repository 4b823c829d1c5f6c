package device_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// BenchmarkChoose answers whole requests: GPUs alone, with a NIC beside each, and where the rest of the pod accepts one
// NUMA node only in the end. Servers with more than 16 GPUs have each at a port of its own, so that no two are
// interchangeable.
func BenchmarkChoose(b *testing.B) {
	v := empty(b, hgx())
	wide := hgx()
	for i := range 8 { // a second server in the same case: 16 GPUs and NICs on one switch
		for _, d := range hgx().Devices[2*i : 2*i+2] {
			d.ID, d.Bus = "1"+d.ID, "1"+d.Bus
			wide.Devices = append(wide.Devices, d)
			wide.Switches[0].Lanes[d.ID] = 18
		}
	}
	w := empty(b, wide)
	flat := wide // all in one place: every set is as good as any other
	flat.Devices = slices.Clone(wide.Devices)
	for i := range flat.Devices {
		flat.Devices[i].PCIe, flat.Devices[i].Bridges, flat.Devices[i].NUMAID = "pci", nil, 0
	}
	f := empty(b, flat)
	many := func(n int) *device.View {
		var spec device.Spec
		for i := range n {
			id, root := fmt.Sprintf("%02d", i), fmt.Sprint("pci", i/4)
			spec.Devices = append(spec.Devices, device.Device{
				Type: device.GPU, ID: id, Healthy: true,
				Location: device.Location{NUMAID: 2 * i / n, Bus: id, PCIe: root, Bridges: []string{root, "port" + id}},
			})
		}
		return empty(b, spec)
	}
	twenty, full := many(20), many(64)
	for name, c := range map[string]struct {
		v    *device.View
		pod  device.Pod
		only topo.NodeSet
	}{
		"n=8/gpus=1":              {v, pod(asks{device.NVIDIAGPU: 1}), 3},
		"n=8/gpus=4":              {v, pod(asks{device.NVIDIAGPU: 4}), 3},
		"n=8/gpus=4/nics=4":       {v, pod(asks{device.NVIDIAGPU: 4, device.RDMAShare: 1}), 3},
		"n=8/share":               {v, pod(asks{device.GPUPercent: 30}), 3},
		"n=16/gpus=8":             {w, pod(asks{device.NVIDIAGPU: 8}), 3},
		"n=16/gpus=8/nics=8":      {w, pod(asks{device.NVIDIAGPU: 8, device.RDMAShare: 800}), 3},
		"n=16/gpus=8/nics=8/flat": {f, pod(asks{device.NVIDIAGPU: 8, device.RDMAShare: 800}), 3},
		"n=16/gpus=8/one node":    {w, pod(asks{device.NVIDIAGPU: 8, device.RDMAShare: 800}), 2},
		"n=20/gpus=4":             {twenty, pod(asks{device.NVIDIAGPU: 4}), 3},
		"n=20/gpus=8":             {twenty, pod(asks{device.NVIDIAGPU: 8}), 3},
		"n=64/gpus=1":             {full, pod(asks{device.NVIDIAGPU: 1}), 3},
		"n=64/gpus=8":             {full, pod(asks{device.NVIDIAGPU: 8}), 3},
	} {
		b.Run(name, func(b *testing.B) {
			if c.pod.Containers[0].Requests[device.RDMAShare] > 0 {
				c.pod.Joint = joined(device.SamePCIe, device.GPU, device.RDMA)
			}
			r := read(b, c.pod)
			o := device.Options{Accept: func(n topo.NodeSet) bool { return n.Within(c.only) }}
			b.ReportAllocs()
			for b.Loop() {
				if _, reason := c.v.Choose(r, &o); !reason.OK() {
					b.Fatal(reason)
				}
			}
		})
	}
}

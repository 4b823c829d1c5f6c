package amount

import (
	"maps"
	"math"
	"strings"

	"github.com/tenon-project/tenon/internal/core/device"
)

const (
	wholeGPU = 100 // percent
	// mostDevices is above every amount of a real machine, and hundreds of them do not overflow.
	mostDevices = math.MaxInt64 / 1000
)

// IsDevice reports whether a resource is a device that has other names.
func IsDevice(name string) bool {
	switch name = device.Canonical(name); name {
	case device.GPUPercent, device.GPUCore, device.GPURatio, device.GPUMemory, device.RDMAShare, device.FPGAShare:
		return true
	}
	return device.IsWholeGPU(name)
}

// Canonical returns the name that a deprecated spelling of a resource stands for, and every other name as it is.
func Canonical(name string) string {
	if kind, ok := strings.CutPrefix(name, "koordinator.sh/"); ok &&
		(strings.HasPrefix(kind, "batch-") || strings.HasPrefix(kind, "mid-")) {
		return "kubernetes.io/" + kind
	}
	return device.Canonical(name)
}

// Canonical returns amounts under canonical names, each the sum over its spellings; a itself where no name is
// deprecated.
func (a List) Canonical() List {
	for name := range a {
		if Canonical(name) == name {
			continue
		}
		out := make(List, len(a))
		for name, n := range a {
			out[Canonical(name)] = Plus(out[Canonical(name)], n)
		}
		return out
	}
	return a
}

// Asked adds to what a pod asks for what that is under the names that limit devices: a limit under one name must hold
// pods that use another. What cannot be known before the pod has its GPU counts as all of one: a share of a GPU
// under the name of whole ones (NVIDIA's, since a share names no vendor), and a share in bytes as a share in percent.
// The bytes of a share in percent, and of a whole GPU, count for none.
func (a List) Asked(names []string) List {
	return a.spelled(names, func(d devices) devices {
		shares := max(percentToWhole(d.core), percentToWhole(d.ratio), d.shared)
		if d.bytes > 0 {
			shares = max(shares, 1)
			if d.ratio == 0 {
				d.ratio = wholeGPU * shares
			}
		}
		d.percent = max(d.core, d.ratio) + wholeGPU*d.whole
		d.core, d.ratio = d.core+wholeGPU*d.whole, d.ratio+wholeGPU*d.whole
		d.nvidia = shares
		return d
	})
}

// Offered adds to what a node has what that is under the names that limit devices. What the node says itself
// counts; a part of a GPU does not count.
func (a List) Offered(names []string) List {
	return a.spelled(names, func(d devices) devices {
		if d.core == 0 && d.ratio == 0 {
			d.core, d.ratio = wholeGPU*d.whole, wholeGPU*d.whole
		}
		d.percent = min(d.core, d.ratio)
		if d.whole == 0 {
			d.nvidia = d.percent / wholeGPU
		}
		return d
	})
}

// devices are the devices of a pod or a node: what its names say, then what counts.
type devices struct {
	core, ratio, percent int64
	whole, shared        int64
	nvidia               int64 // whole ones that no vendor's name says
	bytes, rdma, fpga    int64
}

// spelled returns amounts in which devices are counted by these names alone. derive computes the other names from the
// ones that were written. Amounts without devices are returned as they are.
func (a List) spelled(names []string, derive func(devices) devices) List {
	if len(names) == 0 || !a.hasDevices() {
		return a
	}
	canonical := map[string]int64{}
	for name, n := range a {
		name = device.Canonical(name)
		canonical[name] = min(canonical[name]+min(max(n, 0), mostDevices), mostDevices)
	}
	d := devices{
		core:   canonical[device.GPUCore] + canonical[device.GPUPercent],
		ratio:  canonical[device.GPURatio] + canonical[device.GPUPercent],
		shared: canonical[device.GPUShared], bytes: canonical[device.GPUMemory],
		rdma: canonical[device.RDMAShare], fpga: canonical[device.FPGAShare],
	}
	amounts := map[string]int64{}
	for name, n := range canonical {
		if device.IsWholeGPU(name) {
			d.whole += n
			amounts[name] = n
		}
	}
	d = derive(d)
	amounts[device.GPUPercent], amounts[device.GPUCore], amounts[device.GPURatio] = d.percent, d.core, d.ratio
	amounts[device.GPUMemory], amounts[device.RDMAShare], amounts[device.FPGAShare] = d.bytes, d.rdma, d.fpga
	amounts[device.NVIDIAGPU] += d.nvidia
	out := maps.Clone(a)
	for _, name := range names {
		if n := max(a[name], amounts[device.Canonical(name)]); n > 0 {
			out[name] = n
		}
	}
	return out
}

// hasDevices reports whether one of the amounts is of devices.
func (a List) hasDevices() bool {
	for name := range a {
		if IsDevice(name) {
			return true
		}
	}
	return false
}

// percentToWhole returns how many whole GPUs a percentage touches.
func percentToWhole(percent int64) int64 { return (percent + wholeGPU - 1) / wholeGPU }

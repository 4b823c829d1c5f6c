package device

import (
	"slices"
	"strings"
)

// Type is the kind of a device, as its Device object spells it. Any word is a type; GPUs alone are treated by name.
type Type string

// Types with resource names of their own.
const (
	GPU  Type = "gpu"
	RDMA Type = "rdma"
	FPGA Type = "fpga"
)

// Resource names, in the canonical spelling. Those of Koordinator are also written with kubernetes.io/.
const (
	GPUPercent = "koordinator.sh/gpu"              // percent of cores and memory, 100 is one GPU
	GPUCore    = "koordinator.sh/gpu-core"         // percent
	GPUMemory  = "koordinator.sh/gpu-memory"       // bytes
	GPURatio   = "koordinator.sh/gpu-memory-ratio" // percent of the memory
	GPUShared  = "koordinator.sh/gpu.shared"       // GPUs that a share is spread over
	RDMAShare  = "koordinator.sh/rdma"             // percent
	FPGAShare  = "koordinator.sh/fpga"             // percent
	NVIDIAGPU  = "nvidia.com/gpu"                  // whole GPUs
	AMDGPU     = "amd.com/gpu"                     // whole GPUs
	DCUGPU     = "dcu.com/gpu"                     // whole GPUs
	NPUCore    = "huawei.com/npu-core"             // units of a template
	NPUCPU     = "huawei.com/npu-cpu"              // units of a template
	NPUDVPP    = "huawei.com/npu-dvpp"             // units of a template

	migPrefix = "nvidia.com/mig-" // whole slices of a GPU, by profile
)

// Canonical returns the name that another spelling of a device's resource stands for, and every other name as it is.
func Canonical(name string) string {
	if device, ok := strings.CutPrefix(name, "kubernetes.io/"); ok {
		switch canonical := "koordinator.sh/" + device; canonical {
		case GPUPercent, GPUCore, GPUMemory, GPURatio, RDMAShare, FPGAShare:
			return canonical
		}
	}
	return name
}

// Names returns the canonical names under which an amount of a resource is written: compute and memory for GPUPercent,
// else one.
func Names(name string) []string {
	if name = Canonical(name); name == GPUPercent {
		return []string{GPUCore, GPURatio}
	}
	return []string{name}
}

// IsWholeGPU reports whether a name counts whole GPUs of one vendor.
func IsWholeGPU(name string) bool { return name == NVIDIAGPU || name == AMDGPU || name == DCUGPU }

// isShareOfGPU reports whether a canonical name asks for GPUs by amount.
func isShareOfGPU(name string) bool {
	switch name {
	case GPUPercent, GPUCore, GPUMemory, GPURatio, GPUShared, NPUCore, NPUCPU, NPUDVPP:
		return true
	}
	return false
}

// migProfile returns the profile of a name of MIG devices; "" for other names.
func migProfile(name string) string {
	if profile, ok := strings.CutPrefix(name, migPrefix); ok {
		return profile
	}
	return ""
}

// Kind is how devices of a type other than GPUs are asked for: Unit of Resource is one device, 100 where it counts
// percent and 1 where it counts devices. Kinds other than RDMA and FPGA come from Device objects.
type Kind struct {
	Type     Type
	Resource string
	Unit     int64
}

// Kinds are the kinds by which requests are read. The zero value has RDMA and FPGA.
type Kinds []Kind

// Has reports whether a name, in any spelling, asks for devices.
func (k Kinds) Has(name string) bool {
	return strings.IndexByte(name, '/') > 0 && isDevice(Canonical(name), k)
}

// Types returns the types of the kinds.
func (k Kinds) Types() (types []string) {
	for _, kind := range k {
		types = append(types, string(kind.Type))
	}
	return slices.Compact(types)
}

// find returns the kind of a canonical name.
func (k Kinds) find(name string) (Kind, bool) {
	switch name {
	case RDMAShare:
		return Kind{RDMA, RDMAShare, whole}, true
	case FPGAShare:
		return Kind{FPGA, FPGAShare, whole}, true
	}
	for _, kind := range k {
		if kind.Resource == name && kind.Type != GPU && kind.Unit > 0 {
			return kind, true
		}
	}
	return Kind{}, false
}

package inject

import (
	"fmt"
	"strconv"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// The library that keeps a container to its share of a GPU by consent: https://github.com/Project-HAMi/HAMi-core.
const (
	hamiCore      = "HAMi-core"
	libraryFolder = "/usr/local/vgpu"
	lockFolder    = "/tmp/vgpulock"
)

// limit sets the limits of the container's share of its GPUs where the pod's label asks for them. They are cooperative:
// a program that does not load the library has none.
func (d *decision) limit() error {
	provider := d.c.Labels[annotation.GPUIsolationLabel]
	if provider == "" || d.Env == nil {
		return nil
	}
	if provider != hamiCore {
		return refuse(ErrMalformed, "label %s is %q: want %s", annotation.GPUIsolationLabel, provider, hamiCore)
	}
	gpus := 0
	for _, c := range d.cards {
		if c.Kind != host.NVIDIA {
			continue
		}
		bytes, ok := c.amounts[annotation.ResourceGPUMemory]
		if !ok || bytes.Value() < 1<<20 {
			return refuse(ErrMalformed, "annotation %s: gpu %s has no %s of 1Mi or more to limit the container to",
				annotation.DeviceAllocatedKey, c.ID, annotation.ResourceGPUMemory)
		}
		d.Env[fmt.Sprintf("CUDA_DEVICE_MEMORY_LIMIT_%d", gpus)] = fmt.Sprintf("%dm", bytes.Value()>>20)
		if core, ok := c.amounts[annotation.ResourceGPUCore]; ok && core.Value() > 0 {
			d.Env["CUDA_DEVICE_SM_LIMIT"] = strconv.FormatInt(core.Value(), 10) // equal for all GPUs of a container
		}
		gpus++
	}
	if gpus > 0 {
		d.Env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = "/tmp/vgpu.cache" // of the container's own file system
		d.Env["LD_PRELOAD"] = libraryFolder + "/libvgpu.so"
		d.Mounts = []Mount{{Path: libraryFolder, ReadOnly: true}, {Path: lockFolder}}
	}
	return nil
}

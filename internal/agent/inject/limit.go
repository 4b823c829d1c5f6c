package inject

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletfile"
)

// Where HAMi-core is, the library that keeps a container to its shares of GPUs by consent
// (https://github.com/Project-HAMi/HAMi-core), and the folder in which it wants a lock. Here that folder is of the
// container alone: a program cannot hold the lock of another pod's, and a new container finds no old cache.
const (
	libraryFolder = "/usr/local/vgpu"
	lockFolder    = "/tmp/vgpulock"
)

// MPSFolder is the folder of the machine in which the control daemon of NVIDIA's Multi-Process Service has its pipes
// (pipe) and what it has as /dev/shm (shm): https://docs.nvidia.com/deploy/mps. The administrator runs the daemon.
const MPSFolder = "/run/tenon/mps"

// MPSProgram is the name of the control daemon.
const MPSProgram = "nvidia-cuda-mps-control"

// exclusiveProcess is the compute mode, as nvidia-smi calls it, in which programs share a GPU by the daemon alone.
const exclusiveProcess = "Exclusive_Process"

// HasMPS reports whether a control daemon runs on the machine that has its pipes in MPSFolder.
func HasMPS(root host.Root) bool {
	if _, err := os.Stat(root.Path("var", MPSFolder, "pipe", MPSProgram+".pid")); err != nil {
		return false
	}
	return slices.ContainsFunc(kubeletfile.Processes(root.Path()), func(p kubeletfile.Process) bool {
		return p.Name() == MPSProgram
	})
}

// Exclusive returns the ids of the GPUs that programs share by a daemon alone.
func Exclusive(devices []host.Dropped) (ids []string) {
	for i := range devices {
		if d := &devices[i]; d.ComputeMode == exclusiveProcess && !d.IsLost {
			ids = append(ids, d.UUID)
		}
	}
	return ids
}

// limit sets the limits of the container's shares of its GPUs where the pod's label asks for them. They are
// cooperative: a program that does not load the library, or that changes its variables, has none.
func (d *decision) limit() error {
	provider := d.c.Labels[annotation.GPUIsolationLabel]
	if provider == "" || d.Env == nil {
		return nil
	}
	if provider != annotation.HAMiCore && provider != annotation.MPS {
		return refuse(ErrMalformed, "label %s is %q: want %s or %s", annotation.GPUIsolationLabel, provider,
			annotation.HAMiCore, annotation.MPS)
	}
	gpus, compute := 0, int64(0) // the largest of all GPUs: there is one variable
	var memory []string
	for _, c := range d.cards {
		if c.Kind != host.NVIDIA {
			continue
		}
		index := gpus
		gpus++
		core, ratio := c.amounts[annotation.ResourceGPUCore], c.amounts[annotation.ResourceGPUMemoryRatio]
		if core.Value() >= 100 || ratio.Value() >= 100 {
			continue // a whole GPU has no neighbour
		}
		bytes, ok := c.amounts[annotation.ResourceGPUMemory]
		if !ok || bytes.Value() < 1<<20 {
			return refuse(ErrMalformed, "annotation %s: gpu %s has no %s of 1Mi or more to limit the container to",
				annotation.DeviceAllocatedKey, c.ID, annotation.ResourceGPUMemory)
		}
		if provider == annotation.MPS {
			if err := d.refuseMPS(c.ID); err != nil {
				return err
			}
			memory = append(memory, fmt.Sprintf("%s=%dM", c.ID, bytes.Value()>>20))
		} else {
			memory = append(memory, "")
			d.Env[fmt.Sprintf("CUDA_DEVICE_MEMORY_LIMIT_%d", index)] = fmt.Sprintf("%dm", bytes.Value()>>20)
		}
		compute = max(compute, core.Value())
	}
	switch {
	case len(memory) == 0:
	case provider == annotation.MPS:
		d.Env["CUDA_MPS_PIPE_DIRECTORY"] = MPSFolder + "/pipe"
		d.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = strings.Join(memory, ",")
		if compute > 0 {
			d.Env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = strconv.FormatInt(compute, 10)
		}
		d.Mounts = []Mount{{Path: MPSFolder + "/pipe"}, {Path: "/dev/shm", Source: MPSFolder + "/shm"}}
	default:
		d.Env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = lockFolder + "/cache"
		d.Env["LD_PRELOAD"] = libraryFolder + "/libvgpu.so"
		if compute > 0 {
			d.Env["CUDA_DEVICE_SM_LIMIT"] = strconv.FormatInt(compute, 10)
		}
		d.Mounts = []Mount{{Path: libraryFolder, ReadOnly: true}, {Path: lockFolder, InMemory: true}}
	}
	return nil
}

// refuseMPS refuses a share of a GPU that a program could use beside the daemon, and so without limits.
func (d *decision) refuseMPS(gpu string) error {
	switch {
	case strings.HasPrefix(gpu, "MIG-"):
		return refuse(ErrUnavailable, "label %s is %s, which Tenon does not use for the MIG device %s: that has "+
			"memory and compute of its own", annotation.GPUIsolationLabel, annotation.MPS, gpu)
	case !d.MPS:
		return refuse(ErrUnavailable, "label %s is %s, and no %s with its pipes in %s/pipe runs on this machine",
			annotation.GPUIsolationLabel, annotation.MPS, MPSProgram, MPSFolder)
	case !slices.Contains(d.Exclusive, gpu):
		return refuse(ErrUnavailable, "label %s is %s, and no report says that gpu %s is in compute mode %s: "+
			"programs could use it beside %s, without limits", annotation.GPUIsolationLabel, annotation.MPS, gpu,
			exclusiveProcess, MPSProgram)
	}
	return nil
}

package inventory

import (
	"maps"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// What the library of NVIDIA's driver and its program nvidia-smi both say of GPUs is described here, once.

// cliqueLabel names the GPUs of a rack that one NVLink fabric joins, as NVIDIA's feature discovery does: by the UUID of
// the fabric and the number of the clique in it.
const cliqueLabel = "nvidia.com/gpu.clique"

func resetNeeded() *host.DroppedStatus {
	return &host.DroppedStatus{
		Healthy: true, Degraded: true, ErrCode: "ResetNeeded",
		ErrMessage: "a part of its memory is replaced at the next reset",
	}
}

func sramErrors() *host.DroppedStatus {
	return &host.DroppedStatus{
		Healthy: true, Degraded: true, ErrCode: "SRAMErrors",
		ErrMessage: "its on-chip memory has had more errors than NVIDIA allows",
	}
}

func rowRemapFailure() *host.DroppedStatus {
	return host.Fails("RowRemapFailure", "a part of its memory cannot be replaced")
}

// migDevice is a MIG device of a GPU: parts are the sevenths of the GPU that it has, memory is in bytes.
func migDevice(gpu *host.Dropped, uuid, profile string, parts int, memory int64) host.Dropped {
	d := *gpu
	d.UUID, d.Minor, d.ModuleID, d.Processes = uuid, "", "", nil
	d.Topology.P2PLinks, d.Topology.SwitchLanes, d.Topology.LaneBandwidth = nil, 0, ""
	d.Labels = map[string]string{
		annotation.MIGParentLabel:  gpu.UUID,
		annotation.MIGProfileLabel: strings.ReplaceAll(profile, "+", "."), // as in names of resources
	}
	maps.Copy(d.Labels, gpu.Labels)
	d.Resources = map[string]string{"gpu-core": strconv.Itoa(min(parts*100/7, 100))}
	if memory > 0 {
		d.Resources["gpu-memory"] = strconv.FormatInt(memory, 10)
	}
	return d
}

// withSliceFiles adds the files that open a MIG device, by the numbers of its instances. A device without them does not
// work.
func withSliceFiles(root host.Root, d host.Dropped, minor, gpuInstance, computeInstance int) host.Dropped {
	files, err := host.SliceFiles(root, minor, gpuInstance, computeInstance)
	if d.Files = files; err != nil {
		d.Files, d.Status = nil, host.Fails("NoDeviceFile", "%v", err)
	}
	return d
}

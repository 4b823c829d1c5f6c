package annotation

import (
	gojson "encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources of devices. Each but gpu.shared is also read with kubernetes.io/ in place of koordinator.sh/.
const (
	// ResourceGPU is compute and memory together, in percent of one GPU; only pods ask for it.
	ResourceGPU = "koordinator.sh/gpu"
	// ResourceGPUCore is compute, in percent of one GPU.
	ResourceGPUCore = "koordinator.sh/gpu-core"
	// ResourceGPUMemory is memory, in bytes.
	ResourceGPUMemory = "koordinator.sh/gpu-memory"
	// ResourceGPUMemoryRatio is memory, in percent of one GPU.
	ResourceGPUMemoryRatio = "koordinator.sh/gpu-memory-ratio"
	// ResourceGPUShared is the number of GPUs that the other amounts are spread over; only pods ask for it.
	ResourceGPUShared = "koordinator.sh/gpu.shared"
	// ResourceRDMA is percent of one RDMA adapter.
	ResourceRDMA = "koordinator.sh/rdma"
	// ResourceFPGA is percent of one FPGA.
	ResourceFPGA = "koordinator.sh/fpga"
)

// Resources that device plugins of the agent have.
const (
	// ResourcePresence is one placeholder: the agent of a node with devices has registered a plugin.
	ResourcePresence = "tenon.sh/presence"
)

// Annotations of a Pod about devices.
const (
	// DeviceAllocateHintKey holds DeviceAllocateHints, written by users.
	DeviceAllocateHintKey = "scheduling.koordinator.sh/device-allocate-hint"
	// DeviceJointAllocateKey holds a DeviceJointAllocate, written by users.
	DeviceJointAllocateKey = "scheduling.koordinator.sh/device-joint-allocate"
	// GPUPartitionSpecKey holds a GPUPartitionSpec, written by users.
	GPUPartitionSpecKey = "scheduling.koordinator.sh/gpu-partition-spec"
	// GPUMinorsKey holds minors of GPUs, as 0,1, written by the scheduler for device plugins of others
	// (argument devicePluginAdaption of DeviceShare).
	GPUMinorsKey = "scheduling.koordinator.sh/gpu-minors"
	// BindTimestampKey is when the pod was bound, in nanoseconds since 1970, written by the scheduler for device
	// plugins of others (argument devicePluginAdaption of DeviceShare).
	BindTimestampKey = "scheduling.koordinator.sh/bind-timestamp"
)

// GPUIsolationLabel is a label of Pods and Nodes: what keeps containers to their shares of a GPU, HAMi-core
// or mps. A pod with it and a share of a GPU goes to nodes with the same value.
const GPUIsolationLabel = "koordinator.sh/gpu-isolation-provider"

// Values of GPUIsolationLabel that the agent knows: a library that programs load, and NVIDIA's Multi-Process Service.
const (
	HAMiCore = "HAMi-core"
	MPS      = "mps"
)

// Labels of a Device, or of one device of it, about GPUs. The gpu-partition-policy is the object's.
const (
	// GPUVendorLabel is the vendor: nvidia, amd, hygon, huawei or another.
	GPUVendorLabel = "node.koordinator.sh/gpu-vendor"
	// GPUModelLabel is the model.
	GPUModelLabel = "node.koordinator.sh/gpu-model"
	// GPUDriverLabel is the version of the driver.
	GPUDriverLabel = "node.koordinator.sh/gpu-driver-version"
	// MIGProfileLabel is the profile of a MIG device, such as 1g.10gb.
	MIGProfileLabel = "node.tenon.sh/mig-profile"
	// MIGParentLabel is the id of the GPU that a MIG device is a part of.
	MIGParentLabel = "node.tenon.sh/parent"
	// GPUPartitionPolicyLabel is Prefer or Honor: whether GPUs are allocated outside GPUPartitions too.
	GPUPartitionPolicyLabel = "node.koordinator.sh/gpu-partition-policy"
	// PartitionPrefer allows GPUs that are no partition together where none fits.
	PartitionPrefer = "Prefer"
	// PartitionHonor allows partitions alone.
	PartitionHonor = "Honor"
)

// Annotations of a Device.
const (
	// DevicesCheckpointsKey holds DevicesCheckpoints: the scheduler gives none of them out.
	DevicesCheckpointsKey = "node.koordinator.sh/devices-checkpoints"
	// DevicesCheckpointsAlias is read where devices-checkpoints is absent.
	DevicesCheckpointsAlias = "node.koordinator.sh/gpu-checkpoints"
	// GPUPartitionsKey holds GPUPartitions.
	GPUPartitionsKey = "scheduling.koordinator.sh/gpu-partitions"
	// DeviceLinksKey holds DeviceLinks.
	DeviceLinksKey = "node.tenon.sh/device-links"
	// DeviceModeKey is a DeviceMode: Own, Follow or Moving. Default: Own.
	DeviceModeKey = "node.tenon.sh/device-mode"
)

// DeviceType is a kind of device: one of the constants, or another one that a Device object lists.
type DeviceType = string

// Types of device.
const (
	DeviceGPU  DeviceType = "gpu"
	DeviceRDMA DeviceType = "rdma"
	DeviceFPGA DeviceType = "fpga"
)

// CanonicalResource returns the name under which a resource of devices is counted: kubernetes.io/gpu-core is
// koordinator.sh/gpu-core. Other names are returned as they are.
func CanonicalResource(name corev1.ResourceName) corev1.ResourceName {
	if device, ok := strings.CutPrefix(string(name), "kubernetes.io/"); ok {
		switch canonical := "koordinator.sh/" + device; canonical {
		case ResourceGPU, ResourceGPUCore, ResourceGPUMemory, ResourceGPUMemoryRatio, ResourceRDMA, ResourceFPGA:
			return corev1.ResourceName(canonical)
		}
	}
	return name
}

// DeviceAmounts are amounts of one device by resource, under canonical names. None is below 0, percent are whole and
// 100 at most. It is UnmarshalJSON that refuses the others.
type DeviceAmounts corev1.ResourceList

// UnmarshalJSON reads both names of a resource.
func (a *DeviceAmounts) UnmarshalJSON(text []byte) error {
	if at := slowQuantity.FindSubmatch(text); at != nil {
		return errors.New(outOfRange(string(at[1])))
	}
	var list corev1.ResourceList
	if err := gojson.Unmarshal(text, &list); err != nil {
		return err
	}
	*a = nil
	for _, name := range sorted(list) {
		canonical, q := CanonicalResource(name), list[name]
		if err := validAmount(canonical, q); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if other, ok := list[canonical]; ok && !other.Equal(q) {
			return fmt.Errorf("conflicting values for %s and its alias %s", canonical, name)
		}
		if *a == nil {
			*a = make(DeviceAmounts, len(list))
		}
		(*a)[canonical] = q
	}
	return nil
}

// validAmount says what is wrong with an amount of one device.
func validAmount(name corev1.ResourceName, q resource.Quantity) error {
	switch name {
	case ResourceGPU, ResourceGPUCore, ResourceGPUMemoryRatio, ResourceRDMA, ResourceFPGA:
		whole := q.DeepCopy()
		if !whole.RoundUp(0) || q.Sign() < 0 || q.CmpInt64(100) > 0 {
			return fmt.Errorf("must be a whole percentage from 0 to 100, is %s", q.String())
		}
	}
	if q.Sign() < 0 {
		return fmt.Errorf("must not be negative, is %s", q.String())
	}
	return nil
}

// ParseGPUPartitionPolicy reads PartitionPrefer or PartitionHonor; "" is PartitionPrefer.
func ParseGPUPartitionPolicy(text string) (string, []Warning, error) {
	if text == "" {
		return PartitionPrefer, nil, nil
	}
	return word(text, PartitionPrefer, PartitionHonor)
}

// DeviceMode says whose device assignments hold on a node (DeviceModeKey).
type DeviceMode = string

// Device modes.
const (
	// DeviceOwn: Tenon's scheduler chooses devices, the agent injects them.
	DeviceOwn DeviceMode = "Own"
	// DeviceFollow: the kubelet's device plugins choose.
	DeviceFollow DeviceMode = "Follow"
	// DeviceMoving: as DeviceOwn, but pods without an allocation keep the devices that the kubelet gave them.
	DeviceMoving DeviceMode = "Moving"
)

// ParseDeviceMode reads a DeviceMode; "" is DeviceOwn.
func ParseDeviceMode(text string) (DeviceMode, []Warning, error) {
	if text == "" {
		return DeviceOwn, nil, nil
	}
	return word(text, DeviceOwn, DeviceFollow, DeviceMoving)
}

// repeated returns an item that is empty or listed twice, and whether there is one.
func repeated(ids []string) (id string, ok bool) {
	listed := map[string]bool{"": true}
	for _, id := range ids {
		if listed[id] {
			return id, true
		}
		listed[id] = true
	}
	return "", false
}

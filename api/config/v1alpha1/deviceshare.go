package v1alpha1

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FragmentationAware is a type of scoring strategy for devices.
const FragmentationAware = "FragmentationAware"

// DeviceShareArgs are the arguments of the plugin DeviceShare, which has the names and meanings of Koordinator's.
//
// +kubebuilder:object:root=true
type DeviceShareArgs struct {
	metav1.TypeMeta `json:",inline"`

	// ScoringStrategy ranks nodes by their devices. Default: FragmentationAware.
	ScoringStrategy *DeviceScoringStrategy `json:"scoringStrategy,omitempty"`

	// DisableDeviceNUMATopologyAlignment allows devices on other NUMA nodes than the CPUs and the memory of their pod,
	// for any topology policy. Default: false.
	DisableDeviceNUMATopologyAlignment bool `json:"disableDeviceNUMATopologyAlignment,omitempty"`
	// AvoidWithoutDevices keeps pods without devices away from nodes with unallocated GPUs, as long as other nodes have
	// room: it decides a tenth of the plugin's score. Default: true.
	AvoidWithoutDevices *bool `json:"avoidWithoutDevices,omitempty"`
	// GPUSharedResourceTemplatesConfig names the ConfigMap with the templates of shared Ascend NPUs; {} means
	// Koordinator's defaults. Default: no templates, so such a device is not shared.
	GPUSharedResourceTemplatesConfig *GPUTemplatesConfig `json:"gpuSharedResourceTemplatesConfig,omitempty"`
	// GPUShareUnsupportedModels lists GPU models that are only allocated whole. Default: none.
	GPUShareUnsupportedModels []GPUModel `json:"gpuShareUnsupportedModels,omitempty"`
	// DevicePluginAdaption writes the annotations gpu-minors and bind-timestamp at the bind, which device plugins of
	// some vendors read. Default: false.
	DevicePluginAdaption bool `json:"devicePluginAdaption,omitempty"`
	// Allocator is accepted from configurations of Koordinator, without effect: there is one allocator.
	Allocator string `json:"allocator,omitempty"`
	// EnableQueueHint is accepted from configurations of Koordinator, without effect: queueing hints are always on.
	EnableQueueHint bool `json:"enableQueueHint,omitempty"`
}

// GPUTemplatesConfig names the ConfigMap with the templates of shared Ascend NPUs. Its data.yaml has, by vendor and
// model (huawei-Ascend-310P) and then by name (vir02), what a template gives of each resource.
type GPUTemplatesConfig struct {
	// ConfigMapNamespace is its namespace. Default: koordinator-system.
	ConfigMapNamespace string `json:"configMapNamespace,omitempty"`
	// ConfigMapName is its name. Default: gpu-shared-resource-templates, the only one that the scheduler's role can
	// read.
	ConfigMapName string `json:"configMapName,omitempty"`
	// MatchedResources are the resources whose requests must be those of a template: huawei.com/npu-core alone, which
	// is the default.
	MatchedResources []corev1.ResourceName `json:"matchedResources,omitempty"`
}

// GPUModel is a model of GPUs, as the labels of a Device name it.
type GPUModel struct {
	// Vendor is the value of the label gpu-vendor, such as nvidia.
	Vendor string `json:"vendor"`
	// Model is the value of the label gpu-model.
	Model string `json:"model"`
}

// DeviceScoringStrategy ranks nodes by their devices.
type DeviceScoringStrategy struct {
	// Type is FragmentationAware (default), LeastAllocated or MostAllocated. FragmentationAware prefers the node on
	// which the pod preserves most capacity for expected pods; it also scores pods without devices, so that they
	// preserve the CPUs that GPUs need. The others score nodes for pods with devices by the used part of Resources.
	Type string `json:"type,omitempty"`
	// Resources are what LeastAllocated and MostAllocated compare: koordinator.sh/gpu-core, gpu-memory,
	// gpu-memory-ratio, rdma and fpga. Default: gpu-memory-ratio, rdma and fpga, with weight 1 each. It must be absent
	// with FragmentationAware.
	Resources []ResourceWeight `json:"resources,omitempty"`
}

// SetDefaults fills what is not said.
func (a *DeviceShareArgs) SetDefaults() {
	if a.ScoringStrategy == nil {
		a.ScoringStrategy = &DeviceScoringStrategy{}
	}
	if a.AvoidWithoutDevices == nil {
		a.AvoidWithoutDevices = new(true)
	}
	s := a.ScoringStrategy
	s.Type = cmp.Or(s.Type, FragmentationAware)
	if len(s.Resources) == 0 && s.Type != FragmentationAware {
		s.Resources = []ResourceWeight{
			{Name: "koordinator.sh/gpu-memory-ratio"}, {Name: "koordinator.sh/rdma"}, {Name: "koordinator.sh/fpga"},
		}
	}
	for i := range s.Resources {
		s.Resources[i].Weight = cmp.Or(s.Resources[i].Weight, 1)
	}
	if t := a.GPUSharedResourceTemplatesConfig; t != nil {
		t.ConfigMapNamespace = cmp.Or(t.ConfigMapNamespace, "koordinator-system")
		t.ConfigMapName = cmp.Or(t.ConfigMapName, "gpu-shared-resource-templates")
	}
}

// Validate returns every field whose value cannot be used.
func (a *DeviceShareArgs) Validate() field.ErrorList {
	var errs field.ErrorList
	if s := a.ScoringStrategy; s != nil {
		path := field.NewPath("scoringStrategy")
		errs = oneOf(path.Child("type"), s.Type, FragmentationAware, LeastAllocated, MostAllocated)
		if s.Type == FragmentationAware && len(s.Resources) > 0 {
			errs = append(errs, field.Forbidden(path.Child("resources"),
				fmt.Sprintf("must be left out with type %s, which compares no amounts", FragmentationAware)))
		}
		errs = append(errs, validateDeviceWeights(path.Child("resources"), s.Resources)...)
	}
	if t := a.GPUSharedResourceTemplatesConfig; t != nil {
		path := field.NewPath("gpuSharedResourceTemplatesConfig")
		for _, text := range validation.IsDNS1123Label(t.ConfigMapNamespace) {
			errs = append(errs, field.Invalid(path.Child("configMapNamespace"), t.ConfigMapNamespace, text))
		}
		for _, text := range validation.IsDNS1123Subdomain(t.ConfigMapName) {
			errs = append(errs, field.Invalid(path.Child("configMapName"), t.ConfigMapName, text))
		}
		for i, name := range t.MatchedResources {
			errs = append(errs, oneOf(path.Child("matchedResources").Index(i), string(name), "huawei.com/npu-core")...)
		}
	}
	for i, m := range a.GPUShareUnsupportedModels {
		path := field.NewPath("gpuShareUnsupportedModels").Index(i)
		if m.Vendor == "" {
			errs = append(errs, field.Required(path.Child("vendor"), "must be a value of the label gpu-vendor"))
		}
		if m.Model == "" {
			errs = append(errs, field.Required(path.Child("model"), "must be a value of the label gpu-model"))
		}
		if slices.Contains(a.GPUShareUnsupportedModels[:i], m) {
			errs = append(errs, field.Duplicate(path, m.Vendor+" "+m.Model))
		}
	}
	return errs
}

func validateDeviceWeights(path *field.Path, resources []ResourceWeight) field.ErrorList {
	var errs field.ErrorList
	allowed := []string{
		"koordinator.sh/gpu-core", "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio",
		"koordinator.sh/rdma", "koordinator.sh/fpga",
	}
	seen := map[corev1.ResourceName]bool{}
	for i, r := range resources {
		switch {
		case !slices.Contains(allowed, string(r.Name)):
			errs = append(errs, field.NotSupported(path.Index(i).Child("name"), string(r.Name), allowed))
		case seen[r.Name]:
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), string(r.Name)))
		case r.Weight < 1 || r.Weight > 100:
			errs = append(errs, field.Invalid(path.Index(i).Child("weight"), r.Weight, "must be 1…100"))
		}
		seen[r.Name] = true
	}
	return errs
}

package convert

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
)

// DeviceLabels returns the labels of a Device object that its Node carries too: vendor, model and driver of its GPUs.
// nil stands for a node without devices.
func DeviceLabels(d *devicev1alpha1.Device) map[string]string {
	labels := map[string]string{}
	for _, key := range [...]string{annotation.GPUVendorLabel, annotation.GPUModelLabel, annotation.GPUDriverLabel} {
		if d != nil && d.Labels[key] != "" {
			labels[key] = d.Labels[key]
		}
	}
	return labels
}

// Capacity returns what the devices of a node that work have together, by resource: of each type what its devices
// state, so that types of which nothing else is known count too. A GPU that states nothing has 100 percent of its cores
// and of its memory. A MIG device counts by the name of its profile alone, its GPU not at all. There is none on a node
// whose devices the kubelet gives out.
func Capacity(d *devicev1alpha1.Device) corev1.ResourceList {
	all := corev1.ResourceList{}
	if d == nil {
		return all
	}
	if mode, _, err := annotation.ParseDeviceMode(d.Annotations[annotation.DeviceModeKey]); err != nil ||
		mode == annotation.DeviceFollow {
		return all
	}
	sliced, broken := map[string]bool{}, map[string]bool{}
	works := func(info *devicev1alpha1.DeviceInfo) bool {
		return info.Health && !meta.IsStatusConditionTrue(info.Conditions, devicev1alpha1.Foreign)
	}
	for i := range d.Spec.Devices {
		info := &d.Spec.Devices[i]
		sliced[info.Labels[annotation.MIGParentLabel]] = true
		broken[info.ID] = broken[info.ID] || info.Type == string(device.GPU) && !works(info)
	}
	for i := range d.Spec.Devices {
		info := &d.Spec.Devices[i]
		if !works(info) || sliced[info.ID] || broken[info.Labels[annotation.MIGParentLabel]] {
			continue
		}
		amounts := corev1.ResourceList{}
		if slice := (device.Need{Profile: info.Labels[annotation.MIGProfileLabel]}).VendorName(); slice != "" {
			if len(validation.IsQualifiedName(slice)) == 0 {
				amounts[corev1.ResourceName(slice)] = *resource.NewQuantity(1, resource.DecimalSI)
			}
		} else {
			if info.Type == string(device.GPU) {
				amounts[device.GPUCore] = *resource.NewQuantity(100, resource.DecimalSI)
				amounts[device.GPURatio] = *resource.NewQuantity(100, resource.DecimalSI)
			}
			maps.Copy(amounts, info.Resources)
		}
		for name, n := range amounts {
			sum := all[name]
			sum.Add(n)
			all[name] = sum
		}
	}
	return all
}

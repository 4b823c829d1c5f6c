package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
)

// Grants returns what a pod holds of devices by its annotation device-allocated. What cannot be read is left out: the
// whole where it breaks a rule of the annotation, else what names no device.
func Grants(annotations map[string]string) ([]device.Grant, error) {
	allocated, _, err := parse(annotations, annotation.DeviceAllocatedKey, annotation.ParseDeviceAllocations)
	if len(allocated) == 0 {
		return nil, err
	}
	var list []device.Grant
	for _, kind := range slices.Sorted(maps.Keys(allocated)) {
		for i := range allocated[kind] {
			g := grant(device.Type(kind), &allocated[kind][i])
			if g.ID == "" && g.Minor < 0 {
				err = fmt.Errorf("%s: device %d of the list: without an id, its minor must be 0 or more", kind, i)
				continue
			}
			list = append(list, g)
		}
	}
	return device.SortedGrants(list), err
}

func grant(kind device.Type, d *annotation.DeviceAllocation) device.Grant {
	g := device.Grant{Type: kind, ID: d.ID, Minor: number(d.Minor)}
	g.Amount, g.Ratio = device.Measure(kind, Named(corev1.ResourceList(d.Resources)))
	if d.Extension == nil {
		return g
	}
	g.Template = d.Extension.GPUSharedResourceTemplate
	for _, vf := range d.Extension.VFs {
		g.VFs = append(g.VFs, vf.BusID)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Extension.Containers)) {
		c := device.ContainerGrant{Name: name}
		c.Amount, c.Ratio = device.Measure(kind, Named(corev1.ResourceList(d.Extension.Containers[name])))
		g.Containers = append(g.Containers, c)
	}
	return g
}

// Allocations returns the annotation device-allocated of a pod that holds grants: Grants reads the same of it. Numbers
// of virtual functions are not known.
func Allocations(grants []device.Grant) annotation.DeviceAllocations {
	out := annotation.DeviceAllocations{}
	for _, g := range grants {
		d := annotation.DeviceAllocation{ID: g.ID, Resources: deviceAmounts(g.Type, &g.Amount, g.Ratio)}
		if g.Minor >= 0 {
			d.Minor = &g.Minor
		}
		extension := annotation.DeviceExtension{GPUSharedResourceTemplate: g.Template}
		for _, bus := range g.VFs {
			extension.VFs = append(extension.VFs, annotation.VirtualFunction{Minor: -1, BusID: bus})
		}
		for i := range g.Containers {
			c := &g.Containers[i]
			if extension.Containers == nil {
				extension.Containers = map[string]annotation.DeviceAmounts{}
			}
			extension.Containers[c.Name] = deviceAmounts(g.Type, &c.Amount, c.Ratio)
		}
		if extension.Containers != nil || extension.VFs != nil || g.Template != "" {
			d.Extension = &extension
		}
		out[string(g.Type)] = append(out[string(g.Type)], d)
	}
	return out
}

func deviceAmounts(kind device.Type, v *device.Vector, ratio int64) annotation.DeviceAmounts {
	return annotation.DeviceAmounts(DeviceQuantities(v.Amounts(kind, ratio)))
}

// DeviceQuantities are amounts of devices, by resource.
func DeviceQuantities(amounts map[string]int64) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, n := range amounts {
		format := resource.DecimalSI
		if name == device.GPUMemory {
			format = resource.BinarySI
		}
		out[corev1.ResourceName(name)] = *resource.NewQuantity(n, format)
	}
	return out
}

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

// Templates reads what templates give of a device: by vendor and model, then by name, an amount of each resource. The
// error names the first that cannot be used.
func Templates(text string) (list []device.Template, err error) {
	var all map[string]map[string]map[string]any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("want models with templates with amounts: %w", err)
	}
	allowed := []string{device.NPUCore, device.NPUCPU, device.NPUDVPP, device.GPUMemory, device.GPURatio}
	for _, model := range slices.Sorted(maps.Keys(all)) {
		for _, name := range slices.Sorted(maps.Keys(all[model])) {
			amounts := map[string]int64{}
			for resource, value := range all[model][name] {
				q, err := annotation.ParseQuantity(fmt.Sprint(value))
				if err != nil || q.Sign() < 0 || !slices.Contains(allowed, resource) {
					return nil, fmt.Errorf("%s, %s: %s: %v, want a quantity of at least 0 of one of %s", model, name,
						resource, value, strings.Join(allowed, ", "))
				}
				amounts[resource] = q.Value()
			}
			t := device.Template{Name: name, Model: model}
			t.Amount, t.Ratio = device.Measure(device.GPU, amounts)
			list = append(list, t)
		}
	}
	return list, nil
}

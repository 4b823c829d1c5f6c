package convert

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
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
	g.Amount, g.Ratio = device.Measure(kind, amountsOf(d.Resources))
	if d.Extension == nil {
		return g
	}
	g.Template = d.Extension.GPUSharedResourceTemplate
	for _, vf := range d.Extension.VFs {
		g.VFs = append(g.VFs, vf.BusID)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Extension.Containers)) {
		c := device.ContainerGrant{Name: name}
		c.Amount, c.Ratio = device.Measure(kind, amountsOf(d.Extension.Containers[name]))
		g.Containers = append(g.Containers, c)
	}
	return g
}

// amountsOf are amounts of one device in whole units, rounded up.
func amountsOf[M ~map[corev1.ResourceName]resource.Quantity](list M) map[string]int64 {
	out := make(map[string]int64, len(list))
	for name, q := range list {
		out[string(name)] = q.Value()
	}
	return out
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

package convert

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/internal/core/device"
)

// NameDevices writes a pod's requests for devices in one way: canonical names, compute and memory instead of
// koordinator.sh/gpu, and the number of GPUs beside every share. Names of vendors are not changed, nor are requests
// that are refused.
func NameDevices(pod *corev1.Pod) {
	if !AsksForDevices(pod, nil) {
		return
	}
	asked, _, _ := DevicePod(pod, nil)
	request, faults := device.NewRequest(device.Pod{Containers: asked.Containers}, nil)
	if len(faults) > 0 || len(device.Zeros(asked.Containers)) > 0 {
		return
	}
	shared := map[string]int64{} // GPUs of each container that asks for shares
	for _, p := range request.Parts {
		if p.Type == device.GPU && p.Need.VendorName() == "" && !p.Need.Template {
			shared[p.Container] = p.Count
		}
	}
	for _, c := range containers(pod) {
		nameAmounts(c.Resources.Requests, shared[c.Name])
		nameAmounts(c.Resources.Limits, shared[c.Name])
	}
}

// nameAmounts rewrites the amounts of devices in a list; shared is 0 where the container asks for no share of GPUs.
func nameAmounts(list corev1.ResourceList, shared int64) {
	_, has := list[device.GPUShared]
	share := false
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !device.IsDevice(string(name)) {
			continue
		}
		q, names := list[name], device.Names(string(name))
		q = *resource.NewQuantity(q.Value(), q.Format) // whole, as the scheduler reads it
		share = share || names[0] != device.RDMAShare && names[0] != device.FPGAShare
		if names[0] == string(name) {
			continue
		}
		if delete(list, name); q.IsZero() {
			continue // it asks for nothing, and the amount under the canonical name remains
		}
		for _, canonical := range names {
			list[corev1.ResourceName(canonical)] = q
		}
	}
	if share && shared > 0 && !has {
		list[device.GPUShared] = *resource.NewQuantity(shared, resource.DecimalSI)
	}
}

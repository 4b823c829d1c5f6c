package claims

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/why"
)

// extended returns a claim of what a pod gets of a node for extended resources that DeviceClasses map; nil for nothing.
// Those that a device plugin of the node gives are not among them. Without a node no plugin gives any. The claim has no
// name, and each request that of its resource.
func (c *choice) extended(pod *corev1.Pod, node *corev1.Node) *resourcev1.ResourceClaim {
	if !asksForMapped(c.dra.DeviceClassResolver(), pod) {
		return nil
	}
	own := &resourcev1.ResourceClaim{}
	own.Namespace, own.UID = pod.Namespace, "extended/"+pod.UID
	asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		amount := asked[name]
		if amount.IsZero() || !util.IsDRAExtendedResourceName(name) {
			continue
		}
		class := c.dra.DeviceClassResolver().GetDeviceClass(name)
		if class == nil || node != nil && !node.Status.Allocatable.Name(name, "").IsZero() {
			continue
		}
		requests := &own.Spec.Devices.Requests
		*requests = append(*requests, resourcev1.DeviceRequest{
			Name: string(name), Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: class.Name, AllocationMode: resourcev1.DeviceAllocationModeExactCount,
				Count: amount.Value(),
			},
		})
	}
	if len(own.Spec.Devices.Requests) == 0 {
		return nil
	}
	return own
}

// tooMany is the refusal of a node where a pod needs more devices for extended resources than a claim can have; nil for
// none. The plugin fails there, and would try no other node.
func (c *choice) tooMany(pod *corev1.Pod, node *corev1.Node) *lacking {
	own := c.extended(pod, node)
	if own == nil {
		return nil
	}
	var names []string
	var counts [][]int64
	for _, r := range own.Spec.Devices.Requests {
		names, counts = append(names, r.Name), append(counts, []int64{r.Exactly.Count})
	}
	sum := claim.Least(counts)
	if sum <= claim.MostDevices {
		return nil
	}
	return &lacking{why.ExtendedResourceTooLarge, fmt.Sprintf("requests for %s must sum to at most %d, are %d",
		strings.Join(names, " and "), claim.MostDevices, sum)}
}

// asksForMapped reports whether a pod asks for an extended resource that a DeviceClass maps.
func asksForMapped(classes fwk.DeviceClassResolver, pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Requests {
				if util.IsDRAExtendedResourceName(name) && classes.GetDeviceClass(name) != nil {
					return true
				}
			}
		}
	}
	return false
}

// Of returns the claims of a pod, as heldBy has them, and the slices of the cluster; nothing where none are served.
func Of(dra fwk.SharedDRAManager, pod *corev1.Pod) ([]*resourcev1.ResourceClaim, []*resourcev1.ResourceSlice) {
	if dra == nil {
		return nil, nil
	}
	published, err := dra.ResourceSlices().ListWithDeviceTaintRules()
	if err != nil { // where their devices are is not known
		published = nil
	}
	return heldBy(dra, pod), published
}

// heldBy returns the claims that end with a pod: those that it names, and the one that was made for its extended
// resources.
func heldBy(dra fwk.SharedDRAManager, pod *corev1.Pod) []*resourcev1.ResourceClaim {
	list := claimsOf(dra, pod)
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil {
		if own, err := dra.ResourceClaims().Get(pod.Namespace, made.ResourceClaimName); err == nil {
			list = append(list, own)
		}
	}
	return list
}

package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
)

// ClaimsOf returns the ResourceClaims that a pod names, as NAMESPACE/NAME, ascending. One of a template has no name
// until it is created.
func ClaimsOf(pod *corev1.Pod) (list []string) {
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		name := ref.ResourceClaimName
		for j := range pod.Status.ResourceClaimStatuses {
			if s := &pod.Status.ResourceClaimStatuses[j]; name == nil && s.Name == ref.Name {
				name = s.ResourceClaimName
			}
		}
		if name != nil {
			list = append(list, pod.Namespace+"/"+*name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// IsMade reports whether kube-scheduler makes a claim for the extended resources of a pod: none of these names it.
func IsMade(c *resourcev1.ResourceClaim) bool {
	return c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true"
}

// QuotaCharge is what the account of quotas reads of a claim: the devices of each class that it has, or that it may get
// at most before it is allocated, as Kubernetes' ResourceQuota counts. Administrators' access counts for nothing.
func QuotaCharge(c *resourcev1.ResourceClaim) quota.Charge {
	out := quota.Charge{ID: c.Namespace + "/" + c.Name, Amounts: amount.List{}}
	for i := range c.Status.ReservedFor {
		out.ReservedFor = append(out.ReservedFor, string(c.Status.ReservedFor[i].UID))
	}
	a := c.Status.Allocation
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		most := amount.List{}
		count := func(name, class string, mode resourcev1.DeviceAllocationMode, n int64) {
			class = quota.ClassDimension(class)
			if a != nil {
				most[class] += resultsOf(a, name)
			} else {
				most[class] = max(most[class], devicesAtMost(mode, n))
			}
		}
		if e := r.Exactly; e != nil && !ptr.Deref(e.AdminAccess, false) {
			count(r.Name, e.DeviceClassName, e.AllocationMode, e.Count)
		}
		for j := range r.FirstAvailable {
			sub := &r.FirstAvailable[j]
			count(r.Name+"/"+sub.Name, sub.DeviceClassName, sub.AllocationMode, sub.Count)
		}
		out.Amounts.Add(most)
	}
	return out
}

// devicesAtMost is the number of devices that a request can get.
func devicesAtMost(mode resourcev1.DeviceAllocationMode, n int64) int64 {
	if mode == resourcev1.DeviceAllocationModeAll {
		return resourcev1.AllocationResultsMaxSize
	}
	return max(n, 1)
}

// resultsOf is the number of devices that an allocation has for a request.
func resultsOf(a *resourcev1.AllocationResult, request string) (n int64) {
	for i := range a.Devices.Results {
		if a.Devices.Results[i].Request == request {
			n++
		}
	}
	return n
}

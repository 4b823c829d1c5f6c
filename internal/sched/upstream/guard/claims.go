package guard

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// claimFilter is the PreFilter plugin DynamicResources. It refuses claims that no allocation can serve: upstream's
// allocator adds the counts of a claim up without a look at overflow, and panics in Filter.
type claimFilter struct {
	*preFilter
	claims fwk.ResourceClaimTracker
}

// PreFilter asks the plugin first, whose other extension points expect that it was asked.
func (p *claimFilter) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	result, status := p.preFilter.PreFilter(ctx, state, pod, nodes)
	if convert.IsReservePod(pod) && len(pod.Spec.ResourceClaims) > 0 {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "spec.template.spec.resourceClaims of a "+
			"Reservation must be empty: Kubernetes reserves devices of ResourceClaims for pods alone")
	}
	if !status.IsSuccess() {
		return result, status
	}
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // the plugin has said so, or the pod needs no claim
		}
		c, err := p.claims.Get(pod.Namespace, *name)
		if err != nil || c.Status.Allocation != nil {
			continue
		}
		if n := leastDevices(c); n > claim.MostDevices {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&tooLarge{c.Name, n})
		}
	}
	return result, status
}

// leastDevices returns how many devices a claim needs at least. A request for all devices of a class counts none.
func leastDevices(c *resourcev1.ResourceClaim) int64 {
	var requests [][]int64
	for _, r := range c.Spec.Devices.Requests {
		var counts []int64
		if r.Exactly != nil {
			counts = append(counts, count(r.Exactly.AllocationMode, r.Exactly.Count))
		}
		for _, alternative := range r.FirstAvailable {
			counts = append(counts, count(alternative.AllocationMode, alternative.Count))
		}
		requests = append(requests, counts)
	}
	return claim.Least(requests)
}

// count returns how many devices a request needs at least.
func count(mode resourcev1.DeviceAllocationMode, n int64) int64 {
	if mode == resourcev1.DeviceAllocationModeAll {
		return 0
	}
	return n
}

// tooLarge is a claim that needs more devices than an allocation can have.
type tooLarge struct {
	claim   string
	devices int64
}

// Error names the claim, the field, the rule and the limit.
func (e *tooLarge) Error() string {
	return fmt.Sprintf("ResourceClaim %s requests at least %d devices: the counts in spec.devices.requests must sum "+
		"to at most %d", e.claim, e.devices, claim.MostDevices)
}

// Finding returns the reason, for explanations.
func (e *tooLarge) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: why.ClaimTooLarge}, Detail: e.Error()}
}

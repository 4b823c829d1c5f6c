package claims

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// laterKey marks a cycle in which later alternatives come first, for LaterFirst.
const laterKey fwk.StateKey = "TenonClaimLaterFirst"

// laterFirst is the mark, and the key of it in a context.
type laterFirst struct{}

// Clone returns l.
func (l laterFirst) Clone() fwk.StateData { return l }

// LaterFirst lets the pod of a cycle get later alternatives of its requests before earlier ones. Kubernetes tries them
// in their order; a gang whose members have no devices in that order starts with others.
func LaterFirst(cs fwk.CycleState) { cs.Write(laterKey, laterFirst{}) }

// HasAlternatives reports whether a claim of a pod that has no devices yet has a request with several alternatives.
func HasAlternatives(dra fwk.SharedDRAManager, pod *corev1.Pod) bool {
	if dra == nil || len(pod.Spec.ResourceClaims) == 0 {
		return false
	}
	return slices.ContainsFunc(claimsOf(dra, pod), func(c *resourcev1.ResourceClaim) bool {
		return c.Status.Allocation == nil && hasAlternatives(c)
	})
}

func hasAlternatives(c *resourcev1.ResourceClaim) bool {
	return slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool {
		return len(r.FirstAvailable) > 1
	})
}

// inOrderOf returns the context of a call of the plugin in a cycle.
func inOrderOf(ctx context.Context, cs fwk.CycleState) context.Context {
	if _, err := cs.Read(laterKey); err != nil {
		return ctx
	}
	return context.WithValue(ctx, laterFirst{}, true)
}

// inOrder returns claims with the alternatives of their requests in the order in which they are tried.
func inOrder(ctx context.Context, claims []*resourcev1.ResourceClaim) []*resourcev1.ResourceClaim {
	if ctx.Value(laterFirst{}) == nil {
		return claims
	}
	claims = slices.Clone(claims)
	for i, c := range claims {
		if !hasAlternatives(c) {
			continue
		}
		claims[i] = c.DeepCopy()
		for k := range claims[i].Spec.Devices.Requests {
			slices.Reverse(claims[i].Spec.Devices.Requests[k].FirstAvailable)
		}
	}
	return claims
}

package claims

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/why"
)

// startersKey is where a cycle has the pods that a node is kept for, and aheadKey what its pod gets there now.
const (
	startersKey fwk.StateKey = "TenonClaimStarters"
	aheadKey    fwk.StateKey = "TenonClaimAhead"
)

// starters are pods with claims that a node is kept for, the first one first. They are never changed in place.
type starters []*corev1.Pod

// Clone returns s.
func (s starters) Clone() fwk.StateData { return s }

// startersOf returns the pods with claims that the node of a cycle is kept for.
func startersOf(cs fwk.CycleState) starters {
	data, err := cs.Read(startersKey)
	if err != nil {
		return nil
	}
	return data.(starters)
}

// grants are what a pod gets for its claims. They are never changed in place.
type grants []resourcev1.AllocationResult

// Clone returns g.
func (g grants) Clone() fwk.StateData { return g }

// LookAhead begins to look at a later time of a node: the pod of the cycle has the very devices there that it would get
// now. Pods that leave until then are removed afterwards, and pods are added that start then.
func LookAhead(ctx context.Context, cs fwk.CycleState, node *corev1.Node) {
	if p := planOf(cs); p != nil {
		cs.Write(aheadKey, p.grants(ctx, cs, node))
	}
}

// grants returns the devices of a node that the pod of a cycle would get; nil for none.
func (p *plan) grants(ctx context.Context, cs fwk.CycleState, node *corev1.Node) grants {
	q := p.ask(cs, node, true, true)
	open := p.open(p.claims)
	first := q.narrowed(ctx, open, make([]bool, len(q.site.Devices)))
	if len(open) == 0 || len(first) != len(open) || q.view == nil {
		return first
	}
	return q.choose(ctx, open, first)
}

// open returns those of claims that have no devices yet.
func (p *plan) open(claims []*resourcev1.ResourceClaim) []*resourcev1.ResourceClaim {
	return slices.DeleteFunc(slices.Clone(claims), func(c *resourcev1.ResourceClaim) bool {
		return c.Status.Allocation != nil || p.dra.ResourceClaims().GetPendingAllocation(c.UID) != nil
	})
}

// leaves returns the refusal of a node whose devices do not suffice for the pods that it is kept for, beside the pod of
// the cycle and without its victims; nil where they do.
func (p *plan) leaves(ctx context.Context, cs fwk.CycleState, node *corev1.Node) *fwk.Status {
	q := p.ask(cs, node, true, true)
	if q.state == nil {
		return nil
	}
	var own grants
	if data, err := cs.Read(aheadKey); err == nil {
		own = data.(grants)
	} else {
		own = p.grants(ctx, cs, node)
	}
	q.state = copied(q.state)
	charge(q.state, own)
	served := map[types.UID]bool{} // also those of the pod itself: its gang may share them
	for _, c := range p.claims {
		served[c.UID] = true
	}
	for _, pod := range startersOf(cs) {
		wants := slices.DeleteFunc(p.open(claimsOf(p.dra, pod)), func(c *resourcev1.ResourceClaim) bool {
			return served[c.UID]
		})
		if len(wants) == 0 {
			continue
		}
		got := q.narrowed(ctx, wants, make([]bool, len(q.site.Devices)))
		if len(got) != len(wants) {
			return fwk.NewStatus(fwk.Unschedulable).WithError(&kept{pod.Namespace + "/" + pod.Name})
		}
		for _, c := range wants {
			served[c.UID] = true
		}
		charge(q.state, got)
	}
	return nil
}

// charge adds devices to what is allocated, as release takes them out.
func charge(state *structured.AllocatedState, granted grants) {
	for i := range granted {
		for j := range granted[i].Devices.Results {
			d := &granted[i].Devices.Results[j]
			id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
			switch {
			case ptr.Deref(d.AdminAccess, false):
			case d.ShareID == nil:
				state.AllocatedDevices.Insert(id)
			default:
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, d.ShareID))
				if d.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, d.ConsumedCapacity))
				}
			}
		}
	}
}

// kept is the refusal of a node whose devices are kept for a pod.
type kept struct{ pod string }

// Error returns the reason with its detail.
func (k *kept) Error() string { return why.InsufficientClaimDevices.Entry().Text + ": " + k.detail() }

func (k *kept) detail() string { return "the free devices are kept for pod " + k.pod }

// Finding returns the reason, for explanations.
func (k *kept) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: why.InsufficientClaimDevices, Unit: why.Count}, Detail: k.detail()}
}

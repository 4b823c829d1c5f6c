package claims

import (
	"context"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
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

// grants are what a pod gets for its claims.
type grants []resourcev1.AllocationResult

// getting is what the pod of a cycle gets of a node now. It is never changed in place.
type getting struct {
	open    []*resourcev1.ResourceClaim // its claims that had no devices
	granted grants                      // what these get, in their order; fewer where devices lack
	// rest is what it gets without claims; without devices where no driver publishes cards of the node.
	rest ledger.Entry
}

// Clone returns g.
func (g *getting) Clone() fwk.StateData { return g }

// LookAhead begins to look at a later time of a node: the pod of the cycle has the very devices there that it would get
// now. Pods that leave until then are removed afterwards, and pods are added that start then.
func LookAhead(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node *corev1.Node) {
	if p := anyPlanOf(cs); p != nil {
		own := &getting{}
		if r := p.room(cs, node); r != nil {
			own, _ = r.serve(ctx, cs, pod)
		}
		cs.Write(aheadKey, own)
	}
}

// serve gives the pod of a cycle what it would get: first for its claims, then without. It returns false where too
// little is left for the latter.
func (r *room) serve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod) (g *getting, fits bool) {
	g, fits = &getting{}, true
	if g.open = inOrder(ctx, r.open(r.claims, pod, r.node)); len(g.open) > 0 {
		g.granted = r.narrowed(ctx, g.open, make([]bool, len(r.site.Devices)))
		if len(g.granted) == len(g.open) && r.view != nil {
			g.granted = r.choose(ctx, g.open, g.granted)
		}
		r.give(g.open, g.granted)
	}
	if r.cards != nil && r.others.AsksForDevices(pod) != nil {
		g.rest, fits = r.others.Offered(cs, pod, r.node.Name, r.account)
		r.put(g.rest)
	}
	return g, fits
}

// open returns those of the claims of a pod that have no devices yet, with what it gets for extended resources of a
// node.
func (p *plan) open(claims []*resourcev1.ResourceClaim, pod *corev1.Pod, node *corev1.Node,
) []*resourcev1.ResourceClaim {
	open := slices.DeleteFunc(slices.Clone(claims), func(c *resourcev1.ResourceClaim) bool {
		return c.Status.Allocation != nil || p.dra.ResourceClaims().GetPendingAllocation(c.UID) != nil
	})
	if own := p.extended(pod, node); own != nil {
		open = append(open, own)
	}
	return open
}

// refusal returns the refusal of a node whose devices do not suffice for the pod of the cycle, by its claims and
// without, and for the pods that the node is kept for, without the victims; nil where they do.
func (p *plan) refusal(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node *corev1.Node) *fwk.Status {
	r := p.room(cs, node)
	if r == nil {
		return nil
	}
	before := r.left()
	if data, err := cs.Read(aheadKey); err == nil {
		own := data.(*getting)
		r.give(own.open, own.granted)
		r.put(own.rest)
	} else if _, fits := r.serve(ctx, cs, pod); !fits && p.both {
		return fwk.NewStatus(fwk.Unschedulable).WithError(errBoth)
	}
	after := r.left()
	if p.cardsAlone && after == before {
		return nil
	}
	served := map[types.UID]bool{} // also those of the pod itself: its gang may share them
	for _, c := range p.claims {
		served[c.UID] = true
	}
	for _, starter := range startersOf(cs) {
		wants := p.open(claimsOf(p.dra, starter), starter, node)
		wants = slices.DeleteFunc(wants, func(c *resourcev1.ResourceClaim) bool { return served[c.UID] })
		fits := true
		if len(wants) > 0 {
			got := r.narrowed(ctx, wants, make([]bool, len(r.site.Devices)))
			fits = len(got) == len(wants)
			r.give(wants, got)
		}
		// As with place.Promise, a pod that waits for others to leave keeps all that is free of the types it asks for.
		asked := p.others.AsksForDevices(starter)
		if fits && asked != nil && takesAny(asked.Devices.Types(), before, after) {
			offer, reason := place.Try(r.account, asked)
			if fits = reason.OK(); fits {
				r.put(offer.Entry)
			}
		}
		if !fits {
			return fwk.NewStatus(fwk.Unschedulable).WithError(kept(starter))
		}
		for _, c := range wants {
			served[c.UID] = true
		}
	}
	return nil
}

// room is what a node has of devices at a time: a question whose state changes as they are given.
type room struct {
	*question
	*cards // nil where no driver publishes cards that pods can get without claims
}

// room returns what a node has without the pods that have left; nil where that is not known.
func (p *plan) room(cs fwk.CycleState, node *corev1.Node) *room {
	q := p.ask(cs, node, true, true)
	if q.state == nil {
		return nil
	}
	q.state = copied(q.state)
	r := &room{q, p.cards(cs, node.Name)}
	if r.cards != nil {
		r.account = victimsOf(cs).removedFrom(r.account)
	}
	return r
}

// left returns the account of what is left; nil where no driver publishes cards that pods can get without claims.
func (r *room) left() *ledger.View {
	if r.cards == nil {
		return nil
	}
	return r.account
}

// takesAny reports whether less is free of some types of devices than before.
func takesAny(types []device.Type, before, after *ledger.View) bool {
	return before != after && !reflect.DeepEqual(before.Devices().Rest(types), after.Devices().Rest(types))
}

// put gives a pod what it gets without claims.
func (r *room) put(e ledger.Entry) {
	if r.cards != nil && len(e.Devices) > 0 {
		r.account = r.account.With(e)
		r.hide(r.state)
	}
}

// give gives devices to claims.
func (r *room) give(claims []*resourcev1.ResourceClaim, got grants) {
	for i := range got {
		charge(r.state, &got[i])
		if r.cards == nil {
			continue
		}
		promised := *claims[i]
		promised.Status.Allocation = &got[i]
		if e, ok := r.books.claims.Entries(&promised)[r.node.Name]; ok {
			r.account = r.account.With(e)
		}
	}
}

// errBoth is the refusal of a node that has enough cards for the claims of a pod, and enough for what it requests
// beside them, but not for both.
var errBoth = &lacking{
	why.InsufficientClaimDevices, "its claims and its other requests for devices need more cards together",
}

// lacking is a refusal for devices.
type lacking struct {
	code   why.Code
	detail string
}

// Error returns the reason with its detail.
func (l *lacking) Error() string { return l.code.Entry().Text + ": " + l.detail }

// Finding returns the reason, for explanations.
func (l *lacking) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: l.code}, Detail: l.detail}
}

// kept is the refusal of a node whose devices are kept for a pod.
func kept(pod *corev1.Pod) *lacking {
	return &lacking{why.DevicesKept, pod.Namespace + "/" + pod.Name}
}

package placement

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
)

// reserveAttempts is how often Reserve computes an offer. An informer's event can change the account between offer and
// commit. If that happens twice in a row, the pod returns to the queue.
const reserveAttempts = 2

// Reserve commits the exact CPUs and devices to the live account, once under all names of the profile. If the account
// has changed during the cycle, another node may still do, and no event would wake the pod: that is an error, which the
// queue retries, and not a refusal. A pod on trial is reserved in its trial alone.
func (p *Plugin) Reserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	s := Read(cs)
	if s == nil || s.reserved != "" {
		return nil
	}
	asked := State[*claimed](cs, claimedKey).on(node, s.Request)
	request := State[*joint](cs, jointKey).on(node, asked)
	if s.trial != nil {
		view := s.View(node)
		offer, reason := p.tryWithin(cs, view, request, pod, node)
		if !reason.OK() {
			return (&Refusal{Reason: reason}).Status()
		}
		s.trial.Put(node, offer.Entry)
		s.Offer, s.view, s.reserved = offer, view, node
		return nil
	}
	start := time.Now()
	defer func() { p.metrics.place.WithLabelValues("Reserve").Observe(time.Since(start).Seconds()) }()
	status := fwk.AsStatus(ledger.ErrExpired)
	for range reserveAttempts {
		view := p.store.View(node)
		offer, reason := p.tryWithin(cs, view, request, pod, node)
		if !reason.OK() {
			refused := &Refusal{Reason: reason}
			status = fwk.AsStatus(refused)
			if fits := place.Fits(view, asked); fits.OK() {
				p.metrics.mismatches.Inc() // the summary promised what the exact answer refuses
				status = refused.Status()
			}
			p.metrics.commit("refused")
			continue
		}
		if follows(offer) { // before others can see its entry: they must know that it is not bound
			p.tracker.Order.Add(node, pod.UID)
		}
		err := p.store.Commit(node, offer)
		if err == nil {
			s.Offer, s.view, s.reserved = offer, view, node
			p.metrics.commit("ok")
			p.metrics.granted(view.Devices(), offer.Entry.Devices)
			p.metrics.Decided(p.name, "granted")
			p.tracker.Reserved(pod.UID, view, offer)
			return nil
		}
		p.tracker.Order.Leave(node, pod.UID)
		if !errors.Is(err, ledger.ErrExpired) {
			return fwk.AsStatus(err)
		}
		p.metrics.commit("expired")
		status = fwk.AsStatus(err)
	}
	return status
}

// try makes an offer on the view. It first leaves room for the nominated pods of the node whose priority is not lower,
// as Filter did. If there is none, or if it predicts a kubelet, which knows nothing of nominations, it makes one
// without them.
func (d *decision) try(v *ledger.View, r *place.Request, pod *corev1.Pod, node string) (ledger.Offer, why.Reason) {
	promised := v
	for _, info := range d.handle.NominatedPodsForNode(node) {
		nominated := info.GetPod()
		if nominated.UID == pod.UID || corev1helpers.PodPriority(nominated) < corev1helpers.PodPriority(pod) {
			continue
		}
		if _, held := v.Entry(string(nominated.UID)); held {
			continue
		}
		if e, ok := d.expect(promised, nominated); ok {
			promised = promised.With(e)
		}
	}
	if promised != v {
		if offer, reason := d.offer(node, promised, r); reason.OK() && !follows(offer) {
			offer.Version = v.Version()
			return offer, reason
		}
	}
	return d.offer(node, v, r)
}

// tryWithin is try for a pod that may use a Reservation. It first offers what the Reservation holds. If that does not
// suffice and the Reservation is not restricted, it offers that and what the node has free.
func (d *decision) tryWithin(cs fwk.CycleState, v *ledger.View, r *place.Request, pod *corev1.Pod, node string,
) (ledger.Offer, why.Reason) {
	uid, restricted := "", false
	if d.others != nil {
		uid, restricted = d.others.Chosen(cs, node)
	}
	return d.tryInside(v, r, pod, node, uid, restricted)
}

// tryInside is tryWithin for a pod that uses the Reservation with this UID; "" for none.
func (d *decision) tryInside(v *ledger.View, r *place.Request, pod *corev1.Pod, node, uid string, restricted bool,
) (ledger.Offer, why.Reason) {
	if uid == "" {
		return d.try(v, r, pod, node)
	}
	own := *r
	own.Options.Within = nil // the devices that a gang would have together are others than those that are reserved
	offer, reason := d.try(v.Inside(uid), &own, pod, node)
	if !reason.OK() && !restricted {
		offer, reason = d.try(v.Without(uid), r, pod, node)
	}
	// The offer was computed on a changed copy, but is committed to the account v.
	offer.Entry.Within, offer.Version = uid, v.Version()
	return offer, reason
}

// offer is place.Try with the profile's ranking of devices in the request.
func (d *decision) offer(node string, v *ledger.View, r *place.Request) (ledger.Offer, why.Reason) {
	return place.Try(v, d.Ranked(node, v, r))
}

// Ranked returns what a pod asks of a node, with the profile's ranking of devices.
func (d *decision) Ranked(node string, v *ledger.View, r *place.Request) *place.Request {
	if d.sharing.Rank == nil || r.Devices == nil || v.Devices() == nil {
		return r
	}
	with := *r
	d.sharing.Rank(node, v, r, &with.Options)
	return &with
}

// Question returns what a pod asks of a node, and the node's account without the pod, for explanations. Both are nil
// for a pod that asks for no devices or cannot be parsed, and for an unknown node.
func (d *decision) Question(pod *corev1.Pod, node string) (*ledger.View, *place.Request) {
	v := d.store.Known(node)
	r, refused := d.request(pod)
	if v == nil || refused != nil || r.Devices == nil {
		return nil, nil
	}
	return v.Without(string(pod.UID)), r
}

// Unreserve reverts the reservation. A second call, or one without a reservation, does nothing. After another binder
// has failed, a read decides whether the pod is bound all the same: then it keeps what it has.
func (p *Plugin) Unreserve(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) {
	s := Read(cs)
	if s == nil || s.reserved == "" {
		return
	}
	if s.trial != nil {
		s.trial.Take(node, s.Request.UID)
		s.Offer, s.view, s.reserved = ledger.Offer{}, nil, ""
		return
	}
	if s.recorded && p.isBound(ctx, pod, node, time.Now()) {
		return
	}
	p.store.Revert(s.reserved, s.Offer)
	p.tracker.Unreserved(pod.UID)
	if follows(s.Offer) {
		p.tracker.Order.GiveUp(s.reserved, pod.UID)
	}
	s.Offer, s.view, s.reserved = ledger.Offer{}, nil, ""
}

// follows reports whether the offer predicts what the kubelet of a node gives, rather than deciding it. Such pods must
// be bound in the order of their offers.
func follows(o ledger.Offer) bool { return o.Entry.Guest != nil && o.Entry.Guest.Prediction != nil }

// renewAttempts is how often renew predicts a pod. Each attempt fails if another pod is reserved on the node meanwhile.
const renewAttempts = 8

// renew predicts a reserved pod again on the account without the pods that are not bound yet: pods that were expected
// to reach the kubelet before it do not come, or come later. If the prediction has changed, the account and the cycle
// get the new one. After an error the pod must be scheduled again.
func (d *decision) renew(s *Cycle) error {
	err := ledger.ErrExpired
	for range renewAttempts {
		view, bound := d.tracker.Order.Bound(s.reserved, d.store.View)
		offer, reason := place.Try(bound.Without(s.Request.UID), s.Request)
		if !reason.OK() {
			return &Refusal{Reason: reason}
		}
		if !follows(offer) {
			break // the node is another one now
		}
		next, was := offer.Entry.Guest.Prediction, s.Offer.Entry.Guest.Prediction
		if reflect.DeepEqual(next.Held, was.Held) {
			return nil
		}
		offer.Version = view.Version()
		offer.Entry.Devices = s.Offer.Entry.Devices // they are the pod's already
		if err = d.store.Amend(s.reserved, s.Offer, offer); err == nil {
			s.Offer = offer
			return nil
		}
		if !errors.Is(err, ledger.ErrExpired) {
			break
		}
	}
	return fmt.Errorf("predict pod %s/%s again on node %s: %w", s.Request.Namespace, s.Request.Name, s.reserved, err)
}

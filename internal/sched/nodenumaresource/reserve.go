package nodenumaresource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
)

// reserveAttempts: an account can move between the offer and its commit (an informer event); twice in a row means that
// the pod should be tried anew.
const reserveAttempts = 2

// Reserve chooses the exact CPUs on the live account and takes them. When the account has moved under the cycle, another
// node may still do and no event would wake the pod: that is an error, which the queue retries, and not a refusal.
func (p *Plugin) Reserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	s := read(cs)
	if s == nil {
		return nil
	}
	start := time.Now()
	defer func() { p.metrics.observePlace("Reserve", time.Since(start)) }()
	status := fwk.AsStatus(ledger.ErrExpired)
	for range reserveAttempts {
		view := p.store.View(node)
		offer, reason := place.Try(view, s.request)
		if !reason.OK() {
			refused := &refusal{Reason: reason}
			status = fwk.AsStatus(refused)
			if fits := place.Fits(view, s.request); fits.OK() {
				p.metrics.mismatch() // the summary promised what the exact answer refuses
				status = refused.status()
			}
			p.metrics.commit(committedRefused)
			continue
		}
		if follows(offer) { // before others can see its entry: they must know that it is not bound
			p.tracker.turns.take(node, pod.UID)
		}
		err := p.store.Commit(node, offer)
		if err == nil {
			p.metrics.commit(committedOK)
			p.metrics.Decided(Name, "granted")
			s.offer, s.view, s.reserved = offer, view, node
			p.tracker.reserved(pod.UID, node, view, offer)
			return nil
		}
		p.tracker.turns.leave(node, pod.UID)
		if !errors.Is(err, ledger.ErrExpired) {
			return fwk.AsStatus(err)
		}
		p.metrics.commit(committedExpired)
		status = fwk.AsStatus(err)
	}
	return status
}

// Unreserve takes the reservation back; a second call, or one without reservation, does nothing.
func (p *Plugin) Unreserve(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) {
	s := read(cs)
	if s == nil || s.reserved == "" {
		return
	}
	p.store.Revert(s.reserved, s.offer)
	p.tracker.unreserved(pod.UID)
	if follows(s.offer) {
		p.tracker.turns.giveUp(s.reserved, pod.UID)
	}
	s.offer, s.view, s.reserved = ledger.Offer{}, nil, ""
}

// follows reports whether an offer tells what a kubelet will choose.
func follows(o ledger.Offer) bool { return o.Entry.Guest != nil && o.Entry.Guest.Prediction != nil }

// renewAttempts: other pods are reserved on the node while one of it is predicted anew.
const renewAttempts = 8

// renew predicts a reserved pod once more, on those that are bound and not on those that wait: pods that the kubelet was
// to meet before it do not come, or come later. After an error the pod must be tried anew.
func (p *Plugin) renew(s *state) error {
	err := ledger.ErrExpired
	for range renewAttempts {
		view := p.store.View(s.reserved) // before the line: an entry that is in it and waits is left out
		bound := view.Without(s.request.UID)
		for _, uid := range p.tracker.turns.waiting(s.reserved) {
			bound = bound.Without(string(uid))
		}
		offer, reason := place.Try(bound, s.request)
		if !reason.OK() {
			return &refusal{Reason: reason}
		}
		if !follows(offer) {
			break // the node is another one now
		}
		if slices.EqualFunc(offer.Entry.Guest.Prediction.Held, s.offer.Entry.Guest.Prediction.Held, ledger.Held.Equal) {
			return nil
		}
		offer.Version = view.Version()
		if err = p.store.Amend(s.reserved, s.offer, offer); err == nil {
			s.offer = offer
			return nil
		}
		if !errors.Is(err, ledger.ErrExpired) {
			break
		}
	}
	return fmt.Errorf("predict pod %s/%s anew on node %s: %w", s.request.Namespace, s.request.Name, s.reserved, err)
}

package nodenumaresource

import (
	"context"
	"errors"
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
		err := p.store.Commit(node, offer)
		if err == nil {
			p.metrics.commit(committedOK)
			p.metrics.Decided(Name, "granted")
			s.offer, s.view, s.reserved = offer, view, node
			p.tracker.reserved(pod.UID, node, view, offer)
			if g := offer.Entry.Guest; g != nil && g.Prediction != nil {
				p.tracker.turns.take(node, pod.UID)
			}
			return nil
		}
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
	p.tracker.turns.leave(s.reserved, pod.UID)
	s.offer, s.view, s.reserved = ledger.Offer{}, nil, ""
}

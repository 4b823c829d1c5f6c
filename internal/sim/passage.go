package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
)

// passage is the time of an engine. When it passes, pods leave their nodes as they are due, and after each change the
// engine decides about all pods that wait.
type passage struct {
	engine *engine
	at     time.Time
	due    []departure // by time
	load   usage
	// left is called with each pod before it leaves; nil for no call.
	left func(*corev1.Pod)
}

// departure is when a pod leaves its node.
type departure struct {
	at  time.Time
	pod *corev1.Pod
}

// Now returns the time.
func (p *passage) Now() time.Time { return p.at }

// leave notes when a pod leaves.
func (p *passage) leave(d departure) {
	i, _ := slices.BinarySearchFunc(p.due, d, func(a, b departure) int {
		if order := a.at.Compare(b.at); order != 0 {
			return order
		}
		return strings.Compare(string(a.pod.UID), string(b.pod.UID))
	})
	p.due = slices.Insert(p.due, i, d)
}

// pass lets the time until to pass, and applies what happens before it.
func (p *passage) pass(ctx context.Context, to time.Time) error {
	for !p.at.IsZero() && p.at.Before(to) {
		next := to
		if at := p.gangsDue(); at.After(p.at) && at.Before(next) {
			next = at
		}
		if len(p.due) > 0 && p.due[0].at.Before(next) {
			next = p.due[0].at
		}
		p.load.pass(next.Sub(p.at))
		p.reach(next)
		for len(p.due) > 0 && !p.due[0].at.After(next) { // all that leave at once, before others take their room
			gone := p.due[0].pod
			p.due = p.due[1:]
			p.drop(gone)
		}
		if err := p.decideAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// gangsDue returns when the waiting time of a gang ends next; zero for never.
func (p *passage) gangsDue() (at time.Time) {
	p.engine.gangs.Read(func(s *gang.State) { at, _ = s.Deadline() })
	return at
}

// reach sets the time, also for the engine.
func (p *passage) reach(at time.Time) {
	p.at = at
	if clock := p.engine.api.clock; clock.now.Before(at) {
		clock.now = at
	}
}

// decideAll lets the engine decide about all pods that wait.
func (p *passage) decideAll(ctx context.Context) error {
	coscheduling.Expire(p.engine.gangs, p.at)
	p.engine.finishDecided(ctx)
	p.engine.retryExhausted(ctx)
	if err := p.engine.run(ctx); err != nil {
		return err
	}
	if len(p.engine.api.reservations.List()) > 0 {
		p.engine.reconcileReservations(ctx)
	}
	p.load.read()
	return nil
}

// drop takes a pod out of the cluster, if it is there.
func (p *passage) drop(pod *corev1.Pod) {
	api := p.engine.api
	o, known, _ := api.pods.GetStore().Get(pod)
	if !known || o.(*corev1.Pod).UID != pod.UID {
		return
	}
	if p.left != nil {
		p.left(o.(*corev1.Pod))
	}
	api.leave(o.(*corev1.Pod))
}

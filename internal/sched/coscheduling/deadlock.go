package coscheduling

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
)

const (
	// mostHolders bounds the gangs that are looked at, the most important ones.
	mostHolders = 20
	// lookAgain is how long an answer that none could start holds where the same gangs hold the same.
	lookAgain = time.Minute
)

// deadlocks is what is known of NonStrict gangs that keep each other from starting. It belongs to the scheduling loop,
// apart from requested.
type deadlocks struct {
	cluster   *Cluster
	planner   *planner
	evictions *Evictions
	// requested makes the next cycle of a pod that starts alone look for deadlocks. Any goroutine may set it.
	requested atomic.Bool
	// holders are the gangs of the last look, if it helped none of them; else nil.
	holders []gang.Holder
	// checked is when the last look was.
	checked time.Time
	// releases counts how often gangs released what they held for the sake of another.
	releases int
}

// LookForDeadlocks makes the next cycle of a pod that starts without others look whether NonStrict gangs keep each
// other from starting, and sees that there is one. It returns false, and does nothing, where none holds a reservation.
// Any goroutine may call it.
func (r *Rounds) LookForDeadlocks(logger klog.Logger) bool {
	gangs := r.cluster.Gangs
	for _, h := range kube.Ask(gangs, func(s *gang.State) []gang.Holder { return s.Holders(mostHolders) }) {
		for _, uid := range h.Plan.Members {
			if pod := gangs.Pod(uid); pod != nil {
				r.deadlocks.requested.Store(true)
				r.cluster.Core.Queue().Activate(logger, map[string]*corev1.Pod{
					pod.Namespace + "/" + pod.Name: pod,
				})
				return true
			}
		}
	}
	return false
}

// Releases returns how often gangs gave back what they held for the sake of another.
func (r *Rounds) Releases() int { return r.deadlocks.releases }

// resolveIfRequested is resolve, where LookForDeadlocks was called since the last time.
func (d *deadlocks) resolveIfRequested(ctx context.Context) {
	if d.requested.Swap(false) {
		d.resolve(ctx)
	}
}

// resolve lets NonStrict gangs give back what another one needs, where none can start as it is.
func (d *deadlocks) resolve(ctx context.Context) {
	holders := kube.Ask(d.cluster.Gangs, func(s *gang.State) []gang.Holder { return s.Holders(mostHolders) })
	same := slices.EqualFunc(holders, d.holders, func(a, b gang.Holder) bool {
		return a.Key == b.Key && slices.Equal(a.Reserved, b.Reserved) && slices.Equal(a.Plan.Members, b.Plan.Members)
	})
	if same && d.cluster.Clock.Now().Sub(d.checked) < lookAgain {
		return
	}
	d.holders, d.checked = holders, d.cluster.Clock.Now()
	// The attempts are on the snapshot of the cycle under way.
	winner, released := gang.Resolve(len(holders), func(h int, without []int) bool {
		var others []string
		for _, o := range without {
			others = append(others, holders[o].Reserved...)
		}
		return d.couldStart(ctx, holders[h], others)
	})
	var behind []string
	for _, o := range released {
		behind = append(behind, holders[o].Key)
	}
	if len(behind) > 0 {
		klog.FromContext(ctx).V(2).Info("Gangs give back what another one needs to start", "gangs",
			holders[winner].Key, "behind", behind)
		d.releases++
		d.holders = nil
		d.cluster.Gangs.Update(func(s *gang.State) gang.Effects { return s.Release(holders[winner].Key, behind) })
	}
}

// couldStart reports whether a gang would have its minimum without these reserved pods of others: on nodes, in their
// accounts, and in quotas. The pods are victims of an attempt that is always rolled back: nothing is evicted, and the
// members keep what they hold.
func (d *deadlocks) couldStart(ctx context.Context, h gang.Holder, without []string) bool {
	m := d.planner.restOf(ctx, h.Plan)
	if len(m.order) == 0 {
		return false
	}
	p := d.evictions.newPreemption(ctx, m, nil, nil)
	p.prepare()
	defer d.planner.domains.release(p.profile(m.order[0])) // the next question is about all nodes again
	defer p.rollback(0)
	for _, uid := range without {
		info, _ := p.find(d.cluster.Gangs.Pod(uid))
		if info == nil {
			return false
		}
		p.removeVictims(&unit{pods: []fwk.PodInfo{info}})
	}
	// The first domains count that may have the room without the removed pods.
	for p.places = range d.planner.placesWithout(m, d.planner.below(m, m.plan.DomainRequests)) {
		failed, _ := p.plan.Try(m.order, func(uid string) bool {
			if !p.plan.Lacks(uid) {
				return false // members beyond the minimum follow later
			}
			_, err := p.try(uid)
			return err == nil
		})
		p.quotas = p.tryQuotas()
		return failed == "" && p.admitted() && !p.broken
	}
	return false
}

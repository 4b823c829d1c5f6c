package coscheduling

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/domain"
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
	for _, h := range kube.Ask(r.Gangs, func(s *gang.State) []gang.Holder { return s.Holders(mostHolders) }) {
		for _, lack := range h.Lacks {
			for _, uid := range lack.Pending {
				if pod := r.Gangs.Pod(uid); pod != nil {
					r.deadlocks.requested.Store(true)
					r.Core.SchedulingQueue.Activate(logger, map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
					return true
				}
			}
		}
	}
	return false
}

// Releases returns how often gangs gave back what they held for the sake of another.
func (r *Rounds) Releases() int { return r.deadlocks.releases }

// resolve lets NonStrict gangs give back what another one needs, where none can start as it is.
func (r *Rounds) resolve(ctx context.Context) {
	holders := kube.Ask(r.Gangs, func(s *gang.State) []gang.Holder { return s.Holders(mostHolders) })
	if reflect.DeepEqual(holders, r.deadlocks.holders) && r.Now().Sub(r.deadlocks.checked) < lookAgain {
		return
	}
	r.deadlocks.holders, r.deadlocks.checked = holders, r.Now()
	// The attempts are on the snapshot of the cycle under way.
	winner, released := gang.Resolve(len(holders), func(h int, without []int) bool {
		var others []string
		for _, o := range without {
			others = append(others, holders[o].Reserved...)
		}
		return r.couldStart(ctx, holders[h], others)
	})
	var behind []string
	for _, o := range released {
		behind = append(behind, holders[o].Key)
	}
	if len(behind) > 0 {
		klog.FromContext(ctx).V(2).Info("Gangs give back what another one needs to start", "gangs",
			holders[winner].Key, "behind", behind)
		r.deadlocks.releases++
		r.deadlocks.holders = nil
		r.Gangs.Update(func(s *gang.State) gang.Effects { return s.Release(holders[winner].Key, behind) })
	}
}

// couldStart reports whether a gang would have its minimum without these reserved pods of others: on nodes, in their
// accounts, and in quotas. The pods are victims of an attempt that is always rolled back: nothing is evicted, and the
// members keep what they hold.
func (r *Rounds) couldStart(ctx context.Context, h gang.Holder, without []string) bool {
	m := &members{pods: map[string]*framework.QueuedPodInfo{}}
	for _, lack := range h.Lacks {
		for _, uid := range lack.Pending {
			if m.pods[uid] = r.pending(ctx, r.Gangs.Pod(uid)); m.pods[uid] == nil {
				return false
			}
			m.order = append(m.order, uid)
		}
	}
	if len(m.order) == 0 {
		return false
	}
	p := r.newPreemption(ctx, m, nil, nil)
	p.prepare()
	defer p.rollback(0)
	for _, uid := range without {
		info, _ := p.find(r.Gangs.Pod(uid))
		if info == nil {
			return false
		}
		p.removeVictims(&unit{pods: []fwk.PodInfo{info}})
	}
	if p.places = r.placesToStart(m, h); p.places == nil {
		return false
	}
	for _, lack := range h.Lacks {
		left := lack.Members
		// A gang that has too few members left for what it lacks cannot start.
		for i, uid := range lack.Pending {
			if left == 0 || left > len(lack.Pending)-i {
				break
			}
			if _, err := p.try(uid); err == nil {
				left--
			}
		}
		if left > 0 {
			return false
		}
	}
	p.countInQuotas()
	return p.admitted() && !p.broken
}

// placesToStart returns the first domains in which the members that gangs lack may be placed; nil if there are none,
// and empty if they may be anywhere. It sees the snapshot without the pods that the caller has removed.
func (r *Rounds) placesToStart(m *members, h gang.Holder) map[string]*place {
	var requests []*domain.Request
	for _, lack := range h.Lacks {
		if len(lack.Pending) == 0 {
			continue
		}
		request := func(s *gang.State) *domain.Request { return s.DomainRequest(lack.Pending[0]) }
		if g := kube.Ask(r.Gangs, request); g != nil {
			g.Members, g.Min = lack.Pending, lack.Members
			requests = append(requests, g)
		}
	}
	bound, f := onlyBound(requests), r.Core.Profiles[m.first().Spec.SchedulerName]
	for places := range r.domains.search(f, m, bound, r.below(m, bound)).places() {
		return places
	}
	return nil
}

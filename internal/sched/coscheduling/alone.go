package coscheduling

import (
	"context"
	"errors"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
)

// scheduleAlone schedules a pod that starts without others. A member whose gang has rules for domains is placed in the
// first domain, in the order of the search, that takes it: one where the other members that have yet to start may
// follow.
// A rule that must hold confines the pod to that domain, or to the largest one if none takes it, so that the refusal is
// of nodes where it may be; a rule that is only preferred lets it go anywhere in the end.
func (r *Rounds) scheduleAlone(ctx context.Context, f framework.Framework, state fwk.CycleState,
	pod *framework.QueuedPodInfo,
) (loop.Result, error) {
	uid := string(pod.Pod.UID)
	g := kube.Ask(r.cluster.Gangs, func(s *gang.State) *domain.Request { return s.DomainRequest(uid) })
	if g == nil {
		return r.planner.schedule(ctx, f, state, pod)
	}
	// must is true if a rule of the gang confines the pod. found has the domains, best first.
	m, must := r.planner.membersBeside(pod, g), g.Bound() != (domain.Rule{})
	found := r.planner.domains.search(f, m, []*domain.Request{g}, nil)
	chosen := r.planner.firstPlace(ctx, m, found, must)
	r.planner.domains.release(f)
	switch {
	case chosen == nil && must:
		return unplaced(state, r.refusalOf(pod.Pod, gang.Refusal{
			Code: why.GangSiblingFailed, Gang: r.cluster.Gangs.GangOf(pod.Pod), Need: 1, Tried: found.unsatisfiedRule(),
		}))
	case chosen == nil:
		return r.planner.schedule(ctx, f, state, pod)
	}
	if chosen.mark != nil {
		chosen.mark(state)
	}
	if err := r.planner.domains.confine(f, &chosen.parts[0]); err != nil {
		return loop.Result{}, err
	}
	result, err := r.planner.schedule(ctx, f, state, pod)
	// The preferred domain refused the pod after all: it may go anywhere.
	if err != nil && !must {
		r.planner.domains.release(f)
		return r.planner.schedule(ctx, f, state, pod)
	}
	// Later members of the gang get devices next to those of this one first.
	if r.planner.domains.jointDevices = nil; err == nil && chosen.mark != nil {
		r.planner.domains.jointDevices = chosen
	}
	if fit := (*framework.FitError)(nil); errors.As(err, &fit) {
		// The nodes outside of the domain count as refused by the gang's rule, so that the report is of all nodes.
		elsewhere := fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&refusal{gang.Refusal{
			Code: why.GangOtherDomain, Text: why.GangOtherDomain.Entry().Text,
		}})
		elsewhere.SetPlugin(Name)
		fit.NumAllNodes = len(found.sites[0])
		fit.Diagnosis.NodeToStatus.SetAbsentNodesStatus(elsewhere)
		fit.Diagnosis.UnschedulablePlugins = fit.Diagnosis.UnschedulablePlugins.Union(
			sets.New(Name, names.NodeResourcesFit))
	}
	return result, err
}

// firstPlace returns the first place that takes the pod that is tried first. If none does, it returns the largest one
// where the pod must be in one of them, else nil. The last place of a request without a rule that must hold is the
// whole cluster, which it does not try.
func (pl *planner) firstPlace(ctx context.Context, m *members, found *search, must bool) (chosen *place) {
	uid := m.order[0]
	for places := range pl.jointDevicesFirst(found, uid) {
		next := places[uid]
		nodes := next.parts[0].nodes.Len()
		if !must && next.mark == nil && nodes == len(found.sites[0]) {
			break
		}
		if must && (chosen == nil || nodes > chosen.parts[0].nodes.Len()) {
			chosen = next
		}
		// The only domain need not be tried: the pod is confined to it in any case.
		if must && next.many == 1 && len(next.Rules) == 1 {
			break
		}
		a := pl.attempt(ctx, m, places, nil)
		_, err := a.try(uid)
		if a.rollback(0); err == nil {
			return next
		}
	}
	return chosen
}

// membersBeside returns a pod that is tried by itself with the other members of its gang, of which a search for domains
// reads what they ask for.
func (pl *planner) membersBeside(pod *framework.QueuedPodInfo, g *domain.Request) *members {
	uid := string(pod.Pod.UID)
	m := &members{pods: map[string]*framework.QueuedPodInfo{uid: pod}, order: []string{uid}}
	for _, uid := range g.Members {
		other := pl.cluster.Gangs.Pod(uid)
		if other == nil || m.pods[uid] != nil || len(other.Spec.SchedulingGates) > 0 {
			continue
		}
		if info, err := framework.NewPodInfo(other); err == nil {
			m.pods[uid] = &framework.QueuedPodInfo{PodInfo: info}
		}
	}
	return m
}

// jointDevicesFirst yields the places of a search, and first where another member of the gang has chosen devices that
// are next to each other, unless all were given back since.
func (pl *planner) jointDevicesFirst(found *search, uid string) iter.Seq[map[string]*place] {
	return func(yield func(map[string]*place) bool) {
		joint := pl.domains.jointDevices
		follows := joint != nil && len(found.requests[0].Held) > 0 && slices.Contains(joint.Members, uid)
		if !follows || yield(map[string]*place{uid: joint}) {
			found.places()(yield)
		}
	}
}

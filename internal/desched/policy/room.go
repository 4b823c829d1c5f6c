package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/desched/policy/plugin"
	"github.com/tenon-project/tenon/internal/view"
)

// Waiting returns the pods, and the gangs, that the scheduler finds no node for, the highest priority first, then those
// that wait longest. Left out are those for which a job has made room, or tries to, until the job is deleted.
func (n *round) Waiting() (all []plugin.Waiting) {
	served := map[string]bool{}
	for _, j := range list[*v1alpha1.PodMigrationJob](n.Jobs) {
		room, _, _ := annotation.ParseMigrationRoom(j.Annotations[annotation.MigrationRoomKey])
		for _, p := range room.Pods {
			served[p.UID] = true
		}
	}
	gangs := map[types.UID]string{}
	n.Cluster.Read(func(s *evict.State) {
		for pod := range s.Pods() {
			if pod.Node == "" && pod.Gang != "" {
				gangs[types.UID(pod.UID)] = pod.Gang
			}
		}
	})
	done, byGang := map[string]bool{}, map[string]int{}
	for _, pod := range list[*corev1.Pod](n.Options.Pods.GetStore()) {
		gang := gangs[pod.UID]
		done[gang] = done[gang] || served[string(pod.UID)]
		since, waits := unscheduledSince(pod)
		if !waits || n.foreign(pod) != "" || served[string(pod.UID)] {
			continue
		}
		i, known := byGang[gang]
		if gang == "" || !known {
			i = len(all)
			byGang[gang], all = i, append(all, plugin.Waiting{Gang: gang, Since: since})
		}
		w := &all[i]
		w.Pods = append(w.Pods, pod)
		if since.Before(w.Since) {
			w.Since = since
		}
	}
	all = slices.DeleteFunc(all, func(w plugin.Waiting) bool { return w.Gang != "" && done[w.Gang] })
	for _, w := range all {
		slices.SortFunc(w.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	}
	slices.SortFunc(all, func(a, b plugin.Waiting) int {
		return cmp.Or(cmp.Compare(plugin.Priority(b.Pods[0]), plugin.Priority(a.Pods[0])), a.Since.Compare(b.Since),
			cmp.Compare(a.Pods[0].Namespace, b.Pods[0].Namespace), cmp.Compare(a.Pods[0].Name, b.Pods[0].Name))
	})
	return all
}

// unscheduledSince returns since when the scheduler has found no node for a pod; false for a pod that it has not tried,
// and for one that has a node or has ended.
func unscheduledSince(pod *corev1.Pod) (time.Time, bool) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || ended(pod) {
		return time.Time{}, false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			why.Refuses(c.Reason) {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// RoomFor asks which pods to move so that those that wait fit. Pods of a higher priority than theirs, pods that the
// evictors keep, and those of without are not moved.
func (n *round) RoomFor(ctx context.Context, w plugin.Waiting, without map[types.UID]bool, maxMoves int,
) (*view.RoomAnswer, error) {
	if n.Room == nil {
		return nil, errNoScheduler
	}
	request := &view.RoomRequest{Gang: w.Gang, MaxMoves: maxMoves}
	if w.Gang == "" {
		request.Pods = []string{w.Pods[0].Namespace + "/" + w.Pods[0].Name}
	}
	most := corev1helpers.PodPriority(w.Pods[0])
	return n.Room.PlanAmong(ctx, request, n.among(func(pod *corev1.Pod) string {
		switch priority := corev1helpers.PodPriority(pod); {
		case without[pod.UID]:
			return "it is not to move in this round"
		case priority > most:
			return fmt.Sprintf("its priority %d is above the %d of the pending pod", priority, most)
		}
		return ""
	}))
}

// Fragments asks which of some movable pods to move so that less of what is free is unusable.
func (n *round) Fragments(ctx context.Context, movable func(*corev1.Pod) bool, maxMoves int, minFall int64,
) (*view.RoomAnswer, error) {
	if n.Room == nil {
		return nil, errNoScheduler
	}
	return n.Room.Defragment(ctx, maxMoves, minFall, n.among(func(pod *corev1.Pod) string {
		if movable(pod) {
			return ""
		}
		return "the plugin does not look at it"
	}))
}

var errNoScheduler = errors.New("no scheduler is named that could say where pods fit")

// among returns what says why a pod may not be moved: what keeps it, or what the evictors say. Pods of other nodes, and
// those that were moved in the round, are kept.
func (n *round) among(keeps func(*corev1.Pod) string) func(*evict.Pod) []evict.Refusal {
	movable := n.byUID()
	return func(p *evict.Pod) []evict.Refusal {
		why, pod := "it is not to move in this round", movable[p.UID]
		if pod != nil {
			why = keeps(pod)
		}
		if why != "" {
			return []evict.Refusal{{Code: evict.Protected, Subject: why}}
		}
		refused, _ := n.refusals(pod, "")
		return refused
	}
}

// byUID returns the pods of the profile's nodes that were not moved in the round.
func (n *round) byUID() map[string]*corev1.Pod {
	all := map[string]*corev1.Pod{}
	for _, node := range n.nodes {
		for _, pod := range n.pods[node.Name] {
			all[string(pod.UID)] = pod
		}
	}
	return all
}

// MoveAll begins the moves of an answer, each to its node, for pods that wait; none where they are for no pod. It
// begins none where the evictors refuse one of them beside the others, and returns the pods that they refuse.
func (n *round) MoveAll(ctx context.Context, room *view.RoomAnswer, w plugin.Waiting, reason string,
) (refused []types.UID) {
	known := n.byUID()
	makes := annotation.MigrationRoom{}
	for _, p := range room.Placements {
		for _, pod := range w.Pods {
			if p.Pod == pod.Namespace+"/"+pod.Name {
				makes.Pods = append(makes.Pods, annotation.RoomPod{
					Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: p.Node,
				})
			}
		}
	}
	var moves []proposal
	for _, m := range room.Moves {
		pod := known[m.UID]
		if pod == nil {
			return []types.UID{types.UID(m.UID)}
		}
		move := proposal{pod: pod, target: m.Target}
		if len(makes.Pods) > 0 {
			move.room = annotation.Encode(makes)
		}
		moves = append(moves, move)
	}
	return n.move(ctx, moves, reason)
}

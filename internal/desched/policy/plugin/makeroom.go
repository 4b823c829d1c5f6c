package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/view"
)

// plans is how often the scheduler is asked about one pod that waits: limits that let each pod of a set go can refuse
// them together, and then another set is looked for.
const plans = 3

// newMakeRoom moves pods so that others fit that the scheduler has found no node for.
func newMakeRoom(a *descheduler.MakeRoomArgs, r Round) Plugin {
	inScope := among(a.Scope)
	return balance{"MakeRoom", func(ctx context.Context, _ []*corev1.Node) error {
		var failed []error
		asked := int32(0)
		for _, w := range r.Waiting() {
			if asked == a.MaxWaitingPerRound {
				break
			}
			if r.Now().Sub(w.Since) < a.PendingFor.Duration || !slices.ContainsFunc(w.Pods, inScope) {
				continue
			}
			asked++
			failed = append(failed, makeRoom(ctx, r, w, int(a.MaxMoves)))
		}
		return errors.Join(failed...)
	}}
}

// makeRoom moves pods for one pod or gang.
func makeRoom(ctx context.Context, r Round, w Waiting, maxMoves int) error {
	need, name := "pod", w.Pods[0].Namespace+"/"+w.Pods[0].Name
	if w.Gang != "" {
		need, name = "gang", w.Gang
	}
	without := map[types.UID]bool{}
	for range plans {
		room, err := r.RoomFor(ctx, w, without, maxMoves)
		if err != nil {
			return fmt.Errorf("make room for %s %s: %w", need, name, err)
		}
		if !room.Found || len(room.Moves) == 0 { // none helps, or the scheduler places the pod without one
			return nil
		}
		refused := r.MoveAll(ctx, room, w, "it makes room for "+need+" "+name)
		if len(refused) == 0 {
			return nil
		}
		for _, uid := range refused {
			without[uid] = true
		}
	}
	return nil
}

// newDefragment moves pods with which less of the free GPUs, and of the free CPUs of NUMA nodes, is unusable.
func newDefragment(a *descheduler.DefragmentArgs, r Round) Plugin {
	return targeted("Defragment", a.Target, func(ctx context.Context, t target, nodes []*corev1.Node) error {
		on := map[string]bool{}
		for _, node := range nodes {
			on[node.Name] = true
		}
		plan, err := r.Fragments(ctx, func(p *corev1.Pod) bool { return on[p.Spec.NodeName] && t.pod(p) },
			int(a.MaxMovesPerRound), int64(a.MinFall))
		if err != nil {
			return fmt.Errorf("find fragments: %w", err)
		}
		for _, m := range plan.Moves {
			one := &view.RoomAnswer{RoomPlan: view.RoomPlan{Moves: []view.RoomMove{m}}}
			reason := fmt.Sprintf("what is free and unusable falls by %d%% of a GPU or NUMA node", m.Fall)
			if len(r.MoveAll(ctx, one, Waiting{}, reason)) > 0 {
				break // each move counts on those before it
			}
		}
		return nil
	})
}

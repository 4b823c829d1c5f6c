package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/view"
)

// newDefragment moves pods with which less of the free GPUs, and of the free CPUs of NUMA nodes, is of no use.
func newDefragment(a *descheduler.DefragmentArgs, r Round) Plugin {
	return balance{"Defragment", func(ctx context.Context, nodes []*corev1.Node) error {
		if a.Paused {
			return nil
		}
		t := target{a.Target}
		on := map[string]bool{}
		for _, node := range t.selectNodes(nodes) {
			on[node.Name] = true
		}
		plan, err := r.Fragments(ctx, func(p *corev1.Pod) bool { return on[p.Spec.NodeName] && t.pod(p) },
			int(a.MaxMovesPerRound), int64(a.MinFall))
		if err != nil {
			return fmt.Errorf("find fragments: %w", err)
		}
		for _, m := range plan.Moves {
			one := &view.RoomAnswer{RoomPlan: view.RoomPlan{Moves: []view.RoomMove{m}}}
			reason := fmt.Sprintf("what is free and of no use falls by %d%% of a GPU or NUMA node", m.Fall)
			if len(r.MoveAll(ctx, one, Waiting{}, reason)) > 0 {
				break // each move counts on those before it
			}
		}
		return nil
	}}
}

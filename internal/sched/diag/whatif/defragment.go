package whatif

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/defrag"
	"github.com/tenon-project/tenon/internal/view"
)

// targetsCompared is how many of the nodes that the scheduler ranks highest are compared for a pod.
const targetsCompared = 3

// lowering is a search for moves that lower the fragmentation. It is the defrag.Fragments of the search.
type lowering struct {
	*room
	// lost returns what of a node's free room is unusable, see Cluster.Lost.
	lost func(Trial, *corev1.Node, int64) int64
}

// defragment answers which pods to move so that less of what is free is unusable.
func (s *session) defragment(q *view.WhatIf, out *view.WhatIfAnswer) error {
	moves := cmp.Or(q.Ask.MaxMoves, defaultMoves)
	switch {
	case len(q.Changes) > 0 || len(q.Ask.Nodes) > 0 || len(q.Ask.Pods) > 0:
		return bad("changes, ask.nodes and ask.pods exclude mode %s", view.Defragment)
	case moves < 1 || moves > mostMoves:
		return bad("ask.maxMoves is %d, want 1 to %d", moves, mostMoves)
	case q.Ask.MinFall < 1:
		return bad("ask.minFall is %d, want 1 or more", q.Ask.MinFall)
	}
	l := &lowering{&room{session: s, movable: map[string]*corev1.Pod{}}, s.Lost()}
	all, err := s.nodes.List()
	if err != nil {
		return err
	}
	cost := costsOf(&q.Ask)
	var pods []defrag.Pod
	lost := map[string]int64{}
	for _, n := range all {
		name := n.Node().Name
		if lost[name], err = l.lostOn(name); err != nil {
			return err
		}
		if lost[name] > 0 {
			pods = append(pods, l.collectMovable(n, cost)...)
		}
	}
	// The search can end early: nodes that lose most come first.
	slices.SortStableFunc(pods, func(a, b defrag.Pod) int { return cmp.Compare(lost[b.Node], lost[a.Node]) })
	out.Room = &view.RoomPlan{Moves: []view.RoomMove{}, MaxMoves: moves, Proven: true}
	var steps []defrag.Step
	late, err := l.within(l.searchTime(), func() (err error) {
		steps, err = defrag.Improve(l, pods, moves, q.Ask.MinFall*perPercent)
		return err
	})
	if err != nil {
		return err
	}
	if late {
		out.Room.Bound, out.Room.Proven = s.searchTime().String(), false
	}
	out.Room.Found, out.Room.Looked = len(steps) > 0, len(pods)
	for _, m := range steps {
		pod := l.movable[m.UID]
		out.Room.Moves = append(out.Room.Moves, view.RoomMove{
			Pod: pod.Namespace + "/" + pod.Name, UID: m.UID, Node: m.Node, Target: m.Target, Cost: m.Cost,
			Priority: m.Priority, Fall: m.Fall / perPercent,
		})
	}
	return nil
}

// perPercent is a percent of a GPU, or of the CPUs of a NUMA node, in milli.
const perPercent = 10

// lostOn returns what of a node's free GPUs and CPUs is unusable.
func (l *lowering) lostOn(node string) (int64, error) {
	info, err := l.nodes.Get(node)
	if err != nil {
		return 0, err
	}
	free := info.GetAllocatable().GetMilliCPU() - info.GetRequested().GetMilliCPU()
	return l.lost(l.trial, info.Node(), free), nil
}

// Targets returns the nodes that the scheduler ranks highest for a pod, without its own.
func (l *lowering) Targets(uid string) ([]string, error) {
	l.restart()
	all, _, err := l.room.Targets(uid)
	return all[:min(len(all), targetsCompared)], err
}

// Try makes the moves on new copies of the accounts.
//
// Only the last move is judged, by what is lost on its two nodes before and after it: the search has judged those made
// before when they were the last.
func (l *lowering) Try(made []defrag.Move, m defrag.Move) (fall int64, works bool, err error) {
	l.restart()
	var uids []string
	for _, done := range append(slices.Clone(made), m) {
		uids = append(uids, done.UID)
	}
	// Reservation and pod exist side by side during a move, so the quotas must have room for both.
	if !l.admitsAgain(uids...) {
		return 0, false, l.ctx.Err()
	}
	for _, done := range made {
		if works, err = l.move(done); err != nil || !works {
			return 0, false, err
		}
	}
	before, err := l.both(m)
	if err != nil {
		return 0, false, err
	}
	if works, err = l.move(m); err != nil || !works {
		return 0, false, err
	}
	after, err := l.both(m)
	return before - after, true, err
}

// both is what is lost on the two nodes of a move.
func (l *lowering) both(m defrag.Move) (int64, error) {
	source, err := l.lostOn(m.Node)
	if err != nil {
		return 0, err
	}
	target, err := l.lostOn(m.Target)
	return source + target, err
}

// move places the successor of a pod, then removes the pod. Both are on their nodes for a moment, as in the cluster, so
// the successor gets nothing that the pod still holds.
func (l *lowering) move(m defrag.Move) (bool, error) {
	next, err := l.successor(l.movable[m.UID])
	if err != nil {
		return false, err
	}
	p, err := l.place(next, func(node string) bool { return node == m.Target })
	if p == nil || err != nil {
		return false, err
	}
	return true, l.remove(l.movable[m.UID])
}

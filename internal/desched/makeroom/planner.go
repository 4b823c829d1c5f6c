package makeroom

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/view"
)

// Planner finds moves that make room. Safe for concurrent use.
type Planner struct {
	Cluster Cluster
	Policy  *evict.Policy
	// Scheduler is nil where none can be asked: then Plan must not be called.
	Scheduler Scheduler
	Rounds    Rounds
	Clock     clock.PassiveClock
}

// Cluster is what is known of the cluster.
type Cluster interface {
	// Read calls a function with the state of all that the limits read.
	Read(func(*evict.State))
}

// Scheduler answers questions about other clusters.
type Scheduler interface {
	WhatIf(ctx context.Context, q *view.WhatIf) (*view.WhatIfAnswer, error)
}

// Rounds are those of the plugins.
type Rounds interface {
	// Last returns the last round, nil before the first one has ended.
	Last() *view.Round
}

// Bad is an error of the one who asks.
type Bad struct{ Text string }

// Error returns the text.
func (b *Bad) Error() string { return b.Text }

func bad(format string, args ...any) error { return &Bad{fmt.Sprintf(format, args...)} }

// Plan returns the smallest set of moves that makes room for the pods of a request, or why there is none. A request
// that cannot be answered is a *Bad.
func (p *Planner) Plan(ctx context.Context, r *view.RoomRequest) (*view.RoomAnswer, error) {
	return p.PlanAmong(ctx, r, func(pod *evict.Pod) (refused []evict.Refusal) {
		p.Cluster.Read(func(s *evict.State) {
			refused = s.CheckMove(p.Policy, evict.Move{PodUID: pod.UID}, p.Clock.Now())
		})
		return refused
	})
}

// PlanAmong is Plan with the placed pods that refusals has nothing against.
func (p *Planner) PlanAmong(ctx context.Context, r *view.RoomRequest, refusals func(*evict.Pod) []evict.Refusal,
) (*view.RoomAnswer, error) {
	if (len(r.Pods) > 0) == (r.Gang != "") {
		return nil, bad("name pods, or one gang")
	}
	out := &view.RoomAnswer{Pods: slices.Clone(r.Pods), Kept: []view.KeptPod{}}
	q := &view.WhatIf{Ask: view.Ask{Mode: view.MakeRoom, MaxMoves: r.MaxMoves}}
	var placed error
	var running []evict.Pod
	p.Cluster.Read(func(s *evict.State) {
		for pod := range s.Pods() {
			key := pod.Namespace + "/" + pod.Name
			if pod.Node != "" && slices.Contains(r.Pods, key) {
				placed = bad("pod %s is on node %s already", key, pod.Node)
			}
			switch {
			case pod.Succeeded || pod.Failed:
			case pod.Node != "":
				running = append(running, pod)
			case r.Gang != "" && pod.Gang == r.Gang && !pod.Terminating:
				out.Pods = append(out.Pods, key)
			}
		}
	})
	if placed != nil {
		return nil, placed
	}
	if len(out.Pods) == 0 {
		return nil, bad("gang %s has no pod without a node", r.Gang)
	}
	if r.Gang != "" {
		slices.Sort(out.Pods)
	}
	q.Ask.Pods = out.Pods
	err := p.ask(ctx, q, running, refusals, out)
	slices.SortFunc(out.Moves, func(a, b view.RoomMove) int { return strings.Compare(a.Pod, b.Pod) })
	return out, err
}

// Defragment returns moves of placed pods that refusals has nothing against, with each of which what is free and of no
// use falls by minFall.
func (p *Planner) Defragment(ctx context.Context, maxMoves int, minFall int64,
	refusals func(*evict.Pod) []evict.Refusal,
) (*view.RoomAnswer, error) {
	var running []evict.Pod
	p.Cluster.Read(func(s *evict.State) {
		for pod := range s.Pods() {
			if pod.Node != "" && !pod.Succeeded && !pod.Failed {
				running = append(running, pod)
			}
		}
	})
	out := &view.RoomAnswer{}
	q := &view.WhatIf{Ask: view.Ask{Mode: view.Defragment, MaxMoves: maxMoves, MinFall: minFall}}
	return out, p.ask(ctx, q, running, refusals, out)
}

// ask asks the scheduler with the running pods that may be moved.
func (p *Planner) ask(ctx context.Context, q *view.WhatIf, running []evict.Pod,
	refusals func(*evict.Pod) []evict.Refusal, out *view.RoomAnswer,
) error {
	for i := range running {
		pod := &running[i]
		if kept := reasons(refusals(pod)); len(kept) > 0 {
			name := pod.Namespace + "/" + pod.Name
			out.Kept = append(out.Kept, view.KeptPod{Pod: name, Node: pod.Node, Reasons: kept})
		} else {
			q.Ask.Movable = append(q.Ask.Movable, view.Movable{UID: pod.UID, Cost: int64(pod.EvictionCost)})
		}
	}
	slices.SortFunc(out.Kept, func(a, b view.KeptPod) int { return strings.Compare(a.Pod, b.Pod) })
	slices.SortFunc(q.Ask.Movable, func(a, b view.Movable) int { return cmp.Compare(a.UID, b.UID) })
	out.Movable = len(q.Ask.Movable)
	answer, err := p.Scheduler.WhatIf(ctx, q)
	if err != nil {
		return err
	}
	if answer.Room == nil {
		return fmt.Errorf("the scheduler does not know mode %s: it is older than this descheduler", q.Ask.Mode)
	}
	out.RoomPlan, out.Placements, out.Unschedulable = *answer.Room, answer.Placements, answer.Unschedulable
	return nil
}

// reasons are those for which a pod may not be moved now. The rate of evictions does not count: it is waited for.
func reasons(refused []evict.Refusal) []view.KeptReason {
	rate := func(r evict.Refusal) bool { return r.Code == evict.RateLimited }
	return view.KeptReasons(slices.DeleteFunc(refused, rate))
}

package defrag

import (
	"cmp"
	"strings"
)

// Fragments answers from copies of the accounts, on which the moves that were made hold.
type Fragments interface {
	// Targets returns the nodes, without its own, that would take a pod, the best first.
	Targets(uid string) ([]string, error)
	// Try returns by how much the fragmentation of all nodes falls with a move after those that were made; false where
	// the target does not take the pod. It changes nothing.
	Try(made []Move, m Move) (fall int64, works bool, err error)
}

// Step is a move with what it is for.
type Step struct {
	Move

	Fall int64
}

// compare orders steps: those that lower the fragmentation most first, then those that cost less.
func (s *Step) compare(o *Step) int {
	return cmp.Or(cmp.Compare(o.Fall, s.Fall), cmp.Compare(s.Cost, o.Cost), cmp.Compare(s.Priority, o.Priority),
		strings.Compare(s.UID, o.UID), strings.Compare(s.Target, o.Target))
}

// Improve returns at most so many moves, each of a pod of its own, after each of which the fragmentation is lower by at
// least the least fall: of all moves that are left, always the one with the largest fall, then the lowest cost,
// priority, UID and target. It is greedy: two moves that help together alone are not found. With an error it returns
// the moves that it had found, each of which works after those before it.
func Improve(c Fragments, pods []Pod, most int, least int64) (steps []Step, err error) {
	var made []Move
	moved := map[string]bool{}
	for len(steps) < most && err == nil {
		var best *Step
		if best, err = bestOf(c, pods, made, moved, least); best == nil {
			break
		}
		steps, made = append(steps, *best), append(made, best.Move)
		moved[best.UID] = true
	}
	return steps, err
}

// bestOf returns the best move that is left, nil for none; with an error the best one that was tried.
func bestOf(c Fragments, pods []Pod, made []Move, moved map[string]bool, least int64) (best *Step, err error) {
	for _, p := range pods {
		if moved[p.UID] {
			continue
		}
		targets, err := c.Targets(p.UID)
		if err != nil {
			return best, err
		}
		for _, target := range targets {
			s := Step{Move: Move{Pod: p, Target: target}}
			fall, works, err := c.Try(made, s.Move)
			if err != nil {
				return best, err
			}
			if s.Fall = fall; works && s.Fall >= least && (best == nil || s.compare(best) < 0) {
				best = &s
			}
		}
	}
	return best, nil
}

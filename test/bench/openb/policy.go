package main

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/kube/memo"
)

// policy chooses nodes: the one with the highest score, of equal ones the first by name, or any.
type policy struct {
	// score rates a node for a pod, and chooses its GPUs; of more than the pod asks for, any are taken.
	score      func(n *node, p *pod) (score int64, gpus uint64, fits bool)
	randomTies bool
	// arrive learns that a pod has arrived. It reports whether scores have changed.
	arrive func(p *pod) (bool, error)
}

// newPolicy returns a policy for one replay, in which it sees what nodes have free.
func newPolicy(name string, t *trace, nodes []node, settings fragment.Settings) (*policy, error) {
	p := &policy{randomTies: true, arrive: func(*pod) (bool, error) { return false, nil }}
	switch name {
	case "rollout":
		return rollout(nodes, settings)
	case "fgd":
		return fgd(t), nil
	case "random":
		p.score = func(n *node, p *pod) (int64, uint64, bool) {
			gpus := suitable(n, p)
			return 0, gpus, bits.OnesCount64(gpus) >= int(p.GPUs)
		}
	case "bestfit":
		p.score = packed(func(n *node, p *pod) int64 {
			const maxCPU, maxGPU = 128_000, 8 * fragment.Whole // the largest node
			cpu, gpu := n.MilliCPU-p.MilliCPU, total(n)-p.demand()
			return 100 - (50*cpu*maxGPU+50*gpu*maxCPU+maxCPU*maxGPU-1)/(maxCPU*maxGPU)
		})
	case "least":
		p.score = packed(func(n *node, p *pod) int64 { return 100 * (total(n) - p.demand()) / max(n.gpus, 1) })
	default:
		return nil, fmt.Errorf("-policy is %q; must be rollout, fgd, bestfit, random or least", name)
	}
	return p, nil
}

func total(n *node) (sum int64) {
	for _, free := range n.Free {
		sum += free
	}
	return sum
}

// supply returns what nodes have free of each model.
func supply(nodes []node) (free fragment.Supply) {
	for i := range nodes {
		free[nodes[i].Model] += total(&nodes[i])
	}
	return free
}

// suitable returns the GPUs that have enough for a pod.
func suitable(n *node, p *pod) (gpus uint64) {
	for i, free := range n.Free {
		if p.GPUs > 0 && free >= p.Milli {
			gpus |= 1 << i
		}
	}
	return gpus
}

// packed takes the GPUs that have the least free among those that have enough.
func packed(score func(n *node, p *pod) int64) func(n *node, p *pod) (int64, uint64, bool) {
	return func(n *node, p *pod) (int64, uint64, bool) {
		gpus := suitable(n, p)
		for bits.OnesCount64(gpus) > int(p.GPUs) {
			most := -1
			for i, free := range n.Free {
				if gpus>>i&1 == 1 && (most < 0 || free >= n.Free[most]) {
					most = i
				}
			}
			gpus &^= 1 << most
		}
		return score(n, p), gpus, bits.OnesCount64(gpus) == int(p.GPUs)
	}
}

// newMemo returns a memo as large as the scheduler's.
func newMemo() fragment.Memo { return memo.New[fragment.Shape, int64](1 << 16) }

// rollout learns the specs from the pods that arrive. Like the scheduler, it values by what it has learnt when as many
// more have arrived as may while the values are computed.
func rollout(nodes []node, settings fragment.Settings) (*policy, error) {
	seen := fragment.NewHistogram()
	generation, err := fragment.New(seen.Specs(), supply(nodes), settings, newMemo())
	next, left := generation, 0
	return &policy{
		score: func(n *node, p *pod) (int64, uint64, bool) {
			c, fits := generation.Choose(n.State, p.Spec, suitable(n, p))
			return c.Gain, c.GPUs, fits
		},
		arrive: func(p *pod) (bool, error) {
			due, changed := seen.Count(p.Spec), false
			if left--; left == 0 {
				generation, changed = next, true
			}
			if due {
				left = seen.Notice()
				next, err = fragment.New(seen.Specs(), supply(nodes), settings, newMemo())
			}
			return changed, err
		},
	}, err
}

// fgdScore is the score that FGD gives a node on which the fragmentation falls by so many micro-GPUs.
func fgdScore(fall int64) int64 { return int64(100 / (1 + math.Exp(-float64(fall)/1_000_000))) }

// fgd knows the specs of the trace: the most frequent ones, of 95 percent of the pods.
func fgd(t *trace) *policy {
	typical, pods := slices.Clone(t.specs), int64(0)
	slices.SortStableFunc(typical, func(a, b fragment.Weighted) int { return cmp.Compare(b.Weight, a.Weight) })
	for i := range typical {
		if pods += typical[i].Weight; pods*100 >= int64(len(t.pods))*95 {
			typical = typical[:i+1]
			break
		}
	}
	return &policy{score: func(n *node, p *pod) (best int64, gpus uint64, fits bool) {
		now := fragment.Lost(typical, n.State)
		try := func(choice uint64) {
			after := fragment.Lost(typical, n.after(p, choice))
			if score := fgdScore(now - after); !fits || score > best {
				best, gpus, fits = score, choice, true
			}
		}
		all := suitable(n, p)
		switch {
		case bits.OnesCount64(all) < int(p.GPUs):
		case p.GPUs != 1:
			_, choice, _ := packed(func(*node, *pod) int64 { return 0 })(n, p)
			try(choice)
		default:
			for ; all != 0; all &= all - 1 {
				try(all & -all)
			}
		}
		return best, gpus, fits
	}, arrive: func(*pod) (bool, error) { return false, nil }}
}

// after is what is free when a pod has taken its share of some GPUs.
func (n *node) after(p *pod, gpus uint64) fragment.State {
	s := n.State
	s.MilliCPU, s.Free = s.MilliCPU-p.MilliCPU, slices.Clone(s.Free)
	for i := range s.Free {
		if gpus>>i&1 == 1 {
			s.Free[i] -= p.Milli
		}
	}
	return s
}

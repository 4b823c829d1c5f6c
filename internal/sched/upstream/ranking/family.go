package ranking

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// alike are the plugins that read no amounts of a pod: what it asks for of CPUs, memory and other resources.
var alike = []string{
	names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts,
	names.ImageLocality,
}

func isAlike(plugin string) bool { return slices.Contains(alike, plugin) }

const (
	// familyFrom is the number of nodes from which on a ranking evaluates them with what its family knows.
	familyFrom = 8
	// parallelFromFamily is parallelFrom for these: they cost a fraction.
	parallelFromFamily = 8 * parallelFrom
)

// sample is the nodes that rankings evaluate. The rankings of a family share the latest one.
type sample struct {
	// members are the nodes, as indices into the profile's names.
	members []int32
	// complete is set where members are all nodes of the cluster. Else they are a part, which serves as many pods as it
	// has nodes; left is how many of these it may still place.
	complete bool
	left     int
	// last is the member that was chosen last; -1 for none.
	last int
}

// serves reports whether the sample may place another pod.
func (s *sample) serves() bool { return s.complete || s.left > 0 }

// family is what the plugins that read no amounts say of nodes. It holds for all pods that differ in their amounts
// alone, so that a pod of an amount that comes seldom costs the plugins that compare amounts and not all. Its slices
// have an element for each node of the profile.
type family struct {
	bytes  int
	sample *sample // of the last pass over nodes for a pod of the family; nil before
	// until is one more than the position in the log of changes at which the node was evaluated; 0 for never.
	until []uint64
	fits  []bool // the filters that read no amounts pass the node
	// nominated is set for a node that pods are nominated to. Filters count them, so the family knows nothing of it.
	nominated []bool
	// active and raw are by scorer: whether it scores nodes for the pods, and what it gave feasible nodes.
	active []bool // nil before the first use
	raw    []column[int64]
	some   bool // a feasible node was evaluated
}

// size returns the bytes that the family counts for.
func (f *family) size() *int { return &f.bytes }

// familyOf returns the family of the pod of the cycle; nil while the set of nodes changes.
func (p *Profile) familyOf() *family {
	if !p.hasSameNodes() {
		return nil
	}
	key := withoutAmounts(p.key)
	if known, ok := p.rankings.Get(key); ok {
		return known.(*family)
	}
	n := len(p.names)
	f := &family{
		until: make([]uint64, n), fits: make([]bool, n), nominated: make([]bool, n),
		raw: make([]column[int64], len(p.scorers)),
	}
	p.add(key, f)
	p.weigh(f, n*int(unsafe.Sizeof(f.until[0])+unsafe.Sizeof(f.fits[0])+unsafe.Sizeof(f.nominated[0])))
	return f
}

// withoutAmounts returns the key of the family of pods with a key, which begins with a signature. Fields of our own
// plugins come first in it, and those plugins are asked about each pod.
func withoutAmounts(key string) string {
	for strings.HasPrefix(key, `{"tenon.sh/`) {
		_, value, _ := strings.Cut(key, ":")
		key = "{" + strings.TrimPrefix(withoutValue(value), ",")
	}
	before, value, _ := strings.Cut(key, `"`+fwk.ResourcesSignerName+`":`)
	return "family " + before + withoutValue(value)
}

// withoutValue returns what comes after a JSON value.
func withoutValue(text string) string {
	var value json.RawMessage
	reading := json.NewDecoder(strings.NewReader(text))
	if reading.Decode(&value) != nil {
		return text
	}
	return text[reading.InputOffset():]
}

// hasSameNodes reports whether the profile's names are those of the nodes of the snapshot.
func (p *Profile) hasSameNodes() bool {
	_, nodeSets := p.changes.Position()
	return p.ids != nil && p.sets == nodeSets
}

// rankingOf returns the ranking of the pod of the cycle. A pod without one that serves gets one of the sample of its
// family; nil where that has none.
func (p *Profile) rankingOf() *ranking {
	if known, ok := p.rankings.Get(p.key); ok {
		r := known.(*ranking)
		if r.serves() {
			return r
		}
		p.drop(metrics.BatchFlushExpired)
	}
	if p.family == nil || p.family.sample == nil || !p.family.sample.serves() {
		return nil
	}
	r := &ranking{sample: p.family.sample}
	p.add(p.key, r)
	return r
}

// serves reports whether the plugins that score the pods of a family alike score those of a ranking as well.
func (f *family) serves(p *Profile, r *ranking) bool {
	if f.active == nil {
		f.active = make([]bool, len(r.scores))
		for k := range r.scores {
			f.active[k] = r.scores[k].active
		}
	}
	for k := range r.scores {
		if p.scorers[k].alike && f.active[k] != r.scores[k].active {
			return false
		}
	}
	return true
}

// stale returns the members of a ranking, of those to do, that have changed since the family asked them.
func (f *family) stale(p *Profile, r *ranking, todo []int32) (nodes []int32) {
	for _, m := range todo {
		if i := r.members[m]; f.until[i] <= p.changedAt[i] {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// ask asks nodes about a pod of the family, without what its amounts decide. It returns false where that fails.
func (f *family) ask(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod, all []fwk.NodeInfo,
	stale []int32,
) bool {
	skip, scorers := state.GetSkipFilterPlugins(), len(p.scorers)
	state.SetSkipFilterPlugins(skip.Union(p.sizedNames))
	defer state.SetSkipFilterPlugins(skip)
	given := make([]int64, len(stale)*scorers)
	var failed atomic.Bool
	p.each(ctx, len(stale), parallelFrom, func(u int) {
		i := stale[u]
		f.nominated[i] = len(p.NominatedPodsForNode(p.names[i])) > 0
		status := p.Framework.RunFilterPlugins(ctx, state, pod, all[i])
		f.fits[i] = status.IsSuccess()
		if !f.fits[i] && !status.IsRejected() {
			failed.Store(true)
		}
		for k := range p.scorers {
			if f.fits[i] && p.scorers[k].alike && f.active[k] {
				if given[u*scorers+k], status = p.scorers[k].Score(ctx, state, pod, all[i]); !status.IsSuccess() {
					failed.Store(true)
				}
			}
		}
	})
	if failed.Load() || ctx.Err() != nil {
		return false
	}
	for u, i := range stale {
		f.until[i] = p.followed + 1
		if !f.fits[i] {
			continue
		}
		for k := range p.scorers {
			if p.scorers[k].alike && f.active[k] {
				p.weigh(f, f.raw[k].set(len(p.names), int(i), given[u*scorers+k], !f.some))
			}
		}
		f.some = true
	}
	return true
}

// each calls f for numbers below n, in several goroutines from so many on.
func (p *Profile) each(ctx context.Context, n, parallelFrom int, f func(i int)) {
	if n >= parallelFrom {
		p.Parallelizer().Until(ctx, n, f, metrics.Score)
		return
	}
	for i := range n {
		f(i)
	}
}

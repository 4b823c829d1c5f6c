package ranking

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// parallelFrom is the number of nodes from which on judging them is divided among goroutines.
const parallelFrom = 64

// ranking holds the raw score that each plugin gave each feasible node for pods of one key. Pods of one key get the
// same answer from each plugin on each node, so a pod costs a look at the nodes that have changed since the last one,
// and a sum over all members.
//
// The scheduling loop alone uses it, one pod at a time.
type ranking struct {
	// members are the ranked nodes, as indices into the profile's names. The slices without a comment of their own have
	// an element for each member.
	members []int32
	// complete is set where members are all nodes of the cluster. Else they are a sample, which serves as many pods as
	// it has nodes; left is how many of these it may still place.
	complete bool
	left     int

	// seen and sets are the position in the log of changes up to which the scores hold: of changed nodes, and of the
	// set of nodes. Another set of nodes voids the ranking, as members are indices.
	seen, sets uint64
	// epoch is that of the profile's Valuer for which the scores hold. Another one voids all scores, not the ranking.
	epoch uint64
	// member has the index into members by node, -1 for nodes that are not ranked; nil before the first use, which
	// makes all slices.
	member []int32

	scores   []score // in the order of the profile's scorers
	spread   *spread // nil where no spreading acts
	feasible []bool  // the filters passed the node when it was evaluated last
	count    int     // of feasible members

	total []int64 // weighted sums; of use for feasible members alone
	last  int     // the member that was chosen last; -1 for none
	next  int     // the best of the others, -1 for none
}

// score is what one plugin says of each node.
type score struct {
	// active is set where the plugin scores nodes for pods of the key. A pod for which that differs voids the ranking.
	active bool
	// raw is what the plugin gave the node; of use for feasible members alone.
	raw []int64
	// normal is raw, normalized over the feasible nodes; raw itself for a plugin that does not normalize.
	normal []int64
	stale  atomic.Bool // normal does not follow from raw
}

// best brings the ranking up to date and returns its best node, or "" and why it cannot be used.
func (r *ranking) best(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod) (node, reason string) {
	seen, nodeSets := p.changes.Position()
	changed, logged := p.changes.Since(r.seen)
	filled := r.member != nil
	switch {
	case !r.complete && r.left == 0:
		return "", metrics.BatchFlushExpired
	case !logged || r.sets != nodeSets:
		return "", metrics.BatchFlushNodeMissing
	}
	if !filled && !r.fill(ctx, p, state, pod) {
		return "", metrics.BatchFlushPodFailed
	}
	r.seen = seen
	for i := range p.scorers {
		if r.scores[i].active != p.prepare(ctx, i, state, pod) {
			return "", metrics.BatchFlushPodIncompatible
		}
	}
	was := r.epoch
	if p.valuer != nil {
		r.epoch = p.valuer.Epoch()
	}
	if !r.evaluate(ctx, p, state, pod, r.look(ctx, p, changed, !filled || r.epoch != was)) {
		return "", metrics.BatchFlushPodFailed
	}
	if r.count == 0 {
		return "", metrics.BatchFlushEmptyList
	}
	if !r.sum(ctx, p, state, pod) {
		return "", metrics.BatchFlushPodFailed
	}
	r.left--
	return p.names[r.members[r.last]], ""
}

// fill makes the slices of a ranking before its first use. All members are then evaluated. It returns false where what
// the pod is spread against cannot be counted.
func (r *ranking) fill(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod) bool {
	n := len(r.members)
	r.member = slices.Repeat([]int32{-1}, len(p.names))
	for m, i := range r.members {
		r.member[i] = int32(m)
	}
	r.feasible, r.total = make([]bool, n), make([]int64, n)
	r.scores = make([]score, len(p.scorers))
	for i := range p.scorers {
		s := &r.scores[i]
		if s.active = p.prepare(ctx, i, state, pod); !s.active {
			continue
		}
		s.raw = make([]int64, n)
		s.normal = s.raw
		if p.scorers[i].ScoreExtensions() != nil {
			s.normal = make([]int64, n)
		}
	}
	if p.spreader == nil || p.spreader.SpreadKey(pod) == "" || p.leftOut(state, pod).Has(p.spreader.Name()) {
		return true
	}
	var err error
	if r.spread, err = newSpread(ctx, p, state, pod); r.spread != nil {
		r.spread.raw, r.spread.normal = make([]int64, n), make([]int64, n)
	}
	return err == nil
}

// look counts the pods of the changed nodes again, and returns the members that have to be evaluated: all, or those
// that have changed. Nodes that are not members count for spreading as well.
func (r *ranking) look(ctx context.Context, p *Profile, changed []string, all bool) []int {
	var todo []int
	again := make(map[int]bool, len(changed))
	for _, name := range changed {
		i, known := p.ids[name]
		if !known {
			continue // only pods name it
		}
		if node, err := p.SnapshotSharedLister().NodeInfos().Get(name); err == nil && r.spread != nil {
			r.spread.count(ctx, i, node)
		}
		if m := r.member[i]; m >= 0 {
			again[int(m)] = true
		}
	}
	if !all {
		return slices.AppendSeq(todo, maps.Keys(again))
	}
	for m := range r.members {
		todo = append(todo, m)
	}
	return todo
}

// prepare reports whether scorer i scores nodes for the pod.
func (p *Profile) prepare(ctx context.Context, i int, state fwk.CycleState, pod *corev1.Pod) bool {
	s := &p.scorers[i]
	return !p.leftOut(state, pod).Has(s.Name()) && (s.pre == nil || s.pre.PreScore(ctx, state, pod, nil).IsSuccess())
}

// evaluate filters and scores members, and counts which are feasible. A member that becomes feasible, or is not any
// more, makes all normalized scores stale: they are relative to the feasible nodes. It returns false where a plugin
// failed.
func (r *ranking) evaluate(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod, todo []int) bool {
	was := make([]bool, len(todo))
	for k, m := range todo {
		was[k] = r.feasible[m]
	}
	var failed atomic.Bool
	one := func(k int) {
		if !r.evaluateNode(ctx, p, state, pod, todo[k]) {
			failed.Store(true)
		}
	}
	if len(todo) < parallelFrom {
		for k := range todo {
			one(k)
		}
	} else {
		p.Parallelizer().Until(ctx, len(todo), one, metrics.Score)
	}
	for k, m := range todo {
		if r.feasible[m] == was[k] {
			continue
		}
		r.count++
		if was[k] {
			r.count -= 2
		}
		for i := range r.scores {
			r.scores[i].stale.Store(true)
		}
		if r.spread != nil {
			r.spread.stale = true
		}
	}
	return !failed.Load() && ctx.Err() == nil
}

// evaluateNode filters and scores one node. Several nodes may be evaluated concurrently.
func (r *ranking) evaluateNode(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod, i int) bool {
	node, err := p.SnapshotSharedLister().NodeInfos().Get(p.names[r.members[i]])
	if err != nil {
		return false
	}
	status := p.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
	r.feasible[i] = status.IsSuccess()
	if !status.IsSuccess() {
		return status.IsRejected()
	}
	for k := range r.scores {
		s := &r.scores[k]
		if !s.active {
			continue
		}
		raw, status := p.scorers[k].Score(ctx, state, pod, node)
		if !status.IsSuccess() {
			return false
		}
		if s.raw[i] != raw {
			s.raw[i] = raw
			s.stale.Store(true)
		}
	}
	return true
}

// sum normalizes what is stale, adds the weighted scores of all feasible nodes and finds the best of them. It begins
// after the node that was chosen last, so that nodes with equal scores are chosen round-robin, unless ByName or Seed
// is set.
func (r *ranking) sum(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod) bool {
	for k := range r.scores {
		if !r.normalize(ctx, p, state, pod, k) {
			return false
		}
	}
	clear(r.total)
	for k := range r.scores {
		if s := &r.scores[k]; s.active {
			for i, v := range s.normal {
				r.total[i] += p.scorers[k].weight * v
			}
		}
	}
	if r.spread != nil {
		r.spread.normalize(r)
		for i, v := range r.spread.normal {
			r.total[i] += p.spreads * v
		}
	}
	better := func(i, j int) bool {
		if j < 0 || r.total[i] != r.total[j] {
			return j < 0 || r.total[i] > r.total[j]
		}
		a, b := p.names[r.members[i]], p.names[r.members[j]]
		return p.ByName && a < b || p.Seed != nil && Lot(p.Seed(), a) > Lot(p.Seed(), b)
	}
	best, next := -1, -1
	for k := range r.members {
		i := r.last + 1 + k
		if i >= len(r.members) {
			i -= len(r.members)
		}
		switch {
		case !r.feasible[i]:
		case better(i, best):
			best, next = i, best
		case better(i, next):
			next = i
		}
	}
	r.last, r.next = best, next
	return true
}

// normalize normalizes the raw scores of one plugin. It returns false for scores that upstream refuses.
func (r *ranking) normalize(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod, k int) bool {
	s := &r.scores[k]
	if !s.active || !s.stale.Swap(false) {
		return true
	}
	if extensions := p.scorers[k].ScoreExtensions(); extensions != nil {
		list := make(fwk.NodeScoreList, 0, r.count)
		for i, feasible := range r.feasible {
			if feasible {
				list = append(list, fwk.NodeScore{Name: p.names[r.members[i]], Score: s.raw[i]})
			}
		}
		if !extensions.NormalizeScore(ctx, state, pod, list).IsSuccess() {
			return false
		}
		for i, feasible := range r.feasible {
			if feasible {
				s.normal[i], list = list[0].Score, list[1:]
			}
		}
	}
	for i, feasible := range r.feasible {
		if feasible && (s.normal[i] < fwk.MinScore || s.normal[i] > fwk.MaxScore) {
			return false
		}
	}
	return true
}

// scored returns the names of the feasible members.
func (r *ranking) scored(p *Profile) (names []string) {
	for m, i := range r.members {
		if r.feasible[m] {
			names = append(names, p.names[i])
		}
	}
	return names
}

// Proposed returns the scores of the last pod's node and of the next best, or the scores of the best most nodes where
// most is larger than two, and how many of the nodes that the ranking evaluates are feasible for the pod; nothing for a
// pod that was not ranked.
func (p *Profile) Proposed(most int) (out []fwk.NodePluginScores, feasible, evaluated int) {
	r := p.used
	if r == nil {
		return nil, 0, 0
	}
	members := []int{r.last, r.next}
	if most > len(members) {
		members = members[:0]
		for i, fits := range r.feasible {
			if fits {
				members = append(members, i)
			}
		}
		slices.SortFunc(members, func(i, j int) int {
			return cmp.Or(cmp.Compare(r.total[j], r.total[i]),
				strings.Compare(p.names[r.members[i]], p.names[r.members[j]]))
		})
		members = members[:min(most, len(members))]
		if !slices.Contains(members, r.last) { // one of many equal ones
			members[len(members)-1] = r.last
		}
	}
	for _, i := range members {
		if i < 0 {
			break
		}
		scores := fwk.NodePluginScores{Name: p.names[r.members[i]], TotalScore: r.total[i]}
		p.each(r, func(s *score, name string, weight int64) {
			scores.Scores = append(scores.Scores, fwk.PluginScore{Name: name, Score: weight * s.normal[i]})
		})
		out = append(out, scores)
	}
	return out, r.count, len(r.members)
}

// each calls f for each plugin that scores the members of a ranking.
func (p *Profile) each(r *ranking, f func(s *score, name string, weight int64)) {
	for k := range r.scores {
		if s := &r.scores[k]; s.active {
			f(s, p.scorers[k].Name(), p.scorers[k].weight)
		}
	}
	if r.spread != nil {
		f(&score{raw: r.spread.raw, normal: r.spread.normal}, p.spreader.Name(), p.spreads)
	}
}

// Raw returns what the score plugins say of a node before they normalize: those of the ranking that chose the last
// pod's node, else those that the pod's cycle has asked, again.
func (p *Profile) Raw(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) map[string]int64 {
	out := map[string]int64{}
	if r := p.used; r != nil {
		if i, known := p.ids[node]; known && r.member[i] >= 0 {
			p.each(r, func(s *score, name string, _ int64) { out[name] = s.raw[r.member[i]] })
		}
		return out
	}
	info, err := p.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return nil
	}
	for name, plugin := range p.asked {
		if state.GetSkipScorePlugins().Has(name) {
			continue
		}
		if raw, status := plugin.Score(ctx, state, pod, info); status.IsSuccess() {
			out[name] = raw
		}
	}
	return out
}

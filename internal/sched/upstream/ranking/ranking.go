package ranking

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

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
	// The slices without a comment of their own have an element for each member of the sample.
	*sample
	// bytes is what the ranking counts for in the profile's memory.
	bytes int

	// seen is the position in the log of changes up to which the scores hold. Another set of nodes voids the ranking,
	// as members are indices.
	seen uint64
	// epoch is that of the profile's Valuer for which the scores hold. Another one voids all scores, not the ranking.
	epoch uint64

	// scores are in the order of the profile's scorers.
	scores []score
	// feasible says whether the filters passed the node when it was evaluated last; nil before the first use, which
	// makes all slices.
	feasible []bool
	// count is the number of feasible members.
	count int

	// best is the member that was chosen for the last pod, next the best of the others; -1 for none.
	best, next int
}

// score is what one plugin says of each node.
type score struct {
	// active is set where the plugin scores nodes for pods of the key. A pod for which that differs voids the ranking.
	active bool
	// raw is what the plugin gave the node, unless it does not normalize.
	raw column[int64]
	// normal is raw, normalized over the feasible nodes, or what a plugin gave that does not normalize.
	normal column[uint8]
	stale  bool // normal does not follow from raw
}

// sums are what the ranking and the spread in use say of the members.
type sums struct {
	total   []int64 // weighted
	raw     []int64 // of the spread, before it is normalized
	normal  []uint8 // of the spread
	counted []bool  // the spread gives the member a score
	// The rest is memory that each use of a spread writes anew.
	float, term []float64
	hosts       []int32
	seen        []bool
}

// choose brings the ranking up to date and returns its best node, or "" and why it cannot be used.
//
// A pod for which it cannot be used is evaluated on the nodes anew, and upstream's metric gets the reason.
func (r *ranking) choose(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod,
) (node, reason string) {
	if !p.hasSameNodes() {
		return "", metrics.BatchFlushNodeMissing
	}
	p.follow()
	filled := r.feasible != nil
	if !filled {
		r.fill(ctx, p, state, pod)
	}
	for i := range p.scorers {
		if r.scores[i].active != p.prepare(ctx, i, state, pod) {
			return "", metrics.BatchFlushPodIncompatible
		}
	}
	// Another epoch changes the scores of nodes that have not changed themselves.
	was := r.epoch
	if p.valuer != nil {
		r.epoch = p.valuer.Epoch()
	}
	if !r.evaluate(ctx, p, state, pod, r.changed(p, !filled || r.epoch != was)) {
		return "", metrics.BatchFlushPodFailed
	}
	r.seen = p.followed
	// Upstream looks for other nodes where few of a sample that was taken for another amount are feasible.
	if r.count == 0 || !filled && !r.complete && 4*r.count < 3*len(r.members) {
		return "", metrics.BatchFlushEmptyList
	}
	var err error
	if p.spread, err = p.spreadOf(ctx, state, pod); err != nil || !r.sum(ctx, p, state, pod) {
		return "", metrics.BatchFlushPodFailed
	}
	r.left--
	return p.names[r.members[r.best]], ""
}

// fill makes the slices of a ranking before its first use. All members are then evaluated.
func (r *ranking) fill(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod) {
	r.feasible = make([]bool, len(r.members))
	r.scores = make([]score, len(p.scorers))
	for i := range p.scorers {
		r.scores[i].active = p.prepare(ctx, i, state, pod)
	}
	p.weigh(r, len(r.members)+len(r.scores)*int(unsafe.Sizeof(score{})))
}

// changed returns the members that have to be evaluated: all, or those that have changed.
func (r *ranking) changed(p *Profile, all bool) []int32 {
	todo := p.todo[:0]
	for m, i := range r.members {
		if all || p.changedAt[i] > r.seen {
			todo = append(todo, int32(m))
		}
	}
	p.todo = todo
	return todo
}

// follow reads which nodes have changed since it was called last.
func (p *Profile) follow() {
	seen, _ := p.changes.Position()
	changed, logged := p.changes.Since(p.followed)
	if !logged {
		p.followed = seen
		for i := range p.changedAt {
			p.changedAt[i] = seen
		}
		return
	}
	for _, name := range changed {
		p.followed++
		if i, known := p.ids[name]; known { // else only pods name it
			p.changedAt[i] = p.followed
		}
	}
}

// changedSince returns the nodes that have changed since a position in the log.
func (p *Profile) changedSince(seen uint64) (nodes []int32) {
	for i, at := range p.changedAt {
		if at > seen {
			nodes = append(nodes, int32(i))
		}
	}
	return nodes
}

// prepare reports whether scorer i scores nodes for the pod.
func (p *Profile) prepare(ctx context.Context, i int, state fwk.CycleState, pod *corev1.Pod) bool {
	s := &p.scorers[i]
	return !p.leftOut(state, pod).Has(s.Name()) && (s.pre == nil || s.pre.PreScore(ctx, state, pod, nil).IsSuccess())
}

// evaluate filters and scores members, and counts which are feasible. A member that becomes feasible, or is not any
// more, makes all normalized scores stale: they are relative to the feasible nodes. It returns false where a plugin
// failed.
func (r *ranking) evaluate(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod, todo []int32) bool {
	nodes, err := p.SnapshotSharedLister().NodeInfos().List()
	if err != nil || len(nodes) != len(p.names) {
		return false
	}
	for _, m := range todo {
		if i := r.members[m]; nodes[i].Node().Name != p.names[i] {
			return false
		}
	}
	shared, parallelFrom := p.family, parallelFrom
	if shared == nil || len(todo) < familyFrom || !shared.serves(p, r) {
		shared = nil
	} else if stale := shared.stale(p, r, todo); len(stale) > 0 && !shared.ask(ctx, p, state, pod, nodes, stale) {
		shared = nil
	} else {
		parallelFrom = parallelFromFamily
	}
	p.fits, p.given = zeroes(p.fits, len(todo)), zeroes(p.given, len(todo)*len(r.scores))
	fits, given := p.fits, p.given
	var failed atomic.Bool
	p.each(ctx, len(todo), parallelFrom, func(k int) {
		var ok bool
		i := r.members[todo[k]]
		fits[k], ok = r.evaluateNode(ctx, p, shared, state, pod, i, nodes[i], given[k*len(r.scores):])
		if !ok {
			failed.Store(true)
		}
	})
	if failed.Load() || ctx.Err() != nil {
		return false
	}
	for k, m := range todo {
		was := r.feasible[m]
		r.feasible[m] = fits[k]
		if was {
			r.count--
		}
		if fits[k] {
			r.take(p, int(m), given[k*len(r.scores):])
			r.count++
		}
		for i := range r.scores {
			r.scores[i].stale = r.scores[i].stale || was != fits[k]
		}
	}
	return true
}

// evaluateNode filters and scores node i, with what the family knows of it unless that is nil. ok is false where a
// plugin failed, or gave what it may not. Several nodes may be evaluated concurrently.
func (r *ranking) evaluateNode(ctx context.Context, p *Profile, shared *family, state fwk.CycleState, pod *corev1.Pod,
	i int32, node fwk.NodeInfo, given []int64,
) (fits, ok bool) {
	var status *fwk.Status
	switch {
	case shared == nil || shared.nominated[i]:
		shared = nil
		status = p.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
	case !shared.fits[i]:
		return false, true
	default:
		skip := state.GetSkipFilterPlugins()
		for k := 0; k < len(p.sized) && status.IsSuccess(); k++ {
			if !skip.Has(p.sized[k].Name()) {
				status = p.sized[k].Filter(ctx, state, pod, node)
			}
		}
	}
	if !status.IsSuccess() {
		return false, status.IsRejected()
	}
	for k := range r.scores {
		switch s := &p.scorers[k]; {
		case !r.scores[k].active:
			continue
		case shared != nil && s.alike:
			given[k] = shared.raw[k].at(int(i))
		default:
			if given[k], status = s.Score(ctx, state, pod, node); !status.IsSuccess() {
				return false, false
			}
		}
		if p.scorers[k].ScoreExtensions() == nil && (given[k] < fwk.MinScore || given[k] > fwk.MaxScore) {
			return false, false
		}
	}
	return true, true
}

// take keeps what the plugins gave a feasible member. Invariant: count is that of the feasible members besides it.
func (r *ranking) take(p *Profile, member int, given []int64) {
	for k := range r.scores {
		s, n := &r.scores[k], len(r.members)
		switch {
		case !s.active:
		case p.scorers[k].ScoreExtensions() == nil:
			p.weigh(r, s.normal.set(n, member, uint8(given[k]), r.count == 0))
		case r.count == 0 || s.raw.at(member) != given[k]:
			p.weigh(r, s.raw.set(n, member, given[k], r.count == 0))
			s.stale = true
		}
	}
}

// sum normalizes what is stale, adds the weighted scores of all feasible nodes and finds the best of them. It begins
// after the node that was chosen last, so that nodes with equal scores are chosen round-robin, unless ByName or Seed
// is set.
func (r *ranking) sum(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod) bool {
	total, same := zeroes(p.sums.total, len(r.members)), int64(0)
	p.sums.total = total
	for k := range r.scores {
		s, weight := &r.scores[k], p.scorers[k].weight
		switch {
		case !s.active:
			continue
		case p.scorers[k].ScoreExtensions() != nil && s.stale && !r.normalize(ctx, p, state, pod, k):
			return false
		case s.normal.array == nil:
			same += weight * int64(s.normal.all)
		}
		for i, v := range s.normal.array {
			total[i] += weight * int64(v)
		}
	}
	if p.spread != nil {
		p.spread.score(p, r)
		for i, v := range p.sums.normal {
			total[i] += p.spreads * int64(v)
		}
	}
	for i := range total {
		total[i] += same
	}
	seed := uint32(0)
	if p.Cycle != nil {
		seed = p.Cycle.Seed()
	}
	better := func(i, j int) bool {
		if j < 0 || total[i] != total[j] {
			return j < 0 || total[i] > total[j]
		}
		a, b := r.members[i], r.members[j]
		return p.ByName && p.names[a] < p.names[b] ||
			len(p.hashes) > 0 && lot(seed, p.hashes[a]) > lot(seed, p.hashes[b])
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
	r.last, r.best, r.next = best, best, next
	return true
}

// normalize normalizes the raw scores of one plugin. It returns false for scores that upstream refuses. A plugin is
// given the feasible members alone, as upstream gives them: it scales by the highest score of those.
func (r *ranking) normalize(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod, k int) bool {
	s := &r.scores[k]
	// Of equal scores, those plugins make what they make of one.
	one := p.scorers[k].alike && s.raw.array == nil && s.normal.array == nil
	list := make(fwk.NodeScoreList, 0, r.count)
	for i, feasible := range r.feasible {
		if feasible && !(one && len(list) > 0) {
			list = append(list, fwk.NodeScore{Name: p.names[r.members[i]], Score: s.raw.at(i)})
		}
	}
	if !p.scorers[k].ScoreExtensions().NormalizeScore(ctx, state, pod, list).IsSuccess() {
		return false
	}
	first := true
	for i, feasible := range r.feasible {
		if !feasible || len(list) == 0 {
			continue
		}
		score := list[0].Score
		if score < fwk.MinScore || score > fwk.MaxScore {
			return false
		}
		p.weigh(r, s.normal.set(len(r.members), i, uint8(score), first))
		first, list = false, list[1:]
	}
	s.stale = false
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
	members := []int{r.best, r.next}
	if most > len(members) {
		members = members[:0]
		for i, fits := range r.feasible {
			if fits {
				members = append(members, i)
			}
		}
		slices.SortFunc(members, func(i, j int) int {
			return cmp.Or(cmp.Compare(p.sums.total[j], p.sums.total[i]),
				strings.Compare(p.names[r.members[i]], p.names[r.members[j]]))
		})
		members = members[:min(most, len(members))]
		if !slices.Contains(members, r.best) { // one of many equal ones
			members[len(members)-1] = r.best
		}
	}
	for _, i := range members {
		if i < 0 {
			break
		}
		scores := fwk.NodePluginScores{Name: p.names[r.members[i]], TotalScore: p.sums.total[i]}
		p.eachScore(i, func(name string, _, weighted int64) {
			scores.Scores = append(scores.Scores, fwk.PluginScore{Name: name, Score: weighted})
		})
		out = append(out, scores)
	}
	return out, r.count, len(r.members)
}

// eachScore calls f for each plugin that scores the members of the ranking in use, with what it gave a member.
func (p *Profile) eachScore(member int, f func(name string, raw, weighted int64)) {
	for k := range p.used.scores {
		s := &p.used.scores[k]
		if !s.active {
			continue
		}
		normal := int64(s.normal.at(member))
		raw := normal
		if p.scorers[k].ScoreExtensions() != nil {
			raw = s.raw.at(member)
		}
		f(p.scorers[k].Name(), raw, p.scorers[k].weight*normal)
	}
	if p.spread != nil {
		f(p.spreader.Name(), p.sums.raw[member], p.spreads*int64(p.sums.normal[member]))
	}
}

// Raw returns what the score plugins say of a node before they normalize: those of the ranking that chose the last
// pod's node, else those that the pod's cycle has asked, again.
func (p *Profile) Raw(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) map[string]int64 {
	out := map[string]int64{}
	if r := p.used; r != nil {
		i, known := p.ids[node]
		if m := slices.Index(r.members, int32(i)); known && m >= 0 {
			p.eachScore(m, func(name string, raw, _ int64) { out[name] = raw })
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

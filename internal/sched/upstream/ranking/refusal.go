package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/lru"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
)

// refusalsKept bounds the refusals that a profile remembers; the least recently used one goes. One has a status for
// each node.
const refusalsKept = 64

// nominatedKept is refusalsKept for nominated pods.
const nominatedKept = 8

// tablesKept bounds the tables of statuses among which one is looked for that equals a new one, textsKept the statuses
// that these have in common.
const (
	tablesKept = 8
	textsKept  = 1 << 10
)

// refusal is how all nodes refuse the pods of one key. The next pod of the key asks only the nodes that have changed
// since; while all of them refuse it too, no other node is asked.
//
// Invariant: counts, reasons and sum are those of statuses.
type refusal struct {
	seen     uint64                 // position in the log of changes up to which statuses hold
	statuses map[string]*fwk.Status // by node; the scheduling loop alone changes it
	// shared is true once statuses may be read beside the scheduling loop (Retain), or are those of another key too:
	// then they do not change any more, and the next refusal of the key is a copy.
	shared bool
	// nodes has statuses in the form of a Diagnosis. Both are the same map.
	nodes   *framework.NodeToStatus
	counts  map[verdict]int // of nodes
	reasons map[string]int  // how many nodes give a reason, as FitError counts them
	sum     uint64          // of a hash for each node of its plugin and reasons
}

// verdict is who refuses a node, and whether evicting pods could help.
type verdict struct {
	plugin string
	code   fwk.Code
}

// attempt is the last attempt on a pod.
type attempt struct {
	// pod is the one of the attempt; preemption of another pod does not use what is known.
	pod       types.UID
	underWay  bool // its nodes are being chosen
	signature fwk.PodSignature
	seen      uint64 // position in the log when it began
	key       string // what refusals are known by; "" for a pod that asks all nodes
}

// reasonSeed makes hashes of reasons comparable within the process.
var reasonSeed = maphash.MakeSeed()

// refusalOf returns the refusal of the pods of the attempt, which all nodes refuse with these statuses. Sizes of pods
// that nodes refuse for the same reasons share one table.
func (p *Profile) refusalOf(statuses *framework.NodeToStatus) *refusal {
	same := slices.DeleteFunc(slices.Clone(p.tables), func(r *refusal) bool {
		return len(r.statuses) != statuses.Len()
	})
	statuses.ForEachExplicitNode(func(node string, s *fwk.Status) {
		if len(same) > 0 {
			s = p.oneOf(s)
			same = slices.DeleteFunc(same, func(r *refusal) bool { return r.statuses[node] != s })
		}
	})
	var r *refusal
	if len(same) > 0 {
		same[0].shared = true
		other := *same[0]
		other.seen, r = p.attempt.seen, &other
		p.tables = slices.DeleteFunc(p.tables, func(r *refusal) bool { return r == same[0] })
	} else {
		r = p.newRefusal(statuses)
	}
	p.tables = slices.Insert(p.tables, 0, r)[:min(len(p.tables)+1, tablesKept)]
	return r
}

// text is all that a status says that has no error of its own.
type text struct {
	verdict
	reasons string
}

// oneOf returns one status for all that say the same in words alone. One with an error, which may have amounts, is a
// status of its own.
func (p *Profile) oneOf(s *fwk.Status) *fwk.Status {
	if !refusals.WordsOnly(s) {
		return s
	}
	said := text{verdict{s.Plugin(), s.Code()}, strings.Join(s.Reasons(), "\n")}
	if known, ok := p.texts[said]; ok {
		return known
	}
	if len(p.texts) == textsKept {
		clear(p.texts)
	}
	p.texts[said] = s
	return s
}

// newRefusal returns a refusal with a table of its own.
func (p *Profile) newRefusal(statuses *framework.NodeToStatus) *refusal {
	r := &refusal{
		seen: p.attempt.seen, statuses: make(map[string]*fwk.Status, statuses.Len()), counts: map[verdict]int{},
		reasons: map[string]int{},
	}
	r.nodes = framework.NewNodeToStatus(r.statuses, fwk.NewStatus(fwk.UnschedulableAndUnresolvable))
	alike := map[*fwk.Status]int{}
	statuses.ForEachExplicitNode(func(node string, s *fwk.Status) {
		s = p.oneOf(s)
		r.statuses[node] = s
		alike[s]++
	})
	for s, n := range alike {
		r.count(s, n)
	}
	return r
}

// clone returns a copy that is not shared.
func (r *refusal) clone() *refusal {
	c := &refusal{
		seen: r.seen, statuses: maps.Clone(r.statuses), counts: maps.Clone(r.counts), reasons: maps.Clone(r.reasons),
		sum: r.sum,
	}
	c.nodes = framework.NewNodeToStatus(c.statuses, r.nodes.AbsentNodesStatus())
	return c
}

// set records how a node refuses the pods.
func (r *refusal) set(node string, status *fwk.Status) {
	r.remove(node)
	r.statuses[node] = status
	r.count(status, 1)
}

// remove forgets a node.
func (r *refusal) remove(node string) {
	if was, known := r.statuses[node]; known {
		r.count(was, -1)
		delete(r.statuses, node)
	}
}

// count adds a status n times.
func (r *refusal) count(s *fwk.Status, n int) {
	hash := maphash.String(reasonSeed, s.Plugin())
	for _, text := range s.Reasons() {
		hash = 31*hash + maphash.String(reasonSeed, text)
		if r.reasons[text] += n; r.reasons[text] == 0 {
			delete(r.reasons, text)
		}
	}
	r.sum += uint64(n) * hash
	key := verdict{s.Plugin(), s.Code()}
	if r.counts[key] += n; r.counts[key] == 0 {
		delete(r.counts, key)
	}
}

// summary is the reasons as FitError has them, without a look at the nodes.
func (r *refusal) summary() string {
	texts := make([]string, 0, len(r.reasons))
	for text, n := range r.reasons {
		texts = append(texts, fmt.Sprintf("%d %s", n, text))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// diagnose writes what a pass over all nodes would have found.
func (r *refusal) diagnose(d *framework.Diagnosis) {
	d.NodeToStatus, d.UnschedulablePlugins, d.PendingPlugins = r.nodes, nil, nil
	for v := range r.counts {
		d.AddPluginStatus(fwk.NewStatus(v.code).WithPlugin(v.plugin))
	}
}

// Remember keeps how all nodes refused a pod, in the profile of its name, and lets schedule ask only the nodes that
// have changed since for the next pod of which the filters read the same. profile returns nil for one that keeps none.
//
// It is kept only where each node has a status of its own: a pod that PreFilter refuses as a whole asks no node anyway,
// and what an extender says may change without a node.
func Remember(profile func(name string) *Profile, schedule schedulePod) schedulePod {
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		p := profile(f.ProfileName())
		if p == nil {
			return schedule(ctx, f, state, pod)
		}
		p.refused.Store(nil)
		p.alone.Store(nil)
		p.refusing.Store(&rejections{pod.Pod.UID, p.Rejections.reasons(pod.Pod.UID)})
		p.attempt = attempt{pod: pod.Pod.UID, underWay: true, signature: pod.PodSignature}
		p.attempt.seen, _ = p.changes.Position()
		result, err := schedule(ctx, f, state, pod)
		p.attempt.underWay = false
		known, fit := p.refused.Load(), (*framework.FitError)(nil)
		switch {
		case !errors.As(err, &fit):
		case known != nil:
			known.diagnose(&fit.Diagnosis)
		case p.attempt.key != "" && fit.Diagnosis.PreFilterMsg == "" && p.coversAll(fit) &&
			!fit.Diagnosis.UnschedulablePlugins.Has(framework.ExtenderName):
			r := p.refusalOf(fit.Diagnosis.NodeToStatus)
			fit.Diagnosis.NodeToStatus = r.nodes
			p.refusalsFor(pod.Pod).Add(p.attempt.key, r)
			p.refused.Store(r)
		}
		// Room may be held for a nominated pod: what leaves any node can change where and when the pod starts.
		if p.refused.Load() != nil && pod.Pod.Status.NominatedNodeName == "" {
			p.alone.Store(pod.Pod)
		}
		return result, err
	}
}

// Amounts returns the plugin that compares amounts if all nodes have refused the pod as it is in the last attempt, each
// by itself: a pod that leaves a node then helps it on that node alone. It returns nil for another pod. It may be
// called from any goroutine.
func (p *Profile) Amounts(pod *corev1.Pod) hooks.Amounts {
	if last := p.alone.Load(); last == nil || last.UID != pod.UID || kube.IsEdited(last, pod) {
		return nil
	}
	return p.amounts
}

// coversAll reports whether each node has a status of its own.
func (p *Profile) coversAll(fit *framework.FitError) bool {
	all, err := p.SnapshotSharedLister().NodeInfos().List()
	return err == nil && len(all) > 0 && fit.Diagnosis.NodeToStatus.Len() == len(all)
}

// refusalsFor returns the cache that has the refusal of a pod. Nominated pods have another one: there may be many of
// them, each with a key of its own.
func (p *Profile) refusalsFor(pod *corev1.Pod) *lru.Cache {
	if pod.Status.NominatedNodeName != "" {
		return p.nominated
	}
	return p.refusals
}

// recall reports whether all nodes refuse the pod of the attempt under way, by what is remembered and by the filters on
// the nodes that have changed. The state must be that of the pod after PreFilter. It is false for members of gangs and
// for pods that may use a Reservation: what nodes say to them depends on more than the node.
func (p *Profile) recall(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) bool {
	a := &p.attempt
	if !a.underWay || a.pod != pod.UID || p.Rooms != nil && p.Rooms.Concern(state) ||
		p.Together != nil && (p.Together.IsMember(pod) || p.Together.Within() != "") {
		return false
	}
	key := p.filterKey(pod, a.signature, state)
	if key == nil {
		return false
	}
	// Preemption reads it, and filters do not.
	if policy := pod.Spec.PreemptionPolicy; policy != nil {
		key = append(append(key, ' '), *policy...)
	}
	a.key = string(key)
	cache := p.refusalsFor(pod)
	known, ok := cache.Get(a.key)
	if !ok {
		return false
	}
	r := p.refresh(ctx, known.(*refusal), state, pod)
	if r == nil {
		cache.Remove(a.key)
		return false
	}
	cache.Add(a.key, r)
	p.refused.Store(r)
	return true
}

// refresh asks the nodes that have changed, and returns how all nodes refuse the pod now. One node that takes the pod
// ends the refusal: it returns nil. New nodes are in the log as changed ones, so that afterwards each node of the
// snapshot has a status.
func (p *Profile) refresh(ctx context.Context, r *refusal, state fwk.CycleState, pod *corev1.Pod) *refusal {
	seen, _ := p.changes.Position()
	changed, logged := p.changes.Since(r.seen)
	nodes := p.SnapshotSharedLister().NodeInfos()
	all, err := nodes.List()
	if !logged || err != nil || len(changed) > len(all) {
		return nil
	}
	names := slices.Compact(slices.Sorted(slices.Values(changed)))
	statuses := make([]*fwk.Status, len(names)) // nil for a node that is gone
	ask := func(i int) {
		if node, err := nodes.Get(names[i]); err == nil {
			if statuses[i] = p.RunFilterPluginsWithNominatedPods(ctx, state, pod, node); statuses[i] == nil {
				statuses[i] = fwk.NewStatus(fwk.Success)
			}
		}
	}
	if len(names) < parallelFrom {
		for i := range names {
			ask(i)
		}
	} else {
		p.Parallelizer().Until(ctx, len(names), ask, metrics.Filter)
	}
	if r.shared && len(names) > 0 {
		r = r.clone()
	}
	for i, name := range names {
		switch {
		case statuses[i] == nil:
			r.remove(name)
		case !statuses[i].IsRejected():
			return nil
		default:
			r.set(name, p.oneOf(statuses[i]))
		}
	}
	r.seen = seen
	if len(r.statuses) != len(all) || ctx.Err() != nil {
		return nil
	}
	return r
}

// Summary returns the reasons of a refusal by all nodes as FitError counts them, and a hash of who refuses how many
// nodes for which reasons; false if that takes a look at the nodes.
func (p *Profile) Summary(fit *framework.FitError) (reasons string, hash uint64, ok bool) {
	r := p.refused.Load()
	if r == nil || fit.Diagnosis.NodeToStatus != r.nodes {
		return "", 0, false
	}
	return r.summary(), r.sum, true
}

// Retain keeps the statuses of a refusal by all nodes as they are, so that they can be read beside the scheduling loop,
// which must call it. It returns false for a refusal that the profile does not remember: what nodes say to such a pod
// may depend on more than each node by itself.
func (p *Profile) Retain(fit *framework.FitError) bool {
	r := p.refused.Load()
	if r == nil || fit.Diagnosis.NodeToStatus != r.nodes {
		return false
	}
	r.shared = true
	return true
}

// hasNoVictims reports whether all nodes refuse the pod, and none runs a pod of lower priority.
func (p *Profile) hasNoVictims(pod *corev1.Pod) bool {
	return p.attempt.pod == pod.UID && p.refused.Load() != nil && corev1helpers.PodPriority(pod) <= p.lowest.update(p)
}

// priorities is the lowest priority among the pods of each node that has some.
//
// Invariant: nodes counts byNode by priority.
type priorities struct {
	seen   uint64
	byNode map[string]int32 // nil before the first use
	// nodes has how many nodes have each lowest priority.
	nodes map[int32]int
}

// update returns the lowest priority of all pods that run. It looks at the pods of the nodes that have changed. It is
// the highest number there is where no pod runs, so that no pod has victims, and the lowest where the nodes cannot be
// listed, so that each may have some.
func (l *priorities) update(p *Profile) int32 {
	seen, _ := p.changes.Position()
	changed, logged := p.changes.Since(l.seen)
	nodes := p.SnapshotSharedLister().NodeInfos()
	if l.byNode == nil || !logged {
		all, err := nodes.List()
		if err != nil {
			return math.MinInt32
		}
		l.byNode, l.nodes, changed = make(map[string]int32, len(all)), map[int32]int{}, nil
		for _, n := range all {
			changed = append(changed, n.Node().Name)
		}
	}
	l.seen = seen
	for _, name := range changed {
		if was, known := l.byNode[name]; known {
			delete(l.byNode, name)
			if l.nodes[was]--; l.nodes[was] == 0 {
				delete(l.nodes, was)
			}
		}
		if node, err := nodes.Get(name); err == nil && len(node.GetPods()) > 0 {
			now := corev1helpers.PodPriority(slices.MinFunc(node.GetPods(), func(a, b fwk.PodInfo) int {
				return cmp.Compare(corev1helpers.PodPriority(a.GetPod()), corev1helpers.PodPriority(b.GetPod()))
			}).GetPod())
			l.byNode[name] = now
			l.nodes[now]++
		}
	}
	if len(l.nodes) == 0 {
		return math.MaxInt32
	}
	return slices.Min(slices.Collect(maps.Keys(l.nodes)))
}

// nowhere is what PreFilter returns for a pod that all nodes refuse: none of them is asked.
func nowhere() *fwk.PreFilterResult { return &fwk.PreFilterResult{NodeNames: sets.New[string]()} }

package ranking

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/lru"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
)

// Profile places pods of one signature by a ranking of the nodes. It belongs to the scheduling loop alone, apart from
// what is atomic.
type Profile struct {
	framework.Framework
	Config
	plugins
	// changes is the log of nodes that have changed since a ranking was last used.
	changes *hooks.Changes

	caches
	last
	search
	counts
	scratch
}

// NewProfile wraps a profile. cfg is what it was made from. localPlugins are plugins outside of kube-scheduler that
// evaluate a node by its NodeInfo, and by what is logged as a change of the node.
func NewProfile(
	ctx context.Context, f framework.Framework, cfg *config.KubeSchedulerProfile, changes *hooks.Changes,
	localPlugins ...string,
) (*Profile, error) {
	made, err := newPlugins(ctx, f, cfg, localPlugins)
	if err != nil {
		return nil, err
	}
	p := &Profile{
		Framework: quiet{f}, Config: Config{Memory: Memory}, plugins: made, changes: changes,
		caches: caches{
			refusals: lru.New(refusalsKept), nominated: lru.New(nominatedKept), texts: map[text]*fwk.Status{},
		},
	}
	p.rankings = lru.NewWithEvictionFunc(0, func(_ lru.Key, gone any) { p.kept -= *gone.(entry).size() })
	return p, nil
}

// GetNodeHint returns the best node for the pod, "" when all nodes have to be asked.
func (p *Profile) GetNodeHint(
	ctx context.Context, pod *corev1.Pod, signature fwk.PodSignature, state fwk.CycleState, _ int64,
) (node string) {
	start, result := time.Now(), "no_hint"
	defer func() {
		metrics.GetNodeHintDuration.WithLabelValues(result, p.ProfileName()).Observe(metrics.SinceInSeconds(start))
	}()
	p.search = search{}
	defer func() {
		if p.panicked(recover()) {
			node = ""
		}
	}()
	if p.refused.Load() != nil {
		return ""
	}
	p.rejected.Store(0)
	p.refusing.Store(&rejections{pod.UID, p.Rejections.reasons(pod.UID)})
	if p.Together != nil {
		if node := p.Together.Planned(pod); node != "" {
			result = "hint"
			return node
		}
	}
	if p.ranks(ctx, state, pod) {
		p.key = string(p.filterKey(pod, signature, state))
	}
	if p.key != "" && p.Together != nil {
		p.key += p.Together.Within()
	}
	if p.key != "" {
		p.family = p.familyOf()
		if r := p.rankingOf(); r != nil {
			node, reason := r.choose(ctx, p, state, pod)
			if node != "" {
				p.used, result = r, "hint"
				if p.Cycle != nil && !r.complete {
					p.Cycle.Sampled(func() []string { return r.scored(p) })
				}
				return node
			}
			p.drop(reason)
		}
	}
	p.attempted(metrics.BatchAttemptNoHint)
	return ""
}

// panicked forgets all rankings if a plugin has panicked with cause, nil for none: the pass over all nodes, which asks
// the same plugins, says which one.
func (p *Profile) panicked(cause any) bool {
	if cause == nil {
		return false
	}
	p.rankings.Clear()
	p.used, p.spread, p.family, p.key = nil, nil, nil, ""
	return true
}

// ranks reports whether the score plugins can be asked about each node by itself, but for spreading. Where a pod is
// nominated to a node, they are not asked about others.
func (p *Profile) ranks(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) bool {
	return p.usable && pod.Status.NominatedNodeName == "" &&
		(p.affinity == nil || p.affinity.PreScore(ctx, state, pod, nil).IsSkip())
}

// ClassOf returns all that is read of the pod. It is "" for pods whose place depends on more than each node by itself
// and the pods that they are spread against.
func (p *Profile) ClassOf(ctx context.Context, pod *corev1.Pod, signature fwk.PodSignature, state fwk.CycleState,
) (class string) {
	defer func() { p.panicked(recover()) }()
	if !p.ranks(ctx, state, pod) {
		return ""
	}
	key := p.filterKey(pod, signature, state)
	if key != nil && p.spreader != nil {
		key = append(append(key, ' '), p.spreader.SpreadKey(pod)...)
	}
	return string(key)
}

// filterKey is all that filters read of a pod; nil for one whose nodes depend on more than each node by itself.
func (p *Profile) filterKey(pod *corev1.Pod, signature fwk.PodSignature, state fwk.CycleState) []byte {
	if p.Cycle != nil && p.Cycle.Unranked() || signature == nil || state.IsPodGroupSchedulingCycle() ||
		len(p.Rejections.reasons(pod.UID)) > 0 {
		return nil
	}
	// The queue signs a pod once. It may use a Reservation that has got its room since.
	if p.Rooms != nil && p.Rooms.Concern(state) {
		return nil
	}
	// Each of these plugins must have said in PreFilter that the pod does not concern it.
	silent := state.GetSkipFilterPlugins()
	for _, name := range p.across {
		if !silent.Has(name) {
			return nil
		}
	}
	// Labels are signed for the affinity of other pods alone, which has nothing to say: pods of StatefulSets and of
	// indexed Jobs, each with a label of its own, are of one class.
	labels, err := json.Marshal(pod.Labels)
	if err != nil {
		return nil
	}
	key := bytes.Replace(signature, slices.Concat([]byte(`"`+fwk.LabelsSignerName+`":`), labels), nil, 1)
	key = strconv.AppendInt(append(key, ' '), int64(corev1helpers.PodPriority(pod)), 10) // nominated pods yield to it
	// On the node to which it is nominated, a pod does not count against itself.
	if pod.Status.NominatedNodeName != "" {
		key = append(append(key, ' '), pod.UID...)
	}
	return key
}

// RunPreFilterPlugins reports the pod to the profile's Valuer. It leaves no node where all are known to refuse the pod.
func (p *Profile) RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	if p.Cycle != nil {
		p.Cycle.Begun()
	}
	result, status, refusing := p.Framework.RunPreFilterPlugins(ctx, state, pod)
	switch {
	case p.valuer == nil || !status.IsSuccess():
	case p.DryRun:
		p.valuer.Recall()
	default:
		p.valuer.Arrived(state, pod)
	}
	if status.IsSuccess() && result.AllNodes() && p.recall(ctx, state, pod) {
		return nowhere(), status, refusing
	}
	return result, status, refusing
}

// RunPreScorePlugins leaves out the scores of plugins that do not count for the pod.
func (p *Profile) RunPreScorePlugins(
	ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
) *fwk.Status {
	status := p.Framework.RunPreScorePlugins(ctx, state, pod, nodes)
	left := p.leftOut(state, pod)
	if state.GetSkipFilterPlugins().Has(names.VolumeBinding) { // a pod without volumes has 0 on each node
		left = left.Union(sets.New(names.VolumeBinding))
	}
	if len(left) > 0 {
		state.SetSkipScorePlugins(left.Union(state.GetSkipScorePlugins()))
	}
	return status
}

// leftOut returns the plugins whose scores do not count for the pod.
func (p *Profile) leftOut(state fwk.CycleState, pod *corev1.Pod) sets.Set[string] {
	if p.valuer == nil || !p.valuer.Decides(state) {
		return nil
	}
	left := sets.New(names.NodeResourcesFit, names.NodeResourcesBalancedAllocation)
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		left.Insert(names.PodTopologySpread)
		if p.spreader != nil {
			left.Insert(p.spreader.Name())
		}
	}
	return left
}

// RunPostFilterPlugins looks for no victims for a pod that starts with others, nor where there can be none.
func (p *Profile) RunPostFilterPlugins(
	ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	if alone := p.Together == nil || p.Together.Alone(pod); alone || p.hasNoVictims(pod) {
		if p.hasNoVictims(pod) {
			nodes = withoutVictims{nodes}
		}
		result, status := p.Framework.RunPostFilterPlugins(ctx, state, pod, nodes)
		if !alone || p.Together == nil || !status.IsRejected() ||
			result != nil && result.NominatingInfo != nil && result.NominatedNodeName != "" {
			return result, status
		}
		if node := p.Together.Hold(ctx, pod, result); node != "" {
			result = framework.NewPostFilterResultWithNominatedNode(node)
		}
		return result, status
	}
	result, status := p.Framework.RunPostFilterPlugins(ctx, state, pod, withoutVictims{nodes})
	if !status.IsRejected() {
		return result, status
	}
	return p.Together.PostFilter(pod)
}

// withoutVictims says that no node has victims.
type withoutVictims struct{ fwk.NodeToStatusReader }

// NodesForStatusCode returns none.
func (withoutVictims) NodesForStatusCode(fwk.NodeInfoLister, fwk.Code) ([]fwk.NodeInfo, error) {
	return nil, nil
}

// AddWaitingPod reports that a pod waits.
func (p *Profile) AddWaitingPod(pod *corev1.Pod, waits map[string]time.Duration) {
	p.Framework.AddWaitingPod(pod, waits)
	if p.Together != nil {
		p.Together.Waits(pod)
	}
}

// quiet is a framework that runs filters on nodes without nominated pods as upstream does, but without making a logger
// and a context for each node.
type quiet struct{ framework.Framework }

// RunFilterPluginsWithNominatedPods runs the filters once if no pod is nominated to the node.
func (q quiet) RunFilterPluginsWithNominatedPods(
	ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
) *fwk.Status {
	if len(q.NominatedPodsForNode(node.Node().Name)) > 0 {
		return q.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
	}
	return q.RunFilterPlugins(ctx, state, pod, node)
}

// RunFilterPluginsWithNominatedPods counts the nodes that refuse.
func (p *Profile) RunFilterPluginsWithNominatedPods(
	ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
) *fwk.Status {
	status := p.refuses(pod.UID, node.Node().Name)
	switch {
	case !status.IsSuccess():
	case p.Rooms != nil:
		status = p.Rooms.Filter(ctx, p.Framework, state, pod, node)
	default:
		status = p.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
	}
	if !status.IsSuccess() {
		p.rejected.Add(1)
	}
	return status
}

// Explain is that of Rooms.
func (p *Profile) Explain(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	findings []why.Finding, find func(fwk.CycleState, fwk.NodeInfo) []why.Finding,
) []why.Finding {
	if p.Rooms == nil {
		return findings
	}
	return p.Rooms.Explain(ctx, p.Framework, state, pod, node, findings, find)
}

// RunScorePlugins notes the nodes that a ranking may be made of.
func (p *Profile) RunScorePlugins(
	ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	p.feasible = nodes
	scores, status := p.Framework.RunScorePlugins(ctx, state, pod, nodes)
	if p.Cycle != nil {
		for i := range scores {
			scores[i].Randomizer = int(Lot(p.Cycle.Seed(), scores[i].Name))
		}
	}
	if p.Cycle != nil && !p.allAsked() {
		p.Cycle.Sampled(func() (names []string) {
			for i := range scores {
				names = append(names, scores[i].Name)
			}
			return names
		})
	}
	return scores, status
}

// Lot is the number of a node among those with equal scores: the highest wins.
func Lot(seed uint32, node string) uint32 { return lot(seed, hashOf(node)) }

// lot is Lot of a node whose name has a hash.
func lot(seed, hash uint32) uint32 { return (hash ^ seed) * 0x9e3779b1 }

func hashOf(node string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // never fails
	return h.Sum32()
}

// RunReservePluginsReserve reports the reservation.
func (p *Profile) RunReservePluginsReserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string,
) *fwk.Status {
	status := p.Framework.RunReservePluginsReserve(ctx, state, pod, node)
	if p.Cycle != nil {
		p.Cycle.Reserved(state, pod, status)
	}
	return status
}

// RunReservePluginsUnreserve reports that the reservation is taken back.
func (p *Profile) RunReservePluginsUnreserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	if p.Cycle != nil {
		p.Cycle.Unreserving(state, pod)
	}
	p.Framework.RunReservePluginsUnreserve(ctx, state, pod, node)
}

// StoreScheduleResults begins a ranking after a pass over the nodes. It is filled when a second pod asks for it.
func (p *Profile) StoreScheduleResults(
	_ context.Context, _ fwk.PodSignature, hinted, chosen string, _ framework.SortedScoredNodes, _ int64,
) {
	defer metrics.StoreScheduleResultsDuration.ObserveSince(time.Now(), p.ProfileName())()
	switch {
	case hinted != "" && hinted == chosen:
		p.attempted(metrics.BatchAttemptHintUsed)
	case hinted != "":
		p.attempted(metrics.BatchAttemptHintNotUsed)
		p.drop(metrics.BatchFlushPodFailed)
	case p.key != "" && len(p.feasible) > 1:
		if r := p.begin(); r != nil {
			p.add(p.key, r)
			if !r.complete {
				p.weigh(r, len(r.members)*int(unsafe.Sizeof(r.members[0])))
			}
			if p.family != nil {
				p.family.sample = r.sample
			}
		}
	}
}

// allAsked reports whether the filters of the cycle have looked at all nodes.
func (p *Profile) allAsked() bool {
	all, err := p.SnapshotSharedLister().NodeInfos().List()
	return err == nil && len(p.feasible)+int(p.rejected.Load()) == len(all)
}

// begin returns an empty ranking of the feasible nodes, or of all that were asked; nil while the set of nodes changes.
func (p *Profile) begin() *ranking {
	r := &ranking{sample: &sample{left: len(p.feasible)}}
	_, nodeSets := p.changes.Position()
	all, err := p.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil
	}
	if p.ids == nil || p.sets != nodeSets || !slices.EqualFunc(p.names, all, isNamed) {
		p.rankings.Clear() // they know other indices
		p.family = nil
		p.sets, p.names, p.ids = nodeSets, make([]string, len(all)), make(map[string]int, len(all))
		p.hashes = p.hashes[:0]
		p.every, p.places = make([]int32, len(all)), topologies{}
		p.changedAt = make([]uint64, len(all))
		p.followed, _ = p.changes.Position()
		for i, n := range all {
			p.names[i], p.every[i] = n.Node().Name, int32(i)
			p.ids[p.names[i]] = i
			if p.Cycle != nil {
				p.hashes = append(p.hashes, hashOf(p.names[i]))
			}
		}
	}
	if len(p.feasible)+int(p.rejected.Load()) == len(all) {
		r.complete, p.feasible = true, all
	}
	members := make([]int32, len(p.feasible))
	for m, n := range p.feasible {
		i, known := p.ids[n.Node().Name]
		if !known {
			return nil
		}
		members[m] = int32(i)
	}
	if r.members = p.every; !r.complete {
		r.members = members
	}
	return r
}

// isNamed reports whether a node has a name.
func isNamed(name string, node fwk.NodeInfo) bool { return node.Node().Name == name }

// drop forgets the ranking of the cycle, and counts why.
func (p *Profile) drop(reason string) {
	metrics.BatchCacheFlushed.WithLabelValues(p.ProfileName(), reason).Inc()
	p.rankings.Remove(p.key)
	p.used, p.spread = nil, nil
}

// attempted counts whether a ranking served.
func (p *Profile) attempted(result string) {
	metrics.BatchAttemptStats.WithLabelValues(p.ProfileName(), result).Inc()
}

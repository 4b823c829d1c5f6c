package ranking

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/lru"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
)

// Memory is how many bytes the rankings of a profile may take by default.
const Memory = 64 << 20

// local are the plugins that evaluate a node by its NodeInfo alone.
var local = []string{
	names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts,
	names.NodeResourcesFit, names.NodeResourcesBalancedAllocation, names.ImageLocality, names.NodeDeclaredFeatures,
}

// Spreader is a plugin that scores a node by the pods of all nodes in its topology, as PodTopologySpread does.
type Spreader interface {
	fwk.PreScorePlugin
	// SpreadKey returns all that its score reads of the pod, "" for a pod that it does not spread.
	SpreadKey(pod *corev1.Pod) string
	// IgnoresIncomplete reports whether nodes without all topology keys are left out.
	IgnoresIncomplete(pod *corev1.Pod) bool
}

// Together knows the pods that start together.
type Together interface {
	// Planned returns the node that a pod is to have, "" for one that may have any.
	Planned(pod *corev1.Pod) (node string)
	// Within names the nodes among which the pod of the cycle is placed, "" for all.
	Within() string
	// Alone reports whether a pod starts without others: it may have victims of its own.
	Alone(pod *corev1.Pod) bool
	// IsMember reports whether a pod is of a gang, started or not.
	IsMember(pod *corev1.Pod) bool
	// PostFilter returns what preemption makes of a pod that does not fit and starts with others.
	PostFilter(pod *corev1.Pod) (*fwk.PostFilterResult, *fwk.Status)
	// Waits is called when a reserved pod waits for a permit.
	Waits(pod *corev1.Pod)
}

// Valuer is a plugin that scores nodes by what pods of the cluster ask for.
type Valuer interface {
	// Arrived is called for each attempt on a pod, before its nodes are filtered.
	Arrived(state fwk.CycleState, pod *corev1.Pod)
	// Recall learns from the pods that are bound, if it has not yet.
	Recall()
	// Epoch changes when scores can be others although the pod and the nodes are the same; in Arrived alone.
	Epoch() uint64
	// Decides reports whether its score is to decide: nodes must get none for the CPUs and memory that they have free,
	// nor for being apart from pods that the pod does not name.
	Decides(state fwk.CycleState) bool
}

// Rooms knows the room on nodes that is kept for some pods.
type Rooms interface {
	// Filter runs the filters of f on a node as the pod finds it.
	Filter(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	) *fwk.Status
	// Concern reports whether the pod of the cycle may use some of it.
	Concern(state fwk.CycleState) bool
	// Explain completes what the filters of f by themselves find on a node. find returns what they find in that room.
	Explain(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
		findings []why.Finding, find func(fwk.CycleState, fwk.NodeInfo) []why.Finding) []why.Finding
}

// Cycle sees what a profile does in the cycle of a pod.
type Cycle interface {
	// Seed returns the number of the cycle by which Lot chooses among nodes with equal scores.
	Seed() uint32
	// Begun is called where a node is looked for, Sampled where not all nodes were looked at, with those that were
	// scored.
	Begun()
	Sampled(nodes func() []string)
	// Unranked reports whether the pod of the cycle is evaluated on nodes anew.
	Unranked() bool
	// Reserved is called after a reservation, with its status, Unreserving before a reservation is taken back.
	Reserved(state fwk.CycleState, pod *corev1.Pod, status *fwk.Status)
	Unreserving(state fwk.CycleState, pod *corev1.Pod)
}

// scorer is a plugin that scores a node by what is on the node alone, with its weight.
type scorer struct {
	fwk.ScorePlugin
	pre    fwk.PreScorePlugin // nil without
	weight int64
	alike  bool // it reads no amounts of the pod
}

// Profile places pods of one signature by a ranking of the nodes. It belongs to the scheduling loop alone.
type Profile struct {
	framework.Framework
	// ByName chooses the first name among nodes with equal scores. Without it they are chosen round-robin.
	ByName bool
	// Cycle sees what the profile does, where it is recorded or replayed; nil where it is not.
	Cycle Cycle
	// Memory is how many bytes the rankings and spreads may take; the least recently used ones go. Two always remain.
	Memory int
	// DryRun is set for a profile whose pods may not exist: nothing is learnt from them.
	DryRun bool
	// Bindings counts those of the profile; nil counts none.
	Bindings *hooks.Bindings
	// Rejections has the nodes that pods of the profile are not to be tried on; nil has none.
	Rejections *Rejections
	// Rooms runs the filters inside of room that is kept for the pod; nil where none is.
	Rooms Rooms
	// Together is asked about pods that start together; nil where there are none.
	Together Together

	// changes is the log of nodes that have changed since a ranking was last used.
	changes *hooks.Changes
	// usable is true if every score plugin is known. Else no pod is ranked.
	usable bool
	// across are the plugins that must have nothing to say about a pod: what they say of a node depends on others.
	across []string
	// scorers evaluate each node by itself.
	scorers []scorer
	// sized are the local filters that may read amounts of the pod; sizedNames their names.
	sized      []fwk.FilterPlugin
	sizedNames sets.Set[string]
	spreader   Spreader // nil without
	// spreads is the weight of spreader.
	spreads int64
	valuer  Valuer // nil without
	// affinity is InterPodAffinity: rankings are used only for pods about which it has nothing to say. nil without.
	affinity fwk.PreScorePlugin
	// rankings has by what filters read of pods the *ranking, by that without amounts the *family, and by that and what
	// spreading reads the *spread.
	rankings *lru.Cache
	// kept is how many bytes these take.
	kept     int
	refusals *lru.Cache           // key → *refusal
	tables   []*refusal           // the last ones of which each has other statuses, the latest first
	texts    map[text]*fwk.Status // what these have in common
	// lowest is the lowest priority that runs, attempt the last attempt on a pod.
	lowest  priorities
	attempt attempt
	refused atomic.Pointer[refusal] // of the attempt; nil unless all nodes refuse its pod. Binding cycles read it too
	// alone is the pod of the last attempt if all nodes have refused it, each by itself. amounts is NodeResourcesFit,
	// nil if the profile does not have it.
	alone   atomic.Pointer[corev1.Pod]
	amounts hooks.Amounts

	// asked has the score plugins that are known, by name.
	asked map[string]fwk.ScorePlugin

	// The nodes of the snapshot, by name; they hold while the log's set of nodes is the same.
	names []string
	// ids has the index of each name.
	ids   map[string]int
	every []int32 // the indices of names
	// hashes are those of names; empty without Cycle.
	hashes []uint32
	sets   uint64
	// changedAt is one more than the last position in the log of changes that names each node, 0 for none; as of
	// followed, up to which the log was read.
	changedAt []uint64
	followed  uint64
	// places has the topologies of the nodes, for spreading.
	places topologies

	// The cycle under way.
	// key is what the ranking of the pod is known by; empty for a pod that is not ranked.
	key      string
	feasible []fwk.NodeInfo
	// rejected counts the nodes that refused the pod. With the feasible ones it says whether all nodes were asked.
	rejected atomic.Int64
	refusing atomic.Pointer[rejections] // of the pod; read by binding cycles too, for what they report
	// used is the ranking that chose the node; nil if none did.
	used   *ranking
	spread *spread // beside used; nil where no spreading acts
	family *family // of the pod; nil without
	sums   sums    // of used and spread
	// The rest is memory that each evaluation writes anew.
	todo  []int32
	fits  []bool
	given []int64
}

// NewProfile wraps a profile. cfg is what it was made from. localPlugins are plugins outside of kube-scheduler that
// evaluate a node by its NodeInfo, and by what is logged as a change of the node.
func NewProfile(
	ctx context.Context, f framework.Framework, cfg *config.KubeSchedulerProfile, changes *hooks.Changes,
	localPlugins ...string,
) (*Profile, error) {
	p := &Profile{
		Framework: quiet{f}, changes: changes, usable: true, Memory: Memory,
		refusals: lru.New(refusalsKept), texts: map[text]*fwk.Status{},
		asked: map[string]fwk.ScorePlugin{}, sizedNames: sets.New[string](),
	}
	p.rankings = lru.NewWithEvictionFunc(0, func(_ lru.Key, gone any) { p.kept -= *gone.(entry).size() })
	made := map[string]fwk.Plugin{}
	for _, e := range f.EnqueueExtensions() {
		made[e.Name()] = e
		if valuer, ok := e.(Valuer); ok {
			p.valuer = valuer
		}
	}
	p.amounts, _ = made[names.NodeResourcesFit].(hooks.Amounts)
	isLocal := func(name string) bool { return slices.Contains(local, name) || slices.Contains(localPlugins, name) }
	plugins := f.ListPlugins()
	for _, enabled := range plugins.Filter.Enabled {
		if !isLocal(enabled.Name) {
			// Its answer about one node may depend on others.
			p.across = append(p.across, enabled.Name)
		}
		if filter, ok := made[enabled.Name].(fwk.FilterPlugin); ok && isLocal(enabled.Name) && !isAlike(enabled.Name) {
			p.sized = append(p.sized, filter)
			p.sizedNames.Insert(enabled.Name)
		}
	}
	for _, enabled := range plugins.Score.Enabled {
		plugin, ok := made[enabled.Name].(fwk.ScorePlugin)
		switch factory, inTree := frameworkplugins.NewInTreeRegistry()[enabled.Name]; {
		case enabled.Name == names.VolumeBinding || enabled.Name == names.DynamicResources:
			p.across = append(p.across, enabled.Name) // who passes their filter without a word has a score of 0
			continue
		case !ok && inTree && isLocal(enabled.Name): // a plugin that only scores: the framework does not hand it out
			var args runtime.Object
			for i := range cfg.PluginConfig {
				if cfg.PluginConfig[i].Name == enabled.Name {
					args = cfg.PluginConfig[i].Args
				}
			}
			another, err := factory(ctx, args, f)
			if err != nil {
				return nil, fmt.Errorf("make %s: %w", enabled.Name, err)
			}
			plugin, ok = another.(fwk.ScorePlugin)
		}
		if ok {
			p.asked[enabled.Name] = plugin
		}
		pre, _ := plugin.(fwk.PreScorePlugin)
		spreader, spreads := plugin.(Spreader)
		switch {
		case ok && isLocal(enabled.Name):
			p.scorers = append(p.scorers,
				scorer{plugin, pre, int64(enabled.Weight), isAlike(enabled.Name)})
		case ok && enabled.Name == names.InterPodAffinity:
			p.affinity = pre
		case ok && spreads:
			p.spreader, p.spreads = spreader, int64(enabled.Weight)
		case enabled.Name != names.PodTopologySpread: // which signs no pod that it would score
			p.usable = false
		}
	}
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
	p.used, p.spread, p.family, p.feasible, p.key = nil, nil, nil, nil, ""
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

// ranks reports whether the score plugins can be asked about each node by itself, but for spreading.
func (p *Profile) ranks(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) bool {
	return p.usable && (p.affinity == nil || p.affinity.PreScore(ctx, state, pod, nil).IsSkip())
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
		pod.Status.NominatedNodeName != "" ||
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
	return strconv.AppendInt(append(key, ' '), int64(corev1helpers.PodPriority(pod)), 10) // nominated pods yield to it
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
	if left := p.leftOut(state, pod); len(left) > 0 {
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
	if p.hasNoVictims(pod) {
		return p.Framework.RunPostFilterPlugins(ctx, state, pod, withoutVictims{nodes})
	}
	if p.Together == nil || p.Together.Alone(pod) {
		return p.Framework.RunPostFilterPlugins(ctx, state, pod, nodes)
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

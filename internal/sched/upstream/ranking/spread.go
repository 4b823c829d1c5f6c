package ranking

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// spread counts the pods that one pod is spread against, by node and by topology, as the score of PodTopologySpread
// does. A change of a node costs a look at the pods of that node alone.
//
// Invariant: for each constraint, pods of a topology is the sum of place.pods over the nodes whose place is there.
// count keeps it by subtracting what a node added before.
type spread struct {
	// bytes is what the spread counts for in the profile's memory.
	bytes    int
	elements int    // of the maps and slices of constraints, as they count in bytes
	seen     uint64 // position in the log of changes up to which the counts hold
	// namespace, tolerations and required are those of the pod: which pods count, and on which nodes.
	namespace   string
	tolerations []corev1.Toleration
	required    nodeaffinity.RequiredNodeAffinity
	constraints []constraint
	incomplete  bool // nodes without all keys are left out: they get no score, and their pods do not count
}

// scored is a constraint that nodes are scored by, as upstream's plugin has it.
type scored struct {
	MaxSkew     int32
	TopologyKey string
	Selector    labels.Selector
	MinDomains  int32
	// Honor means that pods on nodes which the pod could not go to do not count.
	NodeAffinityPolicy, NodeTaintsPolicy corev1.NodeInclusionPolicy
}

// constraint is a constraint with the pods that it counts now.
type constraint struct {
	scored
	as       bool // it selects the same pods as the constraint before it
	topology *topology
	on       map[int32]place // the nodes that add pods
	pods     []int64         // selected, by topology; empty where the key is the hostname
}

// place is what a node adds to a constraint.
type place struct{ topology, pods int32 }

// topology is where each node is by one key of its labels.
type topology struct {
	key    string
	has    []bool           // by node: it has the key
	at     []int32          // by node: the value of its label, as an index; not for the hostname
	values map[string]int32 // the indices. Values that no node has any more remain
}

// set sets the value of a node. By host name each node is its own topology, and has no index.
func (t *topology) set(i int32, labels map[string]string) {
	value, has := labels[t.key]
	if t.has[i] = has; t.key == corev1.LabelHostname {
		return
	}
	at, known := t.values[value]
	if !known {
		at = int32(len(t.values))
		t.values[value] = at
	}
	t.at[i] = at
}

// topologies has the topology of each key that constraints name.
type topologies struct {
	seen  uint64 // position in the log of changes up to which they hold
	byKey map[string]*topology
}

// topologiesKept bounds the keys of which a profile knows the topologies. One more key voids all rankings.
const topologiesKept = 64

// updateTopologies looks at the nodes that have changed.
func (p *Profile) updateTopologies() {
	nodes := p.changedSince(p.places.seen)
	p.places.seen = p.followed
	for _, i := range nodes {
		if node, err := p.SnapshotSharedLister().NodeInfos().Get(p.names[i]); err == nil {
			for _, t := range p.places.byKey {
				t.set(i, node.Node().Labels)
			}
		}
	}
}

// topology returns where the nodes are by a key.
func (p *Profile) topology(key string) (*topology, error) {
	t, known := p.places.byKey[key]
	if known {
		return t, nil
	}
	n := len(p.names)
	t = &topology{key: key, has: make([]bool, n), at: make([]int32, n), values: map[string]int32{}}
	for i, name := range p.names {
		node, err := p.SnapshotSharedLister().NodeInfos().Get(name)
		if err != nil {
			return nil, err
		}
		t.set(int32(i), node.Node().Labels)
	}
	if p.places.byKey == nil {
		p.places.byKey = map[string]*topology{}
	}
	p.places.byKey[key] = t
	return t, nil
}

// spreadOf returns the pods that a pod is spread against, as they are now; nil when no constraint acts on its score.
func (p *Profile) spreadOf(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) (*spread, error) {
	if p.spreader == nil || p.leftOut(state, pod).Has(p.spreader.Name()) {
		return nil, nil
	}
	key := p.spreader.SpreadKey(pod)
	if key == "" {
		return nil, nil
	}
	key = "spread " + p.key + " " + key
	if len(p.places.byKey) > topologiesKept {
		p.rankings.Clear()
		p.places = topologies{}
	}
	p.updateTopologies()
	known, _ := p.rankings.Get(key)
	s, ok := known.(*spread)
	nodes := p.every
	if ok {
		nodes = p.changedSince(s.seen)
	} else {
		var err error
		if s, err = p.newSpread(ctx, state, pod); s == nil {
			return nil, err
		}
		p.add(key, s)
	}
	s.seen = p.followed
	for _, i := range nodes {
		node, err := p.SnapshotSharedLister().NodeInfos().Get(p.names[i])
		if err != nil {
			return nil, err
		}
		s.count(ctx, i, node)
	}
	elements := 0
	for k := range s.constraints {
		elements += len(s.constraints[k].on) + len(s.constraints[k].pods)
	}
	p.weigh(s, bytesOfPlace*(elements-s.elements))
	s.elements = elements
	return s, nil
}

// newSpread returns the constraints of a pod, which count nothing yet; nil when none acts on its score.
func (p *Profile) newSpread(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) (*spread, error) {
	switch status := p.spreader.PreScore(ctx, state, pod, nil); {
	case status.IsSkip():
		return nil, nil
	case !status.IsSuccess():
		return nil, status.AsError()
	}
	s := &spread{
		namespace: pod.Namespace, tolerations: pod.Spec.Tolerations,
		required: nodeaffinity.GetRequiredNodeAffinity(pod), incomplete: p.spreader.IgnoresIncomplete(pod),
	}
	return s, s.read(p, state)
}

// read takes the constraints from the state that upstream's PreScore has written: own ones and defaults, with selectors
// made from owners and Services. The type of the state is not exported, its fields are.
func (s *spread) read(p *Profile, state fwk.CycleState) error {
	const key = "PreScore" + names.PodTopologySpread
	data, err := state.Read(key)
	if err != nil {
		return err
	}
	found := reflect.Indirect(reflect.ValueOf(data)).FieldByName("Constraints")
	if found.Kind() != reflect.Slice {
		return fmt.Errorf("%s is not what is expected", key)
	}
	for i := range found.Len() {
		c := constraint{on: map[int32]place{}}
		into := reflect.ValueOf(&c.scored).Elem()
		if !found.Index(i).CanConvert(into.Type()) {
			return fmt.Errorf("constraints in %s are not what is expected", key)
		}
		into.Set(found.Index(i).Convert(into.Type()))
		c.as = i > 0 && c.Selector.String() == s.constraints[i-1].Selector.String()
		if c.topology, err = p.topology(c.TopologyKey); err != nil {
			return err
		}
		s.constraints = append(s.constraints, c)
	}
	return nil
}

// leftOut reports whether a node lacks a key that it has to have.
func (s *spread) leftOut(i int32) bool {
	return s.incomplete && slices.ContainsFunc(s.constraints, func(c constraint) bool { return !c.topology.has[i] })
}

// count counts the pods of one node anew, for all constraints. A node that has added nothing yet has the empty place:
// to subtract its 0 pods from the first topology changes nothing.
func (s *spread) count(ctx context.Context, i int32, info fwk.NodeInfo) {
	leftOut, matching := s.leftOut(i), int32(0)
	for k := range s.constraints {
		c := &s.constraints[k]
		if !c.as {
			matching = selected(info, c.Selector, s.namespace)
		}
		here, hostname := place{pods: matching}, c.TopologyKey == corev1.LabelHostname
		if matching > 0 && !hostname && (leftOut || !s.counts(ctx, c, info.Node())) {
			here.pods = 0
		}
		was, added := c.on[i]
		if !hostname {
			here.topology = c.topology.at[i]
			c.pods = append(c.pods, make([]int64, max(0, len(c.topology.values)-len(c.pods)))...)
			c.pods[was.topology] -= int64(was.pods)
			c.pods[here.topology] += int64(here.pods)
		}
		switch {
		case here.pods > 0:
			c.on[i] = here
		case added:
			delete(c.on, i)
		}
	}
}

// counts reports whether pods on a node count for a constraint: it may leave out nodes to which the pod could not go.
func (s *spread) counts(ctx context.Context, c *constraint, node *corev1.Node) bool {
	if c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
		// an affinity that cannot be read matches no node, as upstream has it
		if match, _ := s.required.Match(node); !match {
			return false
		}
	}
	if c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor {
		comparing := utilfeature.DefaultFeatureGate.Enabled(features.TaintTolerationComparisonOperators)
		_, refused := corev1helpers.FindMatchingUntoleratedTaint(
			klog.FromContext(ctx), node.Spec.Taints, s.tolerations, helper.DoNotScheduleTaintsFilterFunc(),
			comparing,
		)
		return !refused
	}
	return true
}

// selected counts the pods of a node and namespace that a selector matches and that do not terminate. A selector
// without requirements selects none, as upstream has it.
func selected(node fwk.NodeInfo, selector labels.Selector, namespace string) (n int32) {
	if selector.Empty() {
		return 0
	}
	for _, p := range node.GetPods() {
		pod := p.GetPod()
		if pod.DeletionTimestamp == nil && pod.Namespace == namespace && selector.Matches(labels.Set(pod.Labels)) {
			n++
		}
	}
	return n
}

// score scores the feasible members, in the sums of the profile: few selected pods, in topologies weighted by their
// number, score high.
func (s *spread) score(p *Profile, r *ranking) {
	to, n := &p.sums, len(r.members)
	to.raw, to.normal, to.counted = zeroes(to.raw, n), zeroes(to.normal, n), zeroes(to.counted, n)
	for m, i := range r.members {
		to.counted[m] = r.feasible[m] && !s.leftOut(i)
	}
	to.float = zeroes(to.float, n)
	for k := range s.constraints {
		s.constraints[k].add(to, r.members)
	}
	lowest, highest := int64(math.MaxInt64), int64(0)
	for m, counted := range to.counted {
		if counted {
			to.raw[m] = int64(math.Round(to.float[m]))
			lowest, highest = min(lowest, to.raw[m]), max(highest, to.raw[m])
		}
	}
	for m, counted := range to.counted {
		switch {
		case !counted:
		case highest == 0:
			to.normal[m] = uint8(fwk.MaxScore)
		default:
			to.normal[m] = uint8(fwk.MaxScore * (highest + lowest - to.raw[m]) / highest)
		}
	}
}

// add adds what the constraint says of the members that are counted. A topology weighs by how many of them the counted
// members have, not the cluster: one without a feasible node is none. But for host names, a topology's term is made
// once and given to all its members.
func (c *constraint) add(to *sums, members []int32) {
	if c.TopologyKey == corev1.LabelHostname {
		size := 0
		for _, counted := range to.counted {
			if counted {
				size++
			}
		}
		to.hosts = zeroes(to.hosts, len(c.topology.has))
		for i, at := range c.on {
			to.hosts[i] = at.pods
		}
		weight := weightOf(size)
		for m, i := range members {
			if to.counted[m] && c.topology.has[i] {
				to.float[m] += c.term(int64(to.hosts[i]), weight)
			}
		}
		return
	}
	size := 0
	to.seen = zeroes(to.seen, len(c.topology.values))
	for m, i := range members {
		if at := c.topology.at[i]; to.counted[m] && !to.seen[at] {
			to.seen[at] = true
			size++
		}
	}
	to.term = zeroes(to.term, len(c.topology.values))
	weight := weightOf(size)
	for at := range to.term {
		pods := int64(0)
		if at < len(c.pods) {
			pods = c.pods[at]
		}
		to.term[at] = c.term(pods, weight)
	}
	for m, i := range members {
		if to.counted[m] && c.topology.has[i] {
			to.float[m] += to.term[c.topology.at[i]]
		}
	}
}

// weightOf is what a pod weighs in one of so many topologies, as upstream has it.
func weightOf(topologies int) float64 { return math.Log(float64(topologies + 2)) }

// term is what pods in a topology add to the score of its nodes.
func (c *constraint) term(pods int64, weight float64) float64 {
	return float64(pods)*weight + float64(c.MaxSkew-1)
}

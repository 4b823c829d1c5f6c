package ranking

import (
	"context"
	"fmt"
	"math"
	"reflect"

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
	pod         *corev1.Pod // one of the key; the others have the same labels and constraints
	required    nodeaffinity.RequiredNodeAffinity
	constraints []constraint
	incomplete  bool   // nodes without all keys are left out
	leftOut     []bool // by node: it lacks a key, gets no score, and its pods do not count

	raw    []int64 // before it is normalized, by member of the ranking
	normal []int64 // by member of the ranking
	stale  bool    // normal does not follow from the counts, or from which members are feasible
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
	on         []place        // by node
	topologies map[string]int // by value of key
	pods       []int64        // selected, by topology; of use where the key is not the hostname
	seen       []bool         // scratch, by topology
}

// place is where a node is in the topology of a constraint.
type place struct {
	has      bool // the node has the key
	topology int
	pods     int64 // that the node adds to its topology; with the hostname as key, its selected pods
}

// newSpread returns the counts of all nodes, nil when no constraint acts on the pod's score.
func newSpread(ctx context.Context, p *Profile, state fwk.CycleState, pod *corev1.Pod) (*spread, error) {
	switch status := p.spreader.PreScore(ctx, state, pod, nil); {
	case status.IsSkip():
		return nil, nil
	case !status.IsSuccess():
		return nil, status.AsError()
	}
	s := &spread{
		pod: pod, required: nodeaffinity.GetRequiredNodeAffinity(pod), incomplete: p.spreader.IgnoresIncomplete(pod),
		leftOut: make([]bool, len(p.names)), stale: true,
	}
	if err := s.read(state, len(p.names)); err != nil {
		return nil, err
	}
	for i, name := range p.names {
		node, err := p.SnapshotSharedLister().NodeInfos().Get(name)
		if err != nil {
			return nil, err
		}
		s.count(ctx, i, node)
	}
	return s, nil
}

// read takes the constraints from the state that upstream's PreScore has written: own ones and defaults, with selectors
// made from owners and Services. The type of the state is not exported, its fields are.
func (s *spread) read(state fwk.CycleState, nodes int) error {
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
		c := constraint{on: make([]place, nodes), topologies: map[string]int{}}
		into := reflect.ValueOf(&c.scored).Elem()
		if !found.Index(i).CanConvert(into.Type()) {
			return fmt.Errorf("constraints in %s are not what is expected", key)
		}
		into.Set(found.Index(i).Convert(into.Type()))
		s.constraints = append(s.constraints, c)
	}
	return nil
}

// count counts the pods of one node anew, for all constraints.
func (s *spread) count(ctx context.Context, i int, info fwk.NodeInfo) {
	node := info.Node()
	leftOut := false
	for k := range s.constraints {
		if _, has := node.Labels[s.constraints[k].TopologyKey]; !has && s.incomplete {
			leftOut = true
		}
	}
	s.stale = s.stale || leftOut != s.leftOut[i]
	s.leftOut[i] = leftOut
	for k := range s.constraints {
		c := &s.constraints[k]
		value, has := node.Labels[c.TopologyKey]
		here := place{has: has, topology: c.topology(value)}
		if c.TopologyKey == corev1.LabelHostname || !leftOut && s.counts(ctx, c, node) {
			here.pods = selected(info, c.Selector, s.pod.Namespace)
		}
		was := c.on[i]
		c.pods[was.topology] -= was.pods
		c.pods[here.topology] += here.pods
		c.on[i] = here
		s.stale = s.stale || here != was
	}
}

// topology returns the index of the topology with a value of the key, which it makes if it is new. Topologies of which
// no node is left remain, with no pods.
func (c *constraint) topology(value string) int {
	i, known := c.topologies[value]
	if !known {
		i = len(c.pods)
		c.topologies[value], c.pods, c.seen = i, append(c.pods, 0), append(c.seen, false)
	}
	return i
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
			klog.FromContext(ctx), node.Spec.Taints, s.pod.Spec.Tolerations, helper.DoNotScheduleTaintsFilterFunc(),
			comparing,
		)
		return !refused
	}
	return true
}

// selected counts the pods of a node and namespace that a selector matches and that do not terminate. A selector
// without requirements selects none, as upstream has it.
func selected(node fwk.NodeInfo, selector labels.Selector, namespace string) (n int64) {
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

// normalize scores the feasible members: few selected pods, in topologies weighted by their number, score high.
func (s *spread) normalize(r *ranking) {
	if !s.stale {
		return
	}
	s.stale = false
	weights := make([]float64, len(s.constraints))
	for k := range s.constraints {
		weights[k] = math.Log(float64(s.constraints[k].size(s, r) + 2))
	}
	lowest, highest := int64(math.MaxInt64), int64(0)
	for m, i := range r.members {
		s.raw[m], s.normal[m] = 0, 0
		if !r.feasible[m] || s.leftOut[i] {
			continue
		}
		var sum float64
		for k := range s.constraints {
			c := &s.constraints[k]
			at := c.on[i]
			if !at.has {
				continue
			}
			pods := at.pods
			if c.TopologyKey != corev1.LabelHostname {
				pods = c.pods[at.topology]
			}
			sum += float64(pods)*weights[k] + float64(c.MaxSkew-1)
		}
		raw := int64(math.Round(sum))
		s.raw[m] = raw
		lowest, highest = min(lowest, raw), max(highest, raw)
	}
	for m, i := range r.members {
		switch {
		case !r.feasible[m] || s.leftOut[i]:
		case highest == 0:
			s.normal[m] = fwk.MaxScore
		default:
			s.normal[m] = fwk.MaxScore * (highest + lowest - s.raw[m]) / highest
		}
	}
}

// size returns how many topologies feasible members are in; with the hostname as key, how many feasible members there
// are.
func (c *constraint) size(s *spread, r *ranking) (n int) {
	clear(c.seen)
	for m, i := range r.members {
		if !r.feasible[m] || s.leftOut[i] {
			continue
		}
		if at := c.on[i].topology; c.TopologyKey == corev1.LabelHostname || !c.seen[at] {
			c.seen[at] = true
			n++
		}
	}
	return n
}

package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

// NewPodGroupInformer returns an informer of a kind, whose objects name it with group and version; what cannot be read
// of one is in Unread. A cluster without the resource looks like one without objects until it is installed.
func NewPodGroupInformer(client rest.Interface, kind v1alpha1.GangKind) cache.SharedIndexInformer {
	return informerOf(client, kind.At, kind.Kind,
		func(p *publishedPodGroup) *v1alpha1.PodGroup { return p.read(kind.At[0].Group, kind.Kind) })
}

// ReadPodGroup reads the JSON of a PodGroup or CompositePodGroup, which may leave out kind and version. What cannot be
// read of it is in Unread.
func ReadPodGroup(kind schema.GroupVersionKind, text []byte) (*v1alpha1.PodGroup, error) {
	var p publishedPodGroup
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	g := p.read(kind.Group, kind.Kind)
	g.SetGroupVersionKind(kind)
	return g, nil
}

// publishedPodGroup is an object whose fields are not read yet, so that one odd object cannot hide the others.
type publishedPodGroup struct {
	metav1.TypeMeta
	Metadata metav1.ObjectMeta
	Spec     struct {
		MinMember, MinResources, ScheduleTimeoutSeconds json.RawMessage
		SchedulingPolicy, DisruptionMode, Priority      json.RawMessage // of Kubernetes' own
		SchedulingConstraints                           json.RawMessage // of Kubernetes' own
		PreemptionPolicy, ParentCompositePodGroupName   json.RawMessage // of Kubernetes' own, since 1.37
		ResourceClaims                                  json.RawMessage // of Kubernetes' own
	}
	Status json.RawMessage
}

func (p *publishedPodGroup) read(group, kind string) *v1alpha1.PodGroup {
	g := &v1alpha1.PodGroup{TypeMeta: p.TypeMeta, ObjectMeta: p.Metadata}
	g.ManagedFields = nil
	var faults unread
	if group == v1alpha1.NativeGroupName {
		p.readPolicy(g, kind, &faults)
		g.Whole = readWholeDisruption(&faults, p.Spec.DisruptionMode)
		g.Priority = readWhole[*int32](&faults, "spec.priority", p.Spec.Priority)
		var status struct{ Conditions []metav1.Condition }
		_ = json.Unmarshal(p.Status, &status) // what does not fit the type is left out
		g.Status.Conditions, g.Status.Phase = status.Conditions, v1alpha1.NativePhase(status.Conditions)
		g.TopologyKey = readTopologyKey(&faults, p.Spec.SchedulingConstraints)
		if kind == v1alpha1.CompositeKind && g.TopologyKey != "" {
			faults.add("spec.schedulingConstraints", "must be absent: that of each PodGroup counts")
		}
		g.NeverPreempts = readNeverPreempts(&faults, p.Spec.PreemptionPolicy)
		g.Claims = readClaims(&faults, p.Spec.ResourceClaims)
		if text := p.Spec.ParentCompositePodGroupName; len(text) > 0 && json.Unmarshal(text, &g.Parent) != nil {
			faults.add("spec.parentCompositePodGroupName", "must be a name, is "+shown(text))
		}
	} else {
		g.Spec.MinMember = readWhole[int32](&faults, "spec.minMember", p.Spec.MinMember)
		g.Spec.MinResources = faults.quantities("spec.minResources", p.Spec.MinResources)
		g.Spec.ScheduleTimeoutSeconds = readWhole[*int32](&faults, "spec.scheduleTimeoutSeconds",
			p.Spec.ScheduleTimeoutSeconds)
		_ = json.Unmarshal(p.Status, &g.Status) // what does not fit the type is left out
	}
	g.Unread = faults
	return g
}

// readPolicy reads how many pods of Kubernetes' own PodGroup start together, or child groups of a CompositePodGroup.
func (p *publishedPodGroup) readPolicy(g *v1alpha1.PodGroup, kind string, faults *unread) {
	var policy struct {
		Basic *struct{}
		Gang  map[string]json.RawMessage
	}
	err := json.Unmarshal(p.Spec.SchedulingPolicy, &policy)
	field := map[string]string{"PodGroup": "minCount", v1alpha1.CompositeKind: "minGroupCount"}[kind]
	switch basic := policy.Basic != nil; {
	case err != nil || basic == (policy.Gang != nil):
		faults.add("spec.schedulingPolicy", "must have either gang or basic, is "+shown(p.Spec.SchedulingPolicy))
	case basic:
		g.Basic = true
	case json.Unmarshal(policy.Gang[field], &g.Spec.MinMember) != nil || g.Spec.MinMember < 1:
		g.Spec.MinMember = 0
		faults.add("spec.schedulingPolicy.gang."+field, fmt.Sprintf("must be a whole number from 1 to %d, is %s",
			math.MaxInt32, shown(policy.Gang[field])))
	}
}

// readWholeDisruption reads whether pods go together: a word in Kubernetes 1.36, a union in 1.37.
func readWholeDisruption(faults *unread, text json.RawMessage) bool {
	var word string
	var union struct{ Single, All *struct{} }
	switch {
	case len(text) == 0:
	case json.Unmarshal(text, &word) == nil && (word == "" || word == "Pod" || word == "PodGroup"):
		return word == "PodGroup"
	case json.Unmarshal(text, &union) == nil && (union.Single == nil) != (union.All == nil):
		return union.All != nil
	default:
		faults.add("spec.disruptionMode", "must be Pod, PodGroup, {single: {}} or {all: {}}, is "+shown(text))
	}
	return false
}

// readNeverPreempts reads whether no pod is evicted for the pods.
func readNeverPreempts(faults *unread, text json.RawMessage) bool {
	var policy string
	err := json.Unmarshal(text, &policy)
	if len(text) > 0 && (err != nil || policy != "" && policy != "Never" && policy != "PreemptLowerPriority") {
		faults.add("spec.preemptionPolicy", "must be Never or PreemptLowerPriority, is "+shown(text))
	}
	return policy == "Never"
}

// readTopologyKey reads the label of nodes that pods must agree on.
func readTopologyKey(faults *unread, text json.RawMessage) string {
	var constraints *struct{ Topology []struct{ Key string } }
	err := json.Unmarshal(text, &constraints)
	switch {
	case len(text) == 0:
	case err != nil || constraints != nil && len(constraints.Topology) > 1:
		faults.add("spec.schedulingConstraints.topology", "must have at most one key, is "+shown(text))
	case constraints == nil || len(constraints.Topology) == 0:
	case len(validation.IsQualifiedName(constraints.Topology[0].Key)) > 0:
		faults.add("spec.schedulingConstraints.topology[0].key", "must be the key of a label of nodes, is "+
			shown(json.RawMessage(strconv.Quote(constraints.Topology[0].Key))))
	default:
		return constraints.Topology[0].Key
	}
	return ""
}

// readClaims reads the claims that pods of a group share.
func readClaims(faults *unread, text json.RawMessage) (claims []corev1.PodResourceClaim) {
	err := json.Unmarshal(text, &claims)
	isOne := func(c corev1.PodResourceClaim) bool {
		return c.Name != "" && (c.ResourceClaimName == nil) != (c.ResourceClaimTemplateName == nil)
	}
	if len(text) > 0 && (err != nil || slices.ContainsFunc(claims, func(c corev1.PodResourceClaim) bool {
		return !isOne(c)
	})) {
		faults.add("spec.resourceClaims", "must be a list of objects with name and either resourceClaimName or "+
			"resourceClaimTemplateName, is "+shown(text))
		return nil
	}
	return claims
}

func shown(text json.RawMessage) string { return fmt.Sprintf("%.64s", cmp.Or(string(text), "absent")) }

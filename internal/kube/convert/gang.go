package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	config "github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// GangPod translates a pod that has not ended; false for one without a gang. A setting that cannot be read says
// nothing, and the Fault names the first one. It may be called for every pod: for one without a gang it allocates
// nothing.
func GangPod(p *corev1.Pod) (gang.Pod, bool) {
	field, name, inObject := gangName(p)
	if name == "" {
		return gang.Pod{}, false
	}
	r := gangReader{object: "Pod/" + p.Namespace + "/" + p.Name}
	id, err := gangID(p.Namespace, name)
	r.note(field, err)
	out := gang.Pod{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Gang: id, InObject: inObject,
		Settings: r.settings(p.Annotations, p.Labels), Created: p.CreationTimestamp.Time, Node: p.Spec.NodeName,
		Bound: boundAt(p), Leaving: p.DeletionTimestamp != nil, Joint: joinsGPUs(p), WholeGPUs: asksForWholeGPUs(p),
		Index: readGang(&r, p.Annotations, annotation.ParseMemberIndex, annotation.GangNetworkTopologyIndex),
	}
	if p.Spec.Priority != nil {
		out.Priority = *p.Spec.Priority
	}
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		out.Owner = string(owner.UID)
	}
	if field == inLabels+"["+annotation.KueueGroup+"]" {
		out.Settings.Min = cmp.Or(out.Settings.Min, kueueGroupSize(p))
	}
	var gates []string
	for _, g := range p.Spec.SchedulingGates {
		gates = append(gates, g.Name)
	}
	out.Gate, out.Fault = strings.Join(gates, ","), r.fault
	return out, true
}

// boundAt returns when a pod was bound: its condition PodScheduled gets that time with the Binding.
func boundAt(p *corev1.Pod) (at time.Time) {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if p.Spec.NodeName != "" && c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// GangObject translates a PodGroup of any group. Its annotations come before its spec; they say nothing of one whose
// pods start one by one. A setting that cannot be read says nothing, and the Fault names the first one.
func GangObject(o *v1alpha1.PodGroup) gang.Object {
	r := gangReader{object: cmp.Or(o.Kind, "PodGroup") + "/" + o.Namespace + "/" + o.Name}
	var s gang.Settings
	if !o.Basic {
		s = r.settings(o.Annotations, nil)
		s.Min = cmp.Or(s.Min, max(int(o.Spec.MinMember), 0))
	}
	if seconds := o.Spec.ScheduleTimeoutSeconds; seconds != nil {
		s.Wait = cmp.Or(s.Wait, max(time.Duration(*seconds)*time.Second, 0))
	}
	if key := o.TopologyKey; key != "" && len(s.DomainRules) == 0 && !o.Basic {
		s.DomainRules = []domain.Rule{{Label: key, Must: true}}
	}
	for _, field := range slices.Sorted(maps.Keys(o.Unread)) {
		r.note(field, errors.New(o.Unread[field]))
	}
	parent := o.Parent
	if parent != "" {
		parent = o.Namespace + "/" + parent
	}
	return gang.Object{
		Gang: o.Namespace + "/" + o.Name, Settings: s, Fault: r.fault, Created: o.CreationTimestamp.Time,
		Phase: string(o.Status.Phase), Started: o.Status.Phase.IsUnderWay(), Plain: o.Basic, Whole: o.Whole,
		Rule:   o.Annotations[annotation.GangRule],
		Native: o.GroupVersionKind().Group == v1alpha1.NativeGroupName, Parent: parent,
	}
}

// GangComposite translates a CompositePodGroup.
func GangComposite(o *v1alpha1.PodGroup) gang.Composite {
	group := GangObject(o)
	return gang.Composite{
		Exists: true, Parent: group.Parent, Least: int(o.Spec.MinMember), Whole: o.Whole, Fault: group.Fault,
	}
}

const (
	inLabels      = "metadata.labels"
	inAnnotations = "metadata.annotations"
)

// gangName returns the gang that a pod names, empty without one, in which field, and whether a PodGroup must describe
// it: that of Kubernetes' own field, then of the labels, then of the annotation, then of Kueue's group.
func gangName(p *corev1.Pod) (field, name string, inObject bool) {
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil && *g.PodGroupName != "" {
		return "spec.schedulingGroup.podGroupName", *g.PodGroupName, true
	}
	for _, key := range [...]string{annotation.PodGroup, annotation.CommunityPodGroup, annotation.LightweightGang} {
		if name := p.Labels[key]; name != "" {
			return inLabels + "[" + key + "]", name, key != annotation.LightweightGang
		}
	}
	if name := p.Annotations[annotation.GangName]; name != "" {
		return inAnnotations + "[" + annotation.GangName + "]", name, false
	}
	if kueueGroupSize(p) > 0 {
		return inLabels + "[" + annotation.KueueGroup + "]", p.Labels[annotation.KueueGroup], false
	}
	return "", "", false
}

// gangID returns namespace/name of a gang. A name that is not valid is escaped and cut, so that the result is never the
// ID of another gang nor, with its commas, that of several.
func gangID(namespace, name string) (string, error) {
	_, _, err := annotation.ParseGangName(name)
	if err != nil {
		name = url.PathEscape(cut(name))
	}
	return namespace + "/" + name, err
}

// gangReader reads what an object says of its gang, and keeps the first fault.
type gangReader struct {
	object string // kind, namespace and name
	fault  string
}

func (r *gangReader) note(field string, err error) {
	if err != nil && r.fault == "" {
		r.fault = fmt.Sprintf("%s: %s: %v", r.object, field, err)
	}
}

func (r *gangReader) settings(annotations, labels map[string]string) gang.Settings {
	mode := readGang(r, annotations, annotation.ParseGangMode, annotation.GangMode)
	policy := readGang(r, annotations, annotation.ParseMatchPolicy, annotation.GangMatchPolicy,
		annotation.GangMatchPolicyAlias)
	interrupted := readGang(r, annotations, annotation.ParseGangInterrupted, annotation.GangInterrupted)
	return gang.Settings{
		Interrupted: gang.Interrupted(interrupted),
		Min:         r.minAvailable(annotations, labels),
		Total:       readGang(r, annotations, annotation.ParseMembers, annotation.GangTotalNumber),
		Mode:        gang.Mode(mode),
		Policy:      gang.MatchPolicy(policy),
		Wait:        readGang(r, annotations, annotation.ParseWaitingTime, annotation.GangWaitingTime),
		Group:       readGang(r, annotations, annotation.ParseGangGroups, annotation.GangGroups),
		DomainRules: r.gather(annotations),
	}
}

func (r *gangReader) gather(annotations map[string]string) (rules []domain.Rule) {
	spec := readGang(r, annotations, annotation.ParseNetworkTopologySpec, annotation.GangNetworkTopology)
	for _, g := range spec.GatherStrategy {
		rule := domain.Rule{Layer: g.Layer, Must: g.Strategy == annotation.MustGather}
		if g.PodCountMultiple > 1 {
			rule.Multiple = g.PodCountMultiple
		}
		rules = append(rules, rule)
	}
	return rules
}

// joinsGPUs reports whether a pod asks for GPUs in a joint allocation.
func joinsGPUs(p *corev1.Pod) bool {
	return strings.Contains(strings.ToLower(p.Annotations[annotation.DeviceJointAllocateKey]), `"gpu"`)
}

// minAvailable reads the annotation; the label where it is absent.
func (r *gangReader) minAvailable(annotations, labels map[string]string) int {
	if _, found := annotations[annotation.GangMinAvailable]; found {
		return readGang(r, annotations, annotation.ParseMembers, annotation.GangMinAvailable)
	}
	n, _, err := parse(labels, annotation.LightweightMinAvailable, annotation.ParseMembers)
	r.note(inLabels+"["+annotation.LightweightMinAvailable+"]", err)
	return n
}

// readGang reads the first of these annotations that is present.
func readGang[T any](r *gangReader, from map[string]string, with func(string) (T, []annotation.Warning, error),
	keys ...string,
) (value T) {
	if text, key, found := annotation.Lookup(from, keys...); found {
		var err error
		value, _, err = with(text)
		r.note(inAnnotations+"["+key+"]", err)
	}
	return value
}

// GangDefaults translates the arguments of the plugin Coscheduling, defaults filled in.
func GangDefaults(a *config.CoschedulingArgs) gang.Settings {
	return gang.Settings{
		Policy: gang.MatchPolicy(a.DefaultMatchPolicy), Wait: a.DefaultTimeout.Duration,
		Interrupted: gang.Interrupted(a.InterruptedGangs),
	}
}

// GangRules are the arguments of the plugin Coscheduling that hold for all gangs.
type GangRules struct {
	MaxOvertakes    int
	PreemptionDelay time.Duration
	// ReservedBeforeScaleUp is after how long the API no longer shows the nominations to kept nodes.
	ReservedBeforeScaleUp time.Duration
	// JoinsWholeGPUs: GPUs of gangs whose members all ask for whole ones are allocated jointly.
	JoinsWholeGPUs bool
	Holds          gang.HoldRules
}

// GangRulesOf translates the arguments of the plugin Coscheduling, defaults filled in.
func GangRulesOf(a *config.CoschedulingArgs) GangRules {
	r := GangRules{MaxOvertakes: int(*a.MaxOvertakes), PreemptionDelay: a.PreemptionDelay.Duration}
	r.ReservedBeforeScaleUp = a.ReservedBeforeScaleUp.Duration
	r.JoinsWholeGPUs = *a.EnableJointGPUs
	r.Holds = gang.HoldRules{
		Most: int(*a.MaxHolds), Order: gang.HoldOrder(a.HoldOrder), Backfill: *a.EnableBackfill,
		Below: *a.BackfillBelowPriority,
	}
	return r
}

// DefaultGangRules are those of a profile without arguments.
func DefaultGangRules() GangRules {
	var a config.CoschedulingArgs
	a.SetDefaults()
	return GangRulesOf(&a)
}

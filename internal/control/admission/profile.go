package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/colocation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Profile is a ClusterColocationProfile, read.
type Profile struct {
	*v1alpha1.ClusterColocationProfile
	namespaces, pods labels.Selector
	percent          int
	fault            error // for which the profile changes no pod
}

// Unusable is a profile that NewProfile refuses, and that was created while no webhook could say so: it changes no pod,
// and the creators of pods are warned.
func Unusable(p *v1alpha1.ClusterColocationProfile, fault error) *Profile {
	return &Profile{ClusterColocationProfile: p, fault: fault}
}

// NewProfile returns an error that names the field which cannot be used.
func NewProfile(p *v1alpha1.ClusterColocationProfile) (*Profile, error) {
	out := &Profile{
		ClusterColocationProfile: p, namespaces: labels.Everything(), pods: labels.Everything(), percent: 100,
	}
	for _, s := range []struct {
		field string
		said  *metav1.LabelSelector
		into  *labels.Selector
	}{{"namespaceSelector", p.Spec.NamespaceSelector, &out.namespaces}, {"selector", p.Spec.Selector, &out.pods}} {
		if s.said == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(s.said)
		if err != nil {
			return nil, fmt.Errorf("spec.%s: %w", s.field, err)
		}
		*s.into = selector
	}
	if said := p.Spec.Probability; said != nil {
		text, _ := strings.CutSuffix(said.String(), "%")
		percent, err := strconv.Atoi(text)
		if err != nil || percent < 0 || percent > 100 {
			return nil, fmt.Errorf("spec.probability: Invalid value %q: must be 0 to 100, or 0%% to 100%%", said)
		}
		out.percent = percent
	}
	if class := p.Spec.QoSClass; class != "" {
		if c, ok := qos.ParseClass(class); !ok || c == qos.None {
			return nil, fmt.Errorf("spec.qosClass: %s", annotation.Unsupported(class, convert.ClassNames()...))
		}
	}
	if _, err := out.patched(&corev1.Pod{}); err != nil {
		return nil, fmt.Errorf("spec.patch: %w", err)
	}
	return out, nil
}

// CheckProfile refuses a profile that cannot be used.
func CheckProfile(p *v1alpha1.ClusterColocationProfile) (a Answer) {
	if _, err := NewProfile(p); err != nil {
		field, text, _ := strings.Cut(err.Error(), ": ")
		a.refuse(why.InvalidField, field, "%s", text)
	}
	return a
}

// Colocate returns a pod that is created as the profiles, sorted by name, make it, and what its creator should know.
// draw returns a number from 0 to 99 for a profile. The pod is not changed. It may have been through this before: the
// API server asks again when other plugins have changed it.
//
// The CPU and memory of a pod that a profile makes a batch or a mid pod become batch or mid amounts, which the
// annotation extended-resource-spec repeats for the agent. What a LimitRange has injected is gone then, also from a
// batch or mid pod that no profile has changed.
func Colocate(pod *corev1.Pod, namespace labels.Set, profiles []*Profile, draw func(profile string) int) (
	*corev1.Pod, Answer,
) {
	var a Answer
	out, matched, skip := pod.DeepCopy(), false, false
	_, rewritten := pod.Annotations[annotation.ExtendedResourceSpecKey]
	for _, p := range profiles {
		if p.fault != nil {
			a.warn("ClusterColocationProfile "+p.Name, "has no effect: %v", p.fault)
			continue
		}
		if rewritten || !p.namespaces.Matches(namespace) || !p.pods.Matches(labels.Set(pod.Labels)) ||
			p.percent < 100 && draw(p.Name) >= p.percent {
			continue
		}
		p.label(out)
		changed, err := p.patched(out)
		if err != nil {
			a.refuse(why.InvalidField, "metadata", "ClusterColocationProfile %s: spec.patch: %v", p.Name, err)
			return pod, a
		}
		out, matched = changed, true
		skip = skip || p.Annotations[annotation.SkipUpdateResources] == "true"
	}
	a.renameAliases(out)
	switch band := convert.Band(out); {
	case band != qos.Batch && band != qos.Mid || skip:
	case matched || rewritten:
		a.rewrite(out, band)
	default:
		a.removeInjected(out, band)
	}
	return out, a
}

func (p *Profile) label(pod *corev1.Pod) {
	s := &p.Spec
	set := func(m *map[string]string, key, value string) {
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[key] = value
	}
	for key, value := range s.Labels {
		set(&pod.Labels, key, value)
	}
	for key, value := range s.Annotations {
		set(&pod.Annotations, key, value)
	}
	for _, from := range slices.Sorted(maps.Keys(s.LabelKeysMapping)) {
		if value, ok := pod.Labels[from]; ok {
			pod.Labels[s.LabelKeysMapping[from]] = value
		}
	}
	for _, from := range slices.Sorted(maps.Keys(s.AnnotationKeysMapping)) {
		if value, ok := pod.Annotations[from]; ok {
			pod.Annotations[s.AnnotationKeysMapping[from]] = value
		}
	}
	for key, suffix := range s.LabelSuffixes {
		if value, ok := pod.Labels[key]; ok && !strings.HasSuffix(value, suffix) {
			pod.Labels[key] = value + suffix
		}
	}
	if s.QoSClass != "" {
		set(&pod.Labels, annotation.QoSClass, s.QoSClass)
	}
	if s.KoordinatorPriority != nil {
		set(&pod.Labels, annotation.Priority, strconv.Itoa(int(*s.KoordinatorPriority)))
	}
	if s.PriorityClassName != "" && s.PriorityClassName != pod.Spec.PriorityClassName {
		// The API server computes both of the class again.
		pod.Spec.PriorityClassName, pod.Spec.Priority, pod.Spec.PreemptionPolicy = s.PriorityClassName, nil, nil
	}
	if s.SchedulerName != "" {
		pod.Spec.SchedulerName = s.SchedulerName
	}
}

func (p *Profile) patched(pod *corev1.Pod) (*corev1.Pod, error) {
	if len(p.Spec.Patch.Raw) == 0 {
		return pod, nil
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	text, err = strategicpatch.StrategicMergePatch(text, p.Spec.Patch.Raw, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	return out, json.Unmarshal(text, out)
}

// renames has, for the band of a pod, the names that its CPU and memory get.
func renames(band qos.Band) map[corev1.ResourceName]corev1.ResourceName {
	if band == qos.Mid {
		return map[corev1.ResourceName]corev1.ResourceName{
			corev1.ResourceCPU: convert.MidCPU, corev1.ResourceMemory: convert.MidMemory,
		}
	}
	return map[corev1.ResourceName]corev1.ResourceName{
		corev1.ResourceCPU: convert.BatchCPU, corev1.ResourceMemory: convert.BatchMemory,
	}
}

// renameAliases gives amounts in the spelling of Koordinator their canonical names, and refuses two that differ.
func (a *Answer) renameAliases(pod *corev1.Pod) {
	for field, c := range containers(pod) {
		a.renameList(field+".resources.requests", c.Resources.Requests)
		a.renameList(field+".resources.limits", c.Resources.Limits)
	}
}

func (a *Answer) renameList(field string, list corev1.ResourceList) {
	for _, name := range []corev1.ResourceName{
		convert.BatchCPU, convert.BatchMemory, convert.MidCPU, convert.MidMemory,
	} {
		alias := corev1.ResourceName(strings.Replace(string(name), "kubernetes.io/", "koordinator.sh/", 1))
		q, ok := list[alias]
		if !ok {
			continue
		}
		if same, both := list[name]; both && q.Cmp(same) != 0 {
			a.refuse(why.InvalidField, field+"["+string(alias)+"]",
				"conflicting values for %s and its alias %s: %s and %s", name, alias, same.String(), q.String())
		}
		delete(list, alias)
		list[name] = q
	}
}

// rewrite makes the CPU and memory of a pod's containers those of its band. The overhead of a RuntimeClass stays: the
// API server refuses a pod whose overhead is not that of its class.
func (a *Answer) rewrite(pod *corev1.Pod, band qos.Band) {
	if pod.Spec.Resources != nil && len(pod.Spec.Resources.Requests)+len(pod.Spec.Resources.Limits) > 0 {
		a.refuse(why.InvalidField, "spec.resources", "resources of the whole pod cannot be those of a %s pod: write "+
			"them at its containers", band)
		return
	}
	spec := annotation.ExtendedResourceSpec{Containers: map[string]annotation.ExtendedResources{}}
	for field, c := range containers(pod) {
		if changed := rewriteContainer(&c.Resources, renames(band)); changed {
			a.warn(field+".resources", "cpu and memory are those of a %s pod", band)
		}
		own := annotation.ExtendedResources{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
		for _, name := range renames(band) {
			if q, ok := c.Resources.Requests[name]; ok {
				own.Requests[name] = q
			}
			if q, ok := c.Resources.Limits[name]; ok {
				own.Limits[name] = q
			}
		}
		if len(own.Requests)+len(own.Limits) > 0 {
			spec.Containers[c.Name] = own
		}
	}
	if len(spec.Containers) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[annotation.ExtendedResourceSpecKey] = annotation.Encode(spec)
	}
}

// rewriteContainer renames amounts. A container that has one of its band already keeps it, and loses the other one.
func rewriteContainer(r *corev1.ResourceRequirements, names map[corev1.ResourceName]corev1.ResourceName) (
	changed bool,
) {
	for native, name := range names {
		limit, limited := r.Limits[native]
		request, requested := r.Requests[native]
		_, hasLimit := r.Limits[name]
		_, hasRequest := r.Requests[name]
		delete(r.Limits, native)
		delete(r.Requests, native)
		changed = changed || limited || requested
		if hasLimit || hasRequest || !limited && !requested {
			continue
		}
		if !requested {
			request = limit
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = inBand(native, request)
		if limited {
			r.Limits[name] = inBand(native, limit)
		}
	}
	return changed
}

// limitRanges is the annotation in which the admission plugin of LimitRanges notes what it has added to a pod, such as
// "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c". injected matches one note.
const limitRanges = "kubernetes.io/limit-ranger"

var injected = regexp.MustCompile(`([a-z, /-]+) (request|limit) for (?:init )?container ([a-z0-9-]+)`)

// removeInjected takes the CPU and memory that a LimitRange has added from containers that request amounts of the pod's
// band themselves: the pod would be charged for both. What the author wrote stays.
func (a *Answer) removeInjected(pod *corev1.Pod, band qos.Band) {
	names := renames(band)
	for _, note := range injected.FindAllStringSubmatch(pod.Annotations[limitRanges], -1) {
		for field, c := range containers(pod) {
			list := c.Resources.Requests
			if note[2] == "limit" {
				list = c.Resources.Limits
			}
			for name := range strings.SplitSeq(note[1], ",") {
				native := corev1.ResourceName(strings.TrimSpace(name))
				_, added := list[native]
				if _, own := c.Resources.Requests[names[native]]; added && own && c.Name == note[3] {
					delete(list, native)
					a.warn(field+".resources."+note[2]+"s["+string(native)+"]",
						"removed: a LimitRange added it, and the container requests %s", names[native])
				}
			}
		}
	}
}

// inBand returns an amount of CPU in milli, or of memory in bytes.
func inBand(native corev1.ResourceName, q resource.Quantity) resource.Quantity {
	if native == corev1.ResourceCPU {
		return *resource.NewQuantity(q.MilliValue(), resource.DecimalSI)
	}
	return *resource.NewQuantity(q.Value(), resource.BinarySI)
}

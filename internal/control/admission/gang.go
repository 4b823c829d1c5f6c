package admission

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// gang checks what a pod says of its gang. Whether the gangs of a group list each other is the scheduler's to find out:
// the first of two is always alone.
func (a *Answer) gang(pod *corev1.Pod) {
	id := ""
	if own, member := convert.GangPod(pod); member {
		id = own.Gang
	}
	a.gangSettings(pod.Annotations, id)
	parsed(a, pod.Annotations, annotation.GangNetworkTopologyIndex, annotation.ParseMemberIndex)
	if text, ok := pod.Labels[annotation.LightweightMinAvailable]; ok {
		if _, _, err := annotation.ParseMembers(text); err != nil {
			a.refuse(why.BadAnnotation, labelField(annotation.LightweightMinAvailable), "%v", err)
		}
	}
	a.oneGang(pod)
}

// gangSettings checks what annotations say of a gang; its name is empty where it is not known.
func (a *Answer) gangSettings(annotations map[string]string, id string) {
	parsed(a, annotations, annotation.GangMinAvailable, annotation.ParseMembers)
	parsed(a, annotations, annotation.GangTotalNumber, annotation.ParseMembers)
	parsed(a, annotations, annotation.GangMode, annotation.ParseGangMode)
	parsed(a, annotations, annotation.GangInterrupted, annotation.ParseGangInterrupted)
	parsed(a, annotations, annotation.GangMatchPolicy, annotation.ParseMatchPolicy)
	parsed(a, annotations, annotation.GangMatchPolicyAlias, annotation.ParseMatchPolicy)
	parsed(a, annotations, annotation.GangWaitingTime, annotation.ParseWaitingTime)
	parsed(a, annotations, annotation.GangNetworkTopology, annotation.ParseNetworkTopologySpec)
	group, grouped := parsed(a, annotations, annotation.GangGroups, annotation.ParseGangGroups)
	if grouped && id != "" && len(group) > 0 && !slices.Contains(group, id) {
		a.refuse(why.BadAnnotation, annotationField(annotation.GangGroups),
			"must list its own gang, %s, with the others: it lists %s", id, strings.Join(group, ", "))
	}
}

// Join returns a pod that is created as a member of a gang by a rule about the operator that creates it.
func Join(pod *corev1.Pod, name, rule string) *corev1.Pod {
	out := pod.DeepCopy()
	metav1.SetMetaDataLabel(&out.ObjectMeta, annotation.PodGroup, name)
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, annotation.GangRule, rule)
	return out
}

// PodGroup answers about a PodGroup that is created (old is nil) or changed: what it said before is not checked again.
func PodGroup(g, old *v1alpha1.PodGroup) (a Answer) {
	a.gangSettings(g.Annotations, g.Namespace+"/"+g.Name)
	for _, field := range slices.Sorted(maps.Keys(g.Unread)) {
		a.refuse(why.InvalidField, field, "%s", g.Unread[field])
	}
	if g.Spec.MinMember < 0 {
		a.refuse(why.InvalidField, "spec.minMember", "must be 0 or more: it is %d", g.Spec.MinMember)
	}
	if old != nil {
		was := PodGroup(old, nil)
		known := func(r Refusal) bool { return slices.Contains(was.Refusals, r) }
		a.Refusals = slices.DeleteFunc(a.Refusals, known)
	}
	return a
}

// oneGang refuses a pod that names several gangs, or a name that is none.
func (a *Answer) oneGang(pod *corev1.Pod) {
	first, field := "", ""
	if g := pod.Spec.SchedulingGroup; g != nil { // the API server checks the name
		first, field = ptr.Deref(g.PodGroupName, ""), "spec.schedulingGroup.podGroupName"
	}
	for _, at := range []struct {
		values map[string]string
		key    string
		field  func(string) string
	}{
		{pod.Labels, annotation.PodGroup, labelField},
		{pod.Labels, annotation.CommunityPodGroup, labelField},
		{pod.Labels, annotation.LightweightGang, labelField},
		{pod.Annotations, annotation.GangName, annotationField},
	} {
		name := at.values[at.key]
		if name == "" {
			continue
		}
		if _, _, err := annotation.ParseGangName(name); err != nil {
			a.refuse(why.BadAnnotation, at.field(at.key), "%v", err)
		}
		switch {
		case first == "":
			first, field = name, at.key
		case name != first:
			a.refuse(why.BadAnnotation, at.field(at.key),
				"names the gang %q, and %s names %q: a pod is in one gang", name, field, first)
		}
	}
}

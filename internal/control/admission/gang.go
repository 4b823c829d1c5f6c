package admission

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// gang judges what a pod says of its gang. Whether the gangs of a group list each other is the scheduler's to find out:
// the first of two is always alone.
func (a *Answer) gang(pod *corev1.Pod) {
	parsed(a, pod, annotation.GangMinAvailable, annotation.ParseMembers)
	parsed(a, pod, annotation.GangTotalNumber, annotation.ParseMembers)
	parsed(a, pod, annotation.GangMode, annotation.ParseGangMode)
	parsed(a, pod, annotation.GangMatchPolicy, annotation.ParseMatchPolicy)
	parsed(a, pod, annotation.GangMatchPolicyAlias, annotation.ParseMatchPolicy)
	parsed(a, pod, annotation.GangWaitingTime, annotation.ParseWaitingTime)
	group, grouped := parsed(a, pod, annotation.GangGroups, annotation.ParseGangGroups)
	if text, ok := pod.Labels[annotation.LightweightMinAvailable]; ok {
		if _, _, err := annotation.ParseMembers(text); err != nil {
			a.refuse(why.BadAnnotation, labelField(annotation.LightweightMinAvailable), "%v", err)
		}
	}
	a.oneGang(pod)
	is, member := convert.GangPod(pod)
	if grouped && member && len(group) > 0 && !slices.Contains(group, is.Gang) {
		a.refuse(why.BadAnnotation, annotationField(annotation.GangGroups),
			"must list the pod's own gang, %s, with the others: it lists %s", is.Gang, strings.Join(group, ", "))
	}
}

// oneGang refuses a pod that names several gangs, or a name that is none.
func (a *Answer) oneGang(pod *corev1.Pod) {
	first, by := "", ""
	if g := pod.Spec.SchedulingGroup; g != nil { // the API server judges the name
		first, by = ptr.Deref(g.PodGroupName, ""), "spec.schedulingGroup.podGroupName"
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
			first, by = name, at.key
		case name != first:
			a.refuse(why.BadAnnotation, at.field(at.key),
				"names the gang %q, and %s names %q: a pod is in one gang", name, by, first)
		}
	}
}

package convert

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/workload"
)

// volcanoGroup is an annotation of pods that names a PodGroup of Volcano.
const volcanoGroup = "scheduling.k8s.io/group-name"

// WorkloadTerms returns what objects and pods may say about gangs, for schedulers with these names.
func WorkloadTerms(schedulers []string) workload.Terms {
	return workload.Terms{
		Wish: annotation.GangWish, Off: annotation.GangLabel, Schedulers: schedulers,
		Gang: []string{
			annotation.PodGroup, annotation.CommunityPodGroup, annotation.LightweightGang, annotation.GangName,
			volcanoGroup,
		},
	}
}

// NamesGang reports whether a pod names a gang, in a way that is read here or by another scheduler, or wants none.
func NamesGang(p *corev1.Pod) bool {
	_, name, _ := gangName(p)
	return name != "" || p.Spec.SchedulingGroup != nil || p.Annotations[volcanoGroup] != "" ||
		p.Labels[annotation.GangLabel] == "off"
}

// WorkloadLink returns what a rule reads of an object of a kind, and of its controller.
func WorkloadLink(apiVersion, kind string, o metav1.Object) workload.Link {
	group, version := workload.SplitAPIVersion(apiVersion)
	l := workload.Link{
		Namespace: o.GetNamespace(), Group: group, Version: version, Kind: kind, Name: o.GetName(),
		UID: string(o.GetUID()), Deleted: o.GetDeletionTimestamp() != nil,
		Off: o.GetLabels()[annotation.GangLabel] == "off",
	}
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		group, version := workload.SplitAPIVersion(ref.APIVersion)
		l.Owner = &workload.Link{Group: group, Version: version, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID)}
	}
	return l
}

// WorkloadGroup returns the PodGroup of a gang in a namespace, whose name, with those that start together, is that of
// an object.
func WorkloadGroup(namespace string, g *workload.Gang, rule string, owner metav1.OwnerReference) *v1alpha1.PodGroup {
	p := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: g.Name, OwnerReferences: []metav1.OwnerReference{owner},
		Annotations: map[string]string{annotation.GangRule: rule},
	}}
	p.SetGroupVersionKind(v1alpha1.PodGroupResource(v1alpha1.GroupName).GroupVersion().WithKind("PodGroup"))
	p.Spec.MinMember = int32(g.Min) //nolint:gosec // the table bounds it
	if g.Refill {
		p.Annotations[annotation.GangMatchPolicy] = annotation.GangWaitingAndRunning
	}
	if len(g.Joined) > 0 {
		joined := make(annotation.Names, 0, len(g.Joined))
		for _, name := range g.Joined {
			joined = append(joined, namespace+"/"+name)
		}
		p.Annotations[annotation.GangGroups] = joined.String()
	}
	return p
}

// WorkloadRules is the field of a configuration that has rules.
const WorkloadRules = "workloads.rules"

// ReadWorkloadRules returns the built-in table with the rules of a document, in the field at a path. A nil document has
// none. The error names the line and the path of each problem.
func ReadWorkloadRules(d *strict.Document, path string) (workload.Table, error) {
	table := workload.Builtin()
	if !d.Has(path) {
		return table, nil
	}
	var rules []*workload.Rule
	if problems := d.Decode(path, &rules); len(problems) > 0 {
		return table, problems
	}
	var all strict.Problems
	for i, r := range rules {
		if r == nil {
			return table, d.Problem(path, "the rule [%d] is empty", i)
		}
		for _, p := range r.Problems() {
			all = append(all, d.Problem(fmt.Sprintf("%s[%d].%s", path, i, p.Field), "%s", p.Text))
		}
	}
	more, overlaps := table.With(rules)
	for _, p := range overlaps {
		all = append(all, d.Problem(path+p.Field, "%s", p.Text))
	}
	return more, all.Err()
}

package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Quota answers about an ElasticQuota that is created (old is nil), changed, or deleted (q is nil). Only what changes
// is checked. A scheduler may do what it likes with the reserved quotas, which it keeps.
func Quota(q, old *v1alpha1.ElasticQuota, rules *quota.Checker, author Author) Answer {
	var a Answer
	var c quota.Change
	var known []convert.Problem
	if old != nil {
		spec, problems := convert.Quota(old)
		c.Old, known = &spec, problems
	}
	if q != nil {
		spec, problems := convert.Quota(q)
		c.New = &spec
		for _, p := range problems {
			if !slices.Contains(known, p) {
				a.refuse(why.BadAnnotation, p.Field(), "%s (%s)", p.Text, quota.V1)
			}
		}
		if spec.IsParent && len(spec.Namespaces) > 0 {
			a.warn(annotationField(annotation.QuotaNamespaces),
				"%s is a parent: pods of these namespaces that name no other quota should be in a leaf", spec.Name)
		}
	}
	for _, v := range rules.Check(c) {
		if author != Scheduler || v.Rule != quota.V17 && v.Rule != quota.V9 {
			a.breaks(v)
		}
	}
	return a
}

// Unreadable refuses an object for an error that names its fields.
func Unreadable(err error) (a Answer) {
	a.refuse(why.InvalidField, "spec", "%v (%s)", err, quota.V1)
	return a
}

// TreeOf returns the tree id that an ElasticQuota is created with: its own, else that of its parent.
func TreeOf(q *v1alpha1.ElasticQuota, rules *quota.Checker) string {
	if tree, ok := q.Labels[annotation.QuotaTreeID]; ok {
		return tree
	}
	return rules.Tree(q.Labels[annotation.QuotaParent])
}

// PodQuota answers about the quota of a pod that is created (old is nil) or changed.
func PodQuota(pod, old *corev1.Pod, rules *quota.Checker) Answer {
	var a Answer
	text, labelled := pod.Labels[annotation.QuotaPreemptible]
	switch _, ok := annotation.ParseBool(text); {
	case old != nil && !same(pod.Labels, old.Labels, annotation.QuotaPreemptible):
		a.refuse(why.InvalidField, labelField(annotation.QuotaPreemptible), "field is immutable (%s)", quota.V12)
	case old == nil && labelled && !ok:
		a.refuse(why.InvalidField, labelField(annotation.QuotaPreemptible), "%s (%s)",
			annotation.Unsupported(text, "true", "false"), quota.V1)
	}
	if old == nil || !same(pod.Labels, old.Labels, annotation.QuotaName) {
		for _, v := range rules.CheckPods(convert.PodsOf(pod)) {
			a.refuse(why.InvalidField, labelField(annotation.QuotaName), "%s (%s)", v.Text, v.Rule)
		}
	}
	if name := rules.QuotaOf(convert.PodsOf(pod)); old == nil && convert.KueueAdmits(pod) && name != quota.Default &&
		name != quota.System {
		a.warn("metadata", "Kueue counts the pod in a ClusterQueue, and Tenon in ElasticQuota %q: it starts only "+
			"where both have room. Leave it out of one of them", name)
	}
	return a
}

// QuotaChange answers about a bound pod that would use more of its quota, or another one. labelled is set for a
// change of the label that names the quota.
func QuotaChange(x *quota.Excess, labelled bool) Answer {
	var a Answer
	field := "spec"
	if labelled {
		field = labelField(annotation.QuotaName)
	}
	switch {
	case x == nil:
	case x.LimitKind == quota.NoQuota:
		a.refuse(why.QuotaNotFound, field, "quota %q does not exist: a bound pod moves to an existing quota alone",
			x.Quota)
	case x.LimitKind == quota.Unlimited:
		a.refuse(why.InvalidField, field, "the bound pod uses quota %q: it can move to another quota, and not to none",
			x.Quota)
	default:
		var short []string
		for _, s := range x.Shortages {
			text := func(n int64) string { return convert.QuotaText(s.Dimension, n) }
			short = append(short, fmt.Sprintf("%s: %s %s, used by others %s, the pod would use %s", s.Dimension,
				x.LimitKind, text(s.Limit), text(s.Used), text(s.Request)))
		}
		a.refuse(why.QuotaExceeded, field, "quota %q has too little left (%s)", x.Quota, strings.Join(short, "; "))
	}
	return a
}

// breaks refuses what breaks a rule about quotas, at the field of the object.
func (a *Answer) breaks(v quota.Violation) {
	field, dimension, found := strings.Cut(v.Field, "[")
	field = map[string]string{
		"name": "metadata.name", "min": "spec.min", "max": "spec.max",
		"weight":     annotationField(annotation.QuotaSharedWeight),
		"total":      annotationField(annotation.QuotaTotal),
		"namespaces": annotationField(annotation.QuotaNamespaces),
		"parent":     labelField(annotation.QuotaParent),
		"isParent":   labelField(annotation.QuotaIsParent),
		"tree":       labelField(annotation.QuotaTreeID),
		"isRoot":     labelField(annotation.QuotaIsRoot),
	}[field]
	if found {
		field += "[" + dimension
	}
	a.refuse(why.InvalidField, field, "%s (%s)", v.Text, v.Rule)
}

package convert

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/annotation"
	config "github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Quota translates an ElasticQuota of either group. What cannot be read is left out and reported; rules between fields
// and objects are not applied.
func Quota(q *v1alpha1.ElasticQuota) (quota.Spec, []Problem) {
	r := quotaReader{quota: q}
	s := quota.Spec{
		Name: q.Name, Namespace: q.Namespace, Group: q.GroupVersionKind().Group,
		Parent: q.Labels[annotation.QuotaParent], Tree: q.Labels[annotation.QuotaTreeID],
		IsParent:          r.label(annotation.QuotaIsParent, false),
		IsRoot:            r.label(annotation.QuotaIsRoot, false),
		IgnoreDefaultTree: r.label(annotation.QuotaIgnoreDefaultTree, false),
		ForceUpdate:       r.label(annotation.QuotaAllowForceUpdate, false),
		KeepsMin:          !r.label(annotation.QuotaAllowLent, true),
		Min:               r.amounts("spec.min", q.Spec.Min), Max: r.amounts("spec.max", q.Spec.Max),
		Weight:     r.annotated(annotation.QuotaSharedWeight),
		Total:      r.annotated(annotation.QuotaTotal),
		Namespaces: readQuota(&r, annotation.QuotaNamespaces, annotation.ParseNamespaces),
		RunTime:    readQuota(&r, annotation.ExpectedRuntime, annotation.ParseExpectedRuntime),
	}
	for _, name := range readQuota(&r, annotation.QuotaStrictKeys, annotation.ParseResourceKeys) {
		s.Strict = append(s.Strict, amount.Canonical(name))
	}
	// These are not of the tree, and refused all the same when they cannot be read.
	readQuota(&r, annotation.QuotaUnschedulable, annotation.ParseAmounts)
	readQuota(&r, annotation.QuotaAdmission, annotation.ParseAmounts)
	readQuota(&r, annotation.QuotaResourceKeys, annotation.ParseResourceKeys)
	for _, field := range slices.Sorted(maps.Keys(q.Unread)) {
		r.report(BadValue, field, "", q.Unread[field])
	}
	return s, r.problems
}

type quotaReader struct {
	quota    *v1alpha1.ElasticQuota
	problems []Problem
}

func (r *quotaReader) report(kind ProblemKind, key, value, text string) {
	r.problems = append(r.problems, Problem{
		Object: "ElasticQuota/" + r.quota.Namespace + "/" + r.quota.Name, Key: key, Value: cut(value), Text: text,
		Kind: kind,
	})
}

func (r *quotaReader) label(key string, otherwise bool) bool {
	text, found := r.quota.Labels[key]
	value, ok := annotation.ParseBool(text)
	switch {
	case !found:
		return otherwise
	case !ok:
		r.report(BadLabel, key, text, annotation.Unsupported(text, "true", "false"))
		return otherwise
	}
	return value
}

// amounts translates the quantities of a field, and reports two spellings of one resource that differ.
func (r *quotaReader) amounts(key string, list corev1.ResourceList) amount.List {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		canonical, alias := corev1.ResourceName(amount.Canonical(string(name))), list[name]
		if q, both := list[canonical]; both && q.Cmp(alias) != 0 {
			r.report(BadValue, key, alias.String(), fmt.Sprintf("conflicting values for %s and its alias %s: %s and %s",
				canonical, name, q.String(), alias.String()))
		}
	}
	return Amounts(list)
}

// annotated translates the quantities of an annotation.
func (r *quotaReader) annotated(key string) amount.List {
	return r.amounts(key, corev1.ResourceList(readQuota(r, key, annotation.ParseAmounts)))
}

func readQuota[T any](r *quotaReader, key string, with func(string) (T, []annotation.Warning, error)) T {
	value, _, err := parse(r.quota.Annotations, key, with)
	if err != nil {
		r.report(BadValue, key, r.quota.Annotations[key], err.Error())
	}
	return value
}

// Amounts translates quantities, under canonical names: of two spellings of one resource the canonical one counts. A
// quantity that does not fit an int64 in its unit becomes the closest that does; fractions of a unit are rounded up.
func Amounts(list corev1.ResourceList) amount.List {
	if len(list) == 0 {
		return nil
	}
	amounts := make(amount.List, len(list))
	for name, q := range list {
		canonical := amount.Canonical(string(name))
		if _, both := list[corev1.ResourceName(canonical)]; !both || canonical == string(name) {
			amounts[canonical] = inUnits(name, q)
		}
	}
	return amounts
}

func inUnits(name corev1.ResourceName, q apiresource.Quantity) int64 {
	unit := apiresource.Scale(0)
	if name == corev1.ResourceCPU {
		unit = apiresource.Milli
	}
	switch {
	case q.Cmp(*apiresource.NewScaledQuantity(math.MaxInt64, unit)) >= 0:
		return math.MaxInt64
	case q.Cmp(*apiresource.NewScaledQuantity(math.MinInt64, unit)) <= 0:
		return math.MinInt64
	}
	return q.ScaledValue(unit)
}

// ResourceList is the inverse of Amounts, in canonical form.
func ResourceList(amounts amount.List) corev1.ResourceList {
	list := make(corev1.ResourceList, len(amounts))
	for name, n := range amounts {
		switch {
		case name == string(corev1.ResourceCPU):
			list[corev1.ResourceCPU] = *apiresource.NewMilliQuantity(n, apiresource.DecimalSI)
		case IsBytes(name):
			list[corev1.ResourceName(name)] = *apiresource.NewQuantity(n, apiresource.BinarySI)
		default:
			list[corev1.ResourceName(name)] = *apiresource.NewQuantity(n, apiresource.DecimalSI)
		}
	}
	return list
}

// PodAmounts is what a pod counts in its quota: the sum that the scheduler accounts on a node, with init containers,
// sidecars, overhead, pod-level resources and a resize in place. Until a resize is done the larger amount counts. Names
// are canonical.
func PodAmounts(pod *corev1.Pod) amount.List {
	if len(pod.Spec.InitContainers)+len(pod.Spec.Overhead) > 0 || pod.Spec.Resources != nil || IsResizing(pod) {
		return Named(boundRequests(pod)).Canonical() // spellings of one resource add up
	}
	// Of most pods only the containers count, and then the sum needs no more than its result.
	var amounts amount.List
	for i := range pod.Spec.Containers {
		requests := pod.Spec.Containers[i].Resources.Requests
		if amounts == nil && len(requests) > 0 {
			amounts = make(amount.List, len(requests))
		}
		for name, q := range requests {
			if _, counted := amounts[string(name)]; !counted {
				amounts[string(name)] = inUnits(name, withLater(q, name, pod.Spec.Containers[i+1:]))
			}
		}
	}
	return amounts.Canonical()
}

// Named translates quantities under the names that they have, as Amounts does under canonical ones.
func Named(list corev1.ResourceList) amount.List {
	amounts := make(amount.List, len(list))
	for name, q := range list {
		amounts[string(name)] = inUnits(name, q)
	}
	return amounts
}

// withLater returns q and what later containers request, not rounded.
func withLater(q apiresource.Quantity, name corev1.ResourceName, later []corev1.Container) apiresource.Quantity {
	sum := q.DeepCopy()
	for i := range later {
		sum.Add(later[i].Resources.Requests[name])
	}
	return sum
}

// IsResizing reports whether a kubelet has written that the pod or a container of it has other amounts than its spec
// asks for, or that it cannot have them. Where it does not, what the pod counts follows from its spec alone.
func IsResizing(pod *corev1.Pod) bool {
	return pod.Status.Resources != nil || resource.IsPodResizeInfeasible(pod) ||
		isResizing(pod.Spec.Containers, pod.Status.ContainerStatuses) ||
		isResizing(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
}

func isResizing(specs []corev1.Container, statuses []corev1.ContainerStatus) bool {
	for i := range statuses {
		status := &statuses[i]
		if status.Resources == nil && status.AllocatedResources == nil {
			continue
		}
		at := slices.IndexFunc(specs, func(c corev1.Container) bool { return c.Name == status.Name })
		if at < 0 || !isWithin(status.AllocatedResources, specs[at].Resources.Requests) {
			return true
		}
		if status.Resources == nil {
			continue
		}
		asked, has := specs[at].Resources.Requests, status.Resources.Requests
		if !isWithin(has, asked) || !isWithin(asked, has) {
			return true
		}
	}
	return false
}

// isWithin reports whether a list has nothing that another lacks or has less of.
func isWithin(list, bounds corev1.ResourceList) bool {
	for name, q := range list {
		if most, found := bounds[name]; !found || q.Cmp(most) > 0 {
			return false
		}
	}
	return true
}

// PodsOf is where quota.Mapping looks for the quota of a pod.
func PodsOf(pod *corev1.Pod) quota.PodsOf {
	p := quota.PodsOf{Namespace: pod.Namespace, Quota: pod.Labels[annotation.QuotaName]}
	if pod.Spec.NodeName != "" {
		p.Bound = pod.Annotations[annotation.QuotaBound]
	}
	return p
}

// IsPreemptible reports whether a pod may use more than min of its quota, and be evicted for that.
func IsPreemptible(pod *corev1.Pod) bool { return pod.Labels[annotation.QuotaPreemptible] != "false" }

// QuotaPod is what the account of quotas reads of a pod that asks for amounts.
func QuotaPod(p *corev1.Pod, amounts amount.List) quota.Pod {
	out := quota.Pod{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Quota: p.Labels[annotation.QuotaName],
		Bound:   p.Annotations[annotation.QuotaBound],
		Amounts: amounts, NonPreemptible: !IsPreemptible(p), Node: p.Spec.NodeName,
		Leaving: p.DeletionTimestamp != nil, Nominated: p.Status.NominatedNodeName != "",
		Room: IsReservePod(p), Claims: ClaimsOf(p),
	}
	if _, name, _ := gangName(p); name != "" {
		out.Gang, _ = gangID(p.Namespace, name) // one that cannot be read is a gang as well
	}
	if p.Spec.Priority != nil {
		out.Priority = *p.Spec.Priority
	}
	if p.Status.StartTime != nil {
		out.Start = p.Status.StartTime.Time
	}
	return out
}

// QuotaText writes an amount as a quantity.
func QuotaText(dimension string, n int64) string {
	q := ResourceList(amount.List{dimension: n})[corev1.ResourceName(dimension)]
	return q.String()
}

// UnitOf returns the unit of amounts of a resource.
func UnitOf(dimension string) why.Unit {
	switch {
	case dimension == string(why.CPU):
		return why.MilliCPU
	case IsBytes(dimension):
		return why.Bytes
	}
	return why.Count
}

// IsBytes reports whether amounts of a resource are bytes.
func IsBytes(dimension string) bool {
	return strings.HasSuffix(dimension, "memory") || strings.HasSuffix(dimension, "storage") ||
		strings.HasPrefix(dimension, corev1.ResourceHugePagesPrefix)
}

// QuotaConfig translates the arguments of the plugin ElasticQuota, defaults filled in. The manager divides with the
// same ones.
func QuotaConfig(a *config.ElasticQuotaArgs) (quota.Config, quota.Rules) {
	c := quota.Config{ScaleMin: *a.EnableMinQuotaScale}
	c.DefaultMax = Amounts(a.DefaultQuotaGroupMax)
	for _, m := range a.DeviceClassMappings {
		for _, class := range m.DeviceClassNames {
			if c.Classes == nil {
				c.Classes = map[string]string{}
			}
			c.Classes[class] = string(m.Name)
		}
	}
	r := quota.Rules{ByMax: !*a.EnableRuntimeQuota, LeafOnly: !*a.EnableCheckParentQuota}
	if a.MissingQuotaPolicy == config.MissingQuotaReject {
		r.Missing = quota.MissingReject
	}
	return c, r
}

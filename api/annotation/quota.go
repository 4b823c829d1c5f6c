package annotation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels of elastic quotas. A boolean is "true" or "false" and nothing else.
const (
	// QuotaName puts a pod into the quota of this name.
	QuotaName = "quota.scheduling.koordinator.sh/name"
	// QuotaPreemptible is a boolean of a pod, true where it is absent: a pod with false counts against min. Immutable.
	QuotaPreemptible = "quota.scheduling.koordinator.sh/preemptible"

	// QuotaIsParent is a boolean of an ElasticQuota, false where it is absent: it has children and no pods.
	QuotaIsParent = "quota.scheduling.koordinator.sh/is-parent"
	// QuotaParent names the quota above; koordinator-root-quota where it is absent.
	QuotaParent = "quota.scheduling.koordinator.sh/parent"
	// QuotaAllowLent is a boolean, true where it is absent: what is not used of min is lent.
	QuotaAllowLent = "quota.scheduling.koordinator.sh/allow-lent-resource"
	// QuotaTreeID is the tree of a quota, that of its parent where it is absent at creation. Immutable.
	QuotaTreeID = "quota.scheduling.koordinator.sh/tree-id"
	// QuotaIsRoot is a boolean: the top of an extra tree.
	QuotaIsRoot = "quota.scheduling.koordinator.sh/is-root"
	// QuotaIgnoreDefaultTree is a boolean of the top of an extra tree: its total remains in the default tree's too.
	QuotaIgnoreDefaultTree = "quota.scheduling.koordinator.sh/ignore-default-tree"
	// QuotaAllowForceUpdate is a boolean: the rules on sums of min are skipped.
	QuotaAllowForceUpdate = "quota.scheduling.koordinator.sh/allow-force-update"
	// QuotaProfile names the profile that keeps the quota.
	QuotaProfile = "quota.scheduling.koordinator.sh/profile"
)

// Annotations of an ElasticQuota that people or the profile controller write. QuotaNamespaces, QuotaResourceKeys and
// QuotaStrictKeys hold Names, the others Amounts.
const (
	// QuotaSharedWeight is the strength when borrowing; of an absent resource it is max.
	QuotaSharedWeight = "quota.scheduling.koordinator.sh/shared-weight"
	// QuotaNamespaces are those whose pods belong to the quota unless they name another.
	QuotaNamespaces = "quota.scheduling.koordinator.sh/namespaces"
	// QuotaTotal is what the top of an extra tree divides.
	QuotaTotal = "quota.scheduling.koordinator.sh/total-resource"
	// QuotaUnschedulable is what of QuotaTotal is on cordoned nodes.
	QuotaUnschedulable = "quota.scheduling.koordinator.sh/unschedulable-resource"
	// QuotaResourceKeys are the resources that a profile counts.
	QuotaResourceKeys = "quota.scheduling.koordinator.sh/resource-keys"
	// QuotaStrictKeys are the resources whose max may not go below what is used.
	QuotaStrictKeys = "quota.scheduling.koordinator.sh/max-strict-check-resource-keys"
	// QuotaAdmission is what was taken when pods were admitted, by the optional evaluation of quotas.
	QuotaAdmission = "quota.scheduling.koordinator.sh/admission"
)

// QuotaBound is an annotation of a Pod: the quota that it was bound in, written by the scheduler in the Binding, and in
// bound pods that lack it. The pod counts there while neither its label nor its namespace puts it into a quota.
const QuotaBound = "tenon.sh/quota"

// Annotations of an ElasticQuota that the leading manager writes: Amounts.
const (
	// QuotaRuntime is what the quota may use now.
	QuotaRuntime = "quota.scheduling.koordinator.sh/runtime"
	// QuotaRequest is what its pods ask for, QuotaChildRequest the same before the quota's own max.
	QuotaRequest      = "quota.scheduling.koordinator.sh/request"
	QuotaChildRequest = "quota.scheduling.koordinator.sh/child-request"
	// QuotaNonPreemptibleRequest is the part of QuotaRequest of pods that are not preemptible.
	QuotaNonPreemptibleRequest = "quota.scheduling.koordinator.sh/non-preemptible-request"
	// QuotaNonPreemptibleUsed is what such pods hold.
	QuotaNonPreemptibleUsed = "quota.scheduling.koordinator.sh/non-preemptible-used"
	// QuotaGuaranteed is what the quota keeps of min although others ask for it.
	QuotaGuaranteed = "quota.scheduling.koordinator.sh/guaranteed"
	// QuotaAllocated is what the quotas below it are guaranteed.
	QuotaAllocated = "quota.scheduling.koordinator.sh/allocated"
)

// ParseBool reads a boolean label; ok is false for everything but "true" and "false".
func ParseBool(text string) (value, ok bool) {
	return text == "true", text == "true" || text == "false"
}

// Amounts are quantities by resource, none below 0.
type Amounts corev1.ResourceList

// String returns the canonical JSON.
func (a Amounts) String() string {
	if a == nil {
		a = Amounts{}
	}
	return encode(a)
}

// ParseQuantities reads quantities by resource, whatever their sign.
func ParseQuantities(text string) (Amounts, []Warning, error) { return readAmounts[Amounts](text, nil) }

// ParseAmounts reads Amounts.
func ParseAmounts(text string) (Amounts, []Warning, error) {
	return readAmounts(text, func(r *reader, a *Amounts) {
		for _, name := range sorted(*a) {
			q := (*a)[name]
			r.atLeastZero(string(name), int64(q.Sign()))
		}
	})
}

// Names are names of namespaces, resources or gangs, each once.
type Names []string

// String returns the canonical JSON.
func (n Names) String() string {
	if n == nil {
		n = Names{}
	}
	return encode([]string(n))
}

// ParseNamespaces reads Names that are names of namespaces.
func ParseNamespaces(text string) (Names, []Warning, error) {
	return parseNames(text, validation.IsDNS1123Label)
}

// ParseResourceKeys reads Names that are names of resources.
func ParseResourceKeys(text string) (Names, []Warning, error) {
	return parseNames(text, validation.IsQualifiedName)
}

// parseNames reads a list without repeated names, each of which breaks none of the rules that broken returns.
func parseNames(text string, broken func(string) []string) (Names, []Warning, error) {
	return read(text, func(r *reader, n *Names) {
		unique, listed := Names{}, make(map[string]bool, len(*n))
		for i, name := range *n {
			field := fmt.Sprintf("[%d]", i)
			if rules := broken(name); len(rules) > 0 {
				r.refuse(field, *invalid(name, rules[0]))
				return
			}
			if listed[name] {
				r.warnings = append(r.warnings, Warning{Field: field, Text: fmt.Sprintf("%q is listed twice", name)})
				continue
			}
			listed[name] = true
			unique = append(unique, name)
		}
		*n = unique
	})
}

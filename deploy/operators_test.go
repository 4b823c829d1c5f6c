package deploy_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tenon-project/tenon/internal/core/workload"
)

// TestTheManagerMayReadEachKindWithARule: a kind that it cannot read is never grouped.
func TestTheManagerMayReadEachKindWithARule(t *testing.T) {
	t.Parallel()
	var rules []rbacv1.PolicyRule
	for _, r := range decoded[rbacv1.ClusterRole](t, "ClusterRole") {
		if r.Name == "tenon-manager" {
			rules = r.Rules
		}
	}
	table := workload.Builtin()
	var kinds []string // GROUP/KIND
	for _, r := range table.Rules() {
		if !table.Ignores(r.Group, r.Versions[0], r.Kind) && r.Group != "batch.volcano.sh" {
			kinds = append(append(kinds, r.Group+"/"+r.Kind), r.Covers...)
		}
	}
	for _, name := range kinds {
		group, kind, found := strings.Cut(name, "/")
		if !found {
			group, kind = "", name
		}
		for _, verb := range []string{"get", "list", "watch"} {
			if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.APIGroups, group) && slices.Contains(r.Verbs, verb) &&
					slices.Contains(r.Resources, strings.ToLower(kind)+"s")
			}) {
				t.Errorf("the manager may not %s %s", verb, name)
			}
		}
	}
}

package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/testkit"
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

// TestRulesOfUsers: the chart gives the manager a file with the rules, and the right to read the objects.
func TestRulesOfUsers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values.yaml")
	testkit.Check(t, os.WriteFile(file, []byte(`manager:
  workloads:
    rules:
    - {group: example.com, versions: [v1], kind: Sweep, default: Grouped, roles: [{at: spec, name: trial}]}
    - {group: ray.io, versions: [v1], kind: RayCluster, default: Never}
    - {group: "", versions: [v1], kind: Pod, default: Never}
`), 0o600))
	found := map[string]string{}
	for _, d := range render(t, home, "--values", file) {
		found[d.name()] += d.text
	}
	config := found["ConfigMap tenon-system/tenon-manager"]
	for _, want := range []string{"kind: ManagerConfiguration", "kind: Sweep", "kind: RayCluster"} {
		if !strings.Contains(config, want) {
			t.Errorf("the ConfigMap lacks %q:\n%s", want, config)
		}
	}
	if strings.Contains(config, "elastic-quota") {
		t.Error("the ConfigMap has arguments of quotas")
	}
	deployment := found["Deployment tenon-system/tenon-manager"]
	for _, want := range []string{"--config=/etc/tenon/manager.yaml", "mountPath: /etc/tenon", "tenon.sh/config-hash"} {
		if strings.Count(deployment, want) != 1 {
			t.Errorf("the Deployment has %d times %q", strings.Count(deployment, want), want)
		}
	}
	role := found["ClusterRole tenon-manager"]
	want := "- apiGroups: [example.com]\n  resources: [\"*\"]\n  verbs: [get, list, watch]"
	if !strings.Contains(role, want) {
		t.Errorf("the ClusterRole lacks\n%s", want)
	}
	if n := strings.Count(role, "- apiGroups: [ray.io]"); n != 1 {
		t.Errorf("the ClusterRole has %d rules for ray.io", n)
	}
}

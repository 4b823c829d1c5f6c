package archtest

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// insides lists the folders that still name a part of kube-scheduler beside its plugin framework. The list only
// shrinks: what they need of it belongs behind a small interface in internal/sched/upstream, so that a version of
// Kubernetes that changes the part changes that folder alone.
var insides = map[string][]string{
	"k8s.io/kubernetes/pkg/scheduler": {
		"internal/sched/core",
		"internal/sched/coscheduling",
		"internal/sched/diag",
		"internal/sched/diag/refusals",
		"internal/sched/journal",
		"internal/sched/reserving",
	},
	"k8s.io/kubernetes/pkg/scheduler/apis/config": {
		"internal/sched/core",
		"internal/sched/coscheduling",
		"internal/sched/diag/refusals",
		"internal/sched/diag/whatif",
		"internal/sched/elasticquota",
		"internal/sched/placement",
		"internal/sched/topologyspread",
	},
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme":        {"internal/sched/topologyspread"},
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature": {"internal/sched/topologyspread"},
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper": {
		"internal/sched/coscheduling",
		"internal/sched/topologyspread",
	},
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity":  {"internal/sched/coscheduling"},
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread": {"internal/sched/topologyspread"},
	"k8s.io/kubernetes/pkg/scheduler/metrics":                             {"internal/sched/coscheduling"},
	"k8s.io/kubernetes/pkg/scheduler/profile":                             {"internal/sched/core"},
	"k8s.io/kubernetes/pkg/scheduler/util": {
		"internal/sched/coscheduling", "internal/sched/diag/refusals",
	},
}

// TestTheInsidesOfKubeSchedulerAreNamedInOneFolder: apart from internal/sched/upstream, from what builds a scheduler
// (the application and the simulator), and from tests.
func TestTheInsidesOfKubeSchedulerAreNamedInOneFolder(t *testing.T) {
	const scheduler = "k8s.io/kubernetes/pkg/scheduler"
	framework := []string{ // runtime has the type of a plugin's factory
		scheduler + "/framework", scheduler + "/framework/plugins/names", scheduler + "/framework/runtime",
	}
	found := map[string][]string{}
	for importPath, p := range load(t) {
		folder, ours := folderOf(importPath)
		if !ours || slices.ContainsFunc([]string{"internal/sched/upstream", "internal/sched/app", "internal/sim", "test"},
			func(above string) bool { return below(folder, above) }) {
			continue
		}
		for _, imported := range p.Imports {
			if (imported == scheduler || strings.HasPrefix(imported, scheduler+"/")) &&
				!slices.Contains(framework, imported) {
				found[imported] = append(found[imported], folder)
			}
		}
	}
	for _, part := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[part])
		for _, folder := range found[part] {
			if !slices.Contains(insides[part], folder) {
				t.Errorf("%s imports %s: use it through internal/sched/upstream", folder, part)
			}
		}
	}
	for part, folders := range insides {
		for _, folder := range folders {
			if !slices.Contains(found[part], folder) {
				t.Errorf("%s does not import %s any more: take it off the list", folder, part)
			}
		}
	}
}

package archtest

import (
	"slices"
	"strings"
	"testing"
)

// TestTheInsidesOfKubeSchedulerAreNamedInOneFolder: what other packages use of kube-scheduler beside its plugin
// framework is behind a small interface in internal/sched/upstream, so that a version of Kubernetes that changes the
// part changes that folder alone. The application and the simulator, which build a scheduler, and tests may name it.
func TestTheInsidesOfKubeSchedulerAreNamedInOneFolder(t *testing.T) {
	const scheduler = "k8s.io/kubernetes/pkg/scheduler"
	framework := []string{ // runtime has the type of a plugin's factory
		scheduler + "/framework", scheduler + "/framework/plugins/names", scheduler + "/framework/runtime",
	}
	allowed := []string{"internal/sched/upstream", "internal/sched/app", "internal/sim", "test"}
	for importPath, p := range load(t) {
		folder, ours := folderOf(importPath)
		if !ours || slices.ContainsFunc(allowed, func(above string) bool { return below(folder, above) }) {
			continue
		}
		for _, imported := range p.Imports {
			if (imported == scheduler || strings.HasPrefix(imported, scheduler+"/")) &&
				!slices.Contains(framework, imported) {
				t.Errorf("%s imports %s: use it through internal/sched/upstream", folder, imported)
			}
		}
	}
}

package archtest

import "testing"

// adapted are the packages of kube-scheduler that internal/sched/upstream adapts, so that a version of Kubernetes which
// changes them changes that folder alone.
var adapted = []string{
	"k8s.io/kubernetes/pkg/scheduler/backend/cache",
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption",
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption",
}

// TestOneFolderAdaptsKubeScheduler: apart from tests, and from the simulator and the application, which build it.
func TestOneFolderAdaptsKubeScheduler(t *testing.T) {
	used := map[string]bool{}
	for importPath, p := range load(t) {
		folder, ours := folderOf(importPath)
		if !ours {
			continue
		}
		for _, imported := range p.Imports {
			for _, inside := range adapted {
				if imported != inside {
					continue
				}
				used[inside] = true
				if !below(folder, "internal/sched/upstream") && !below(folder, "internal/sched/app") &&
					!below(folder, "internal/sim") && !below(folder, "test") {
					t.Errorf("%s imports %s: use it through internal/sched/upstream", folder, inside)
				}
			}
		}
	}
	if len(used) != len(adapted) {
		t.Errorf("of %v only %v are used: the test overlooks their users", adapted, used)
	}
}

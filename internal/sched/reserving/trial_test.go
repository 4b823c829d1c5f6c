package reserving

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestATrialLeavesASnapshotAsItWas: a pod uses a Reservation on trial, and gives it back. The snapshot may be older
// than the Reservation; then the pod does not fit.
func TestATrialLeavesASnapshotAsItWas(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"the snapshot has the Reservation": false, "it is older": true} {
		p := reservedFor(t, 1)
		_, reserve := p.reservations.Find("u0")
		held := []*corev1.Pod{reserve}
		if old {
			held = nil
		}
		p.snapshot = cache.NewSnapshot(held, []*corev1.Node{object.Node("n0", nil)})
		node, err := p.snapshot.NodeInfos().Get("n0")
		testkit.Check(t, err)
		cs, trial := framework.NewCycleState(), placement.NewTrial(kube.NewStore())
		trial.Mark(cs)
		pod := object.Pod("p", object.UID("p"), object.Label("app", "web"), object.Requests("cpu", "1"))
		p.PreFilter(t.Context(), cs, pod, nil)
		read(cs).choose("n0", read(cs).byNode["n0"][0])
		before := node.GetRequested().GetMilliCPU()
		status := p.Reserve(t.Context(), cs, pod, "n0")
		if status.IsSuccess() == old || node.GetRequested().GetMilliCPU() != 0 {
			t.Errorf("%s: reserve says %v, and %d milli-CPU are reserved in the snapshot, want none", name, status,
				node.GetRequested().GetMilliCPU())
		}
		p.Unreserve(t.Context(), cs, pod, "n0")
		if after := node.GetRequested().GetMilliCPU(); after != before || trial.Rooms.Left("u0")["cpu"] != 4000 {
			t.Errorf("%s: %d milli-CPU are reserved in the snapshot afterwards, want %d, and %v are left", name, after,
				before, trial.Rooms.Left("u0"))
		}
		if used := p.reservations.Left("u0")["cpu"]; used != 4000 {
			t.Errorf("%s: the trial has changed the Reservations themselves: %d are left", name, used)
		}
	}
}

package reserving

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
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

// TestPodsThatMustUseAReservation are refused where none is: at once if no node has one that they may use. Pods that
// Reservations do not concern are skipped.
func TestPodsThatMustUseAReservation(t *testing.T) {
	t.Parallel()
	const required = `{"reservationSelector":{"zone":"a"}}`
	for name, c := range map[string]struct {
		app, affinity  string
		without        map[string]bool
		skip, resolved bool // PreFilter skips the pod, or refuses it
		passes         string
	}{
		"an owner":                      {app: "web", passes: "n0 n1"},
		"no owner":                      {app: "other", skip: true},
		"one that must, and none may":   {app: "web", affinity: required, resolved: true},
		"one that must":                 {app: "web", affinity: `{"name":"r0"}`, passes: "n0"},
		"an annotation of another form": {app: "web", affinity: "{", resolved: true},
		"an owner without its Reservation": {
			app: "web", without: map[string]bool{"u0": true}, skip: true,
		},
		"one that must, without its Reservation": {
			app: "web", affinity: `{"name":"r0"}`, without: map[string]bool{"u0": true}, resolved: true,
		},
	} {
		p, cs := reservedFor(t, 1), framework.NewCycleState()
		pod := object.Pod("p", object.UID("p"), object.Label("app", c.app), object.Requests("cpu", "1"))
		if c.affinity != "" {
			object.Annotation(annotation.ReservationAffinityKey, c.affinity)(pod)
		}
		if c.without != nil {
			cs.Write(excludedKey, excluded(c.without))
		}
		_, status := p.PreFilter(t.Context(), cs, pod, nil)
		if status.IsSkip() != c.skip || status.IsRejected() != c.resolved {
			t.Errorf("%s: PreFilter says %v", name, status)
		}
		if !status.IsSuccess() {
			continue
		}
		var passes []string
		for _, name := range []string{"n0", "n1"} {
			node := framework.NewNodeInfo()
			node.SetNode(object.Node(name, nil))
			if p.Filter(t.Context(), cs, pod, node).IsSuccess() {
				passes = append(passes, name)
			}
		}
		if got := strings.Join(passes, " "); got != c.passes {
			t.Errorf("%s: Filter passes %q, want %q", name, got, c.passes)
		}
	}
	if status := (&Plugin{}).Filter(t.Context(), framework.NewCycleState(), nil, nil); !status.IsSuccess() {
		t.Errorf("a pod that was skipped is refused: %v", status)
	}
}

// TestPodsThatMayUseAReservationAreNotSigned: pods that are equal but for it would share one ranking of the nodes.
func TestPodsThatMayUseAReservationAreNotSigned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reservations  int
		app, affinity string
		signed        bool
	}{
		"no Reservation":                {app: "web", signed: true},
		"an owner":                      {reservations: 1, app: "web"},
		"no owner":                      {reservations: 1, app: "other", signed: true},
		"one that must use one":         {app: "other", affinity: `{"name":"r0"}`},
		"an annotation of another form": {app: "other", affinity: "{"},
	} {
		p := reservedFor(t, c.reservations)
		pod := object.Pod("p", object.UID("p"), object.Label("app", c.app), object.Requests("cpu", "1"))
		if c.affinity != "" {
			object.Annotation(annotation.ReservationAffinityKey, c.affinity)(pod)
		}
		if _, status := p.SignPod(t.Context(), pod); status.IsSuccess() != c.signed {
			t.Errorf("%s: signing says %v, want success: %t", name, status, c.signed)
		}
	}
}

package reserving

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// refusing is a profile whose filters refuse each node.
type refusing struct {
	framework.Framework
	status *fwk.Status
}

func (r refusing) RunFilterPluginsWithNominatedPods(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo,
) *fwk.Status {
	return r.status
}

// TestAFilterInsideAReservationRefusesForItself: its refusal is one of the Reservation only if that is the plugin.
func TestAFilterInsideAReservationRefusesForItself(t *testing.T) {
	t.Parallel()
	for plugin, want := range map[string][]why.Finding{
		"NodeNUMAResource": {{Detail: "inside"}},
		Name: {
			{
				Reason: why.Reason{Code: why.SMTAlignment}, Plugin: Name, Phase: why.Filter, Object: "n0",
			},
			{Detail: "as it is"},
		},
	} {
		p, cs, node := reservedFor(t, 1), framework.NewCycleState(), framework.NewNodeInfo()
		node.SetNode(object.Node("n0", nil))
		pod := object.Pod("p", object.UID("p"), object.Label("app", "web"), object.Requests("cpu", "1"),
			object.Annotation(annotation.ReservationAffinityKey, `{"name":"r0"}`))
		p.PreFilter(t.Context(), cs, pod, nil)
		refused := &placement.Refusal{Reason: why.Reason{Code: why.SMTAlignment}}
		got := (&Rooms{Reservations: p.reservations}).Explain(t.Context(),
			refusing{status: refused.Status().WithPlugin(plugin)}, cs, pod, node, []why.Finding{{Detail: "as it is"}},
			func(fwk.CycleState, fwk.NodeInfo) []why.Finding { return []why.Finding{{Detail: "inside"}} })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("refused by %s (-want +got):\n%s", plugin, diff)
		}
	}
}

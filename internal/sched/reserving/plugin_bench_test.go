package reserving

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// reservedFor returns a plugin with so many Reservations on nodes, for pods with the label app: web.
func reservedFor(tb testing.TB, n int) *Plugin {
	tb.Helper()
	p := &Plugin{reservations: kube.NewReservations(nil, time.Now)}
	for i := range n {
		r, err := kube.ReadReservation(fmt.Appendf(nil, `{"metadata":{"name":"r%d","uid":"u%[1]d"},"spec":{"owners":[`+
			`{"labelSelector":{"matchLabels":{"app":"web"}}}],"template":{"spec":{"containers":[{"resources":`+
			`{"requests":{"cpu":"4"}}}]}}},"status":{"phase":"Available","nodeName":"n%[1]d"}}`, i))
		if err != nil {
			tb.Fatal(err)
		}
		p.reservations.Put(r)
	}
	return p
}

// BenchmarkPreFilter is what a pod costs that may use none of the Reservations, and one that may use all.
func BenchmarkPreFilter(b *testing.B) {
	for _, n := range []int{0, 200} {
		p := reservedFor(b, n)
		for name, app := range map[string]string{"other": "other", "owner": "web"} {
			pod := object.Pod("p", object.UID("p"), object.Label("app", app), object.Requests("cpu", "1"))
			b.Run(fmt.Sprintf("reservations=%d/pod=%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p.PreFilter(b.Context(), framework.NewCycleState(), pod, nil)
				}
			})
		}
	}
}

// BenchmarkPod is all that the plugin does for a pod that may use no Reservation, from its first event to its Binding,
// on a node that is tried, and all that the account does for its events.
func BenchmarkPod(b *testing.B) {
	for _, n := range []int{0, 200} {
		b.Run(fmt.Sprintf("reservations=%d", n), func(b *testing.B) {
			p := reservedFor(b, n)
			rooms := &Rooms{Reservations: p.reservations}
			node := framework.NewNodeInfo()
			node.SetNode(object.Node("n", nil))
			pod := object.Pod("p", object.UID("p"), object.Label("app", "other"), object.Requests("cpu", "1"))
			bound := pod.DeepCopy()
			bound.Spec.NodeName = "n"
			b.ReportAllocs()
			for b.Loop() {
				cs := framework.NewCycleState()
				p.reservations.PutPod(pod)
				p.SignPod(b.Context(), pod)
				p.PreFilter(b.Context(), cs, pod, nil)
				rooms.Filter(b.Context(), passing{}, cs, pod, node)
				p.PreScore(b.Context(), cs, pod, nil)
				p.Reserve(b.Context(), cs, pod, "n")
				p.PreBindPreFlight(b.Context(), cs, pod, "n")
				p.reservations.Record(pod)
				p.reservations.PutPod(bound)
				p.reservations.RemovePod(bound)
			}
		})
	}
}

// passing is a profile whose filters pass.
type passing struct{ framework.Framework }

func (passing) RunFilterPluginsWithNominatedPods(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo,
) *fwk.Status {
	return nil
}

// TestAPodWithoutAReservationCostsTheSameWhateverIsReserved: the Reservations are looked up by what the pod is.
func TestAPodWithoutAReservationCostsTheSameWhateverIsReserved(t *testing.T) {
	cost := func(n int) float64 {
		p, pod := reservedFor(t, n), object.Pod("p", object.UID("p"), object.Label("app", "other"))
		return testing.AllocsPerRun(100, func() { _, _, _ = p.matching(nil, pod) })
	}
	if few, many := cost(1), cost(2000); few != many || many > 20 {
		t.Errorf("%v allocations with one Reservation, %v with 2000, want the same and at most 20", few, many)
	}
}

package reserving

import (
	"fmt"
	"testing"
	"time"

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

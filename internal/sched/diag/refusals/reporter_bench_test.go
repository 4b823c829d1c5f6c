package refusals

import (
	"fmt"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
)

// BenchmarkRefusal is what the report of one failed attempt costs besides upstream's: a quarter of the nodes is
// tainted, the others are full.
func BenchmarkRefusal(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			statuses := map[string]*fwk.Status{}
			var names []string
			for i := range nodes {
				name := fmt.Sprintf("node-%05d", i)
				names, statuses[name] = append(names, name), full()
				if i%4 == 0 {
					statuses[name] = tainted()
				}
			}
			bench := newBench(b, names...)
			pod := testPod("p")
			if err := bench.client.Tracker().Add(pod); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				bench.refuseAfterPreemption(b, pod, statuses,
					"preemption: No preemption victims found for incoming pod.")
			}
		})
	}
}

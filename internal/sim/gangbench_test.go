package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkOvertakenGang is the attempt after which nodes are kept for a gang of 64: half of the nodes have a younger
// pod that leaves it too little, the others are full, and each has two small pods of no gang.
func BenchmarkOvertakenGang(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			var text strings.Builder
			for i := range nodes {
				fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Node\nmetadata: {name: n%05d}\n"+
					"status: {allocatable: {cpu: \"32\", memory: 64Gi, pods: \"110\"}}\n", i)
			}
			b.ReportAllocs()
			var took time.Duration
			for b.Loop() {
				b.StopTimer()
				l := newLive(b, text.String())
				on := func(name, node string, milli, age int64) {
					l.pod(name, 0, func(p *corev1.Pod) {
						p.Spec.NodeName = node
						p.CreationTimestamp = metav1.Unix(1_800_000_000+age, 0)
						amount := *resource.NewMilliQuantity(milli, resource.DecimalSI)
						p.Spec.Containers[0].Resources.Requests["cpu"] = amount
					})
				}
				for i := range nodes {
					node := fmt.Sprintf("n%05d", i)
					if i%2 == 0 {
						on(fmt.Sprint("younger", i), node, 20_000, 1_000_000)
					} else {
						on(fmt.Sprint("older", i), node, 31_000, -1_000_000)
					}
					on(fmt.Sprint("s", i), node, 100, 1_000_000)
					on(fmt.Sprint("t", i), node, 100, 1_000_000)
				}
				l.gang("g", 64, 20)
				l.runUntilIdle()
				for i := range 10 {
					on(fmt.Sprint("o", i), "", 10, 2_000_000)
				}
				b.StartTimer()
				from := cpuTime(b)
				l.runUntilIdle()
				took += cpuTime(b) - from
				if at := l.why("g").Code.String(); at != "GangReserved" {
					b.Fatalf("the gang waits with %s", at)
				}
			}
			b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkWaitingGangs is one event that may help, while equal gangs of 64 wait and there is room for half of one.
func BenchmarkWaitingGangs(b *testing.B) {
	for _, gangs := range []int{1, 100} {
		b.Run(fmt.Sprintf("gangs=%d", gangs), func(b *testing.B) {
			const nodes = 1000
			var text strings.Builder
			for i := range nodes {
				fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Node\nmetadata: {name: n%05d}\n"+
					"status: {allocatable: {cpu: \"32\", memory: 64Gi, pods: \"110\"}}\n", i)
			}
			l := newLive(b, text.String())
			fill := func(i int, name string) {
				l.pod(name, 20, func(p *corev1.Pod) {
					p.Spec.NodeName = fmt.Sprintf("n%05d", i)
					p.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
				})
			}
			for i := range nodes - 32 {
				fill(i, fmt.Sprint("f", i))
			}
			fill(0, "small0")
			for i := range gangs {
				l.gang(fmt.Sprintf("g%03dx", i), 64, 20)
			}
			l.runUntilIdle()
			if at := l.why("g000x").Code.String(); at != "GangSiblingFailed" {
				b.Fatalf("the first gang waits with %s", at)
			}
			n, took := 0, time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				l.end("small")
				n++
				fill(0, fmt.Sprint("small", n))
				b.StartTimer()
				from := cpuTime(b)
				l.runUntilIdle()
				took += cpuTime(b) - from
			}
			b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

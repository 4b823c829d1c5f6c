package deviceshare

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/ledger"
)

// fleet is nodes with 8 GPUs, in use at random.
func fleet(b *testing.B, nodes int) []*ledger.View {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	var views []*ledger.View
	for range nodes {
		var entries []ledger.Entry
		for i := range 8 {
			if percent := []int64{0, 0, 100, 100, 100, 32, 47, 81}[random.IntN(8)]; percent > 0 {
				entries = append(entries, holds(fmt.Sprintf("p%d", i), percent, fmt.Sprintf("GPU-%d", i)))
			}
		}
		views = append(views, viewOf(b, true, made(8, "A"), entries...))
	}
	return views
}

// A pod is scored on all nodes: as the first one by a new generation, which was computed while the last one answered,
// or with values that are known; on one thread.
func BenchmarkScore(b *testing.B) {
	for _, nodes := range []int{100, 1213, 5000} {
		views := fleet(b, nodes)
		infos := make([]int64, nodes)
		random := rand.New(rand.NewPCG(2, 2))
		for i := range infos {
			infos[i] = 1000 * random.Int64N(90)
		}
		for _, due := range []bool{true, false} {
			b.Run(fmt.Sprintf("nodes=%d/generation=%t", nodes, due), func(b *testing.B) {
				l := newLearner()
				arrive := func(pods int) {
					for i := range pods {
						l.learn(fragment.Spec{
							MilliCPU: int64(1000 * (1 + i%12)), GPUs: 1, Milli: []int64{1000, 320, 470, 810}[i%4],
						}, none)
					}
				}
				arrive(2100)
				pod := fragment.Spec{MilliCPU: 6000, GPUs: 1, Milli: 470}
				b.ReportAllocs()
				for b.Loop() {
					if due {
						b.StopTimer()
						arrive(250) // the next generation is in force
						b.StartTimer()
					}
					values := l.current()
					for i, v := range views {
						g := l.gpusOf(fmt.Sprint(i), v)
						gain(values, fragment.State{MilliCPU: infos[i], Free: g.free, Model: g.model}, pod, ^uint64(0))
					}
				}
			})
		}
	}
}

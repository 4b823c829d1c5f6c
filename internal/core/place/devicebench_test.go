package place_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
)

// BenchmarkDevicesOf5000Nodes is Filter of a pod with GPUs on 5,000 nodes of eight that are used at random: an answer
// is the time for all nodes. Goals: 5 ms where nothing is remembered, 0.3 ms where everything is.
func BenchmarkDevicesOf5000Nodes(b *testing.B) {
	const nodes = 5000
	rng := rand.New(rand.NewPCG(1, 2))
	m := worked(b)
	inventory := cards(b, m, []int{0, 0, 1, 1, 2, 2, 3, 3})
	views := make([]*ledger.View, nodes)
	for i := range views {
		var entries []ledger.Entry
		for gpu := range 8 {
			if used := rng.IntN(3); used > 0 {
				entries = append(entries, holding(gpu, int64(50*used)))
			}
		}
		views[i] = ledger.New(ledger.Facts{Machine: m, Devices: inventory, OwnDevices: true}, entries...).View()
	}
	for _, asked := range []map[string]int64{
		{device.GPUPercent: 50}, {device.NVIDIAGPU: 1}, {device.NVIDIAGPU: 4}, {device.NVIDIAGPU: 8},
	} {
		r := sharing(2000, gpus(b, asked))
		b.Run(fmt.Sprint(asked), func(b *testing.B) {
			for b.Loop() {
				for _, v := range views {
					place.Fits(v, r)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/nodes, "ns/node")
		})
	}
	r := sharing(2000, gpus(b, map[string]int64{device.NVIDIAGPU: 1}))
	r.Seal()
	memories := make([]verdicts, nodes)
	b.Run("remembered", func(b *testing.B) {
		for b.Loop() {
			for i, v := range views {
				place.Recall(&memories[i], v, r)
			}
		}
	})
}

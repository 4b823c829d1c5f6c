package device_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/device"
)

// BenchmarkSelect chooses k of 16 linked GPUs of which a random half is free: PCIe pairs with four lanes, and one
// switch that joins all. p50 and p99 are of single choices.
func BenchmarkSelect(b *testing.B) {
	switched := pairs(16)
	for i, w := range switched.w {
		if w > 0 {
			switched.w[i] = 1800 + w%100
		}
	}
	for name, m := range map[string]*matrix{"pairs": pairs(16), "switch": switched, "alike": alike()} {
		c := m.class()
		for k := 1; k <= 16; k++ {
			b.Run(fmt.Sprintf("links=%s/n=16/k=%d", name, k), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, uint64(k)))
				frees := make([]uint64, 1024)
				for i := range frees {
					for frees[i] = rng.Uint64() & 0xffff; bits.OnesCount64(frees[i]) < k; {
						frees[i] |= 1 << rng.IntN(16)
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					c.Select(frees[i%len(frees)], k, device.Demand{1, 1, 1})
				}
				b.StopTimer()
				taken := make([]time.Duration, 0, len(frees))
				for _, free := range frees {
					start := time.Now()
					c.Select(free, k, device.Demand{1, 1, 1})
					taken = append(taken, time.Since(start))
				}
				slices.Sort(taken)
				b.ReportMetric(float64(taken[len(taken)/2].Nanoseconds()), "p50-ns")
				b.ReportMetric(float64(taken[len(taken)*99/100].Nanoseconds()), "p99-ns")
			})
		}
	}
}

// alike is 16 GPUs on one switch and one NUMA node: every set is as good as any other.
func alike() *matrix {
	m := pairs(16)
	for i, w := range m.w {
		if m.nodes[i/16] = 1; w > 0 {
			m.w[i] = 1850
		}
	}
	return m
}

// BenchmarkClass builds the tables of a server.
func BenchmarkClass(b *testing.B) {
	for _, n := range []int{8, 16} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			m := pairs(n)
			for b.Loop() {
				m.class()
			}
		})
	}
}

func TestSelectAllocatesNothing(t *testing.T) {
	for name, m := range map[string]*matrix{"pairs": pairs(16), "alike": alike()} {
		c := m.class()
		if n := testing.AllocsPerRun(10, func() { c.Select(0xf7bd, 6, device.Demand{}) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

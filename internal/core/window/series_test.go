package window_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/window"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type point struct {
	at    time.Time
	value int64
}

// exact is the statistics of the points of a window by definition.
func exact(points []point, span time.Duration, now time.Time) window.Stats {
	var in []int64
	sum := int64(0)
	for _, p := range points {
		if now.Sub(p.at) < span {
			in = append(in, p.value)
			sum += p.value
		}
	}
	if len(in) == 0 {
		return window.Stats{}
	}
	slices.Sort(in)
	rank := func(percent int) int64 { return in[(len(in)*percent+99)/100-1] }
	return window.Stats{
		Samples: len(in), Avg: sum / int64(len(in)),
		P50: rank(50), P90: rank(90), P95: rank(95), P99: rank(99),
	}
}

// TestASeriesAgreesWithExactPercentiles: numbers of samples and averages are exact, percentiles are in the bucket of
// the exact one, whatever comes when.
func TestASeriesAgreesWithExactPercentiles(t *testing.T) {
	t.Parallel()
	shared := window.NewBuckets()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]int64{1, 1 << 20}).Draw(t, "unit")
		s := shared.Series(unit)
		var points []point
		now := start
		step := rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, 2 * time.Minute}).Draw(t, "step")
		for range rapid.IntRange(1, 400).Draw(t, "samples") {
			now = now.Add(time.Duration(rapid.Int64Range(1, int64(step)).Draw(t, "pause")))
			value := rapid.Int64Range(0, rapid.SampledFrom([]int64{3, 1000, 1 << 38}).Draw(t, "most")).Draw(t, "value")
			s.Add(now, value)
			points = append(points, point{now, value})
		}
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "later")))
		for _, span := range window.Windows() {
			want := exact(points, span, now)
			got, ok := s.Over(span, now)
			if ok != (want.Samples > 0) || got.Samples != want.Samples || got.Avg != want.Avg {
				t.Fatalf("over %v: got %+v, want %+v", span, got, want)
			}
			for _, pair := range [][2]int64{
				{got.P50, want.P50}, {got.P90, want.P90}, {got.P95, want.P95}, {got.P99, want.P99},
			} {
				if got, want := pair[0], pair[1]; got < want || got-want > max(unit, want/20+unit) {
					t.Fatalf("over %v: percentile %d, the exact one is %d (unit %d)", span, got, want, unit)
				}
			}
		}
	})
}

func TestASeriesForgetsWhatItCannotDate(t *testing.T) {
	t.Parallel()
	s := window.NewBuckets().Series(1)
	over := func(span, later time.Duration) window.Stats {
		t.Helper()
		got, _ := s.Over(span, start.Add(later))
		return got
	}
	if got, ok := s.Over(5*time.Minute, start); ok {
		t.Errorf("without samples: %+v", got)
	}
	s.Add(start, 10)
	s.Add(start, 1000)
	if got := over(5*time.Minute, 0); got.Samples != 1 || got.Avg != 10 {
		t.Errorf("two samples of one time: %+v, want the first one", got)
	}
	s.Add(start.Add(time.Hour), 20)
	if got := over(30*time.Minute, time.Hour); got.Samples != 1 || got.P50 != 20 {
		t.Errorf("after a jump of the clock by an hour: %+v, want the sample after it", got)
	}
	s.Add(start.Add(time.Minute), 30)
	if got := over(30*time.Minute, time.Minute); got.Samples != 1 || got.P99 != 30 {
		t.Errorf("after the clock went back: %+v, want the sample after it", got)
	}
	s.Add(start.Add(2*time.Minute), -5)
	if got := over(5*time.Minute, 2*time.Minute); got.P50 != 0 || got.Avg != 15 {
		t.Errorf("with a negative sample: %+v, want it to count as 0", got)
	}
	s.Add(start.Add(3*time.Minute), math.MaxInt64)
	if got := over(5*time.Minute, 3*time.Minute); got.P99 < 1<<35 {
		t.Errorf("with a sample above all buckets: %+v", got)
	}
	if got, ok := s.Over(time.Minute, start.Add(3*time.Minute)); ok {
		t.Errorf("over a window that is not kept: %+v", got)
	}
}

// TestASeriesIsBounded: samples that come too fast push the oldest out, and a full ring does not allocate.
func TestASeriesIsBounded(t *testing.T) { // not parallel: it counts allocations
	s, now := window.NewBuckets().Series(1), start
	add := func() {
		now = now.Add(100 * time.Millisecond)
		s.Add(now, int64(now.Second()))
	}
	for range 5000 {
		add()
	}
	got, _ := s.Over(30*time.Minute, now)
	if five, _ := s.Over(5*time.Minute, now); got.Samples != 1801 || five.Samples != 1801 {
		t.Errorf("%d and %d samples, want 1801: the newest", got.Samples, five.Samples)
	}
	if n := testing.AllocsPerRun(1000, add); n != 0 {
		t.Errorf("%v allocations for a sample, want 0", n)
	}
}

func TestAMeanAgreesWithTheExactOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const span = 5 * time.Minute
		m, now := window.Mean{}, start
		var points []point
		for range rapid.IntRange(1, 200).Draw(t, "samples") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "pause")))
			value := rapid.Int64Range(0, 1<<40).Draw(t, "value")
			m.Add(span, now, value)
			points = append(points, point{now, value})
		}
		// The first slot counts as a whole or not at all.
		first := now.Truncate(span / 30).Add(span/30 - span)
		sum, n := int64(0), int64(0)
		for _, p := range points {
			if !p.at.Before(first) {
				sum, n = sum+p.value, n+1
			}
		}
		if got, ok := m.At(now); !ok || got != sum/n {
			t.Fatalf("got %d (%v), want %d of %d samples", got, ok, sum/n, n)
		}
		if got, ok := m.At(now.Add(span + span/30)); ok {
			t.Fatalf("after the span: %d, want none", got)
		}
	})
}

func TestAMeanForgetsWhatItCannotDate(t *testing.T) {
	t.Parallel()
	var m window.Mean
	if got, ok := m.At(start); ok {
		t.Errorf("without samples: %d", got)
	}
	m.Add(time.Minute, start, 10)
	m.Add(time.Minute, start.Add(-time.Hour), 20)
	if got, _ := m.At(start.Add(-time.Hour)); got != 20 {
		t.Errorf("after the clock went back: %d, want 20", got)
	}
	m.Add(time.Hour, start, 30)
	if got, _ := m.At(start); got != 30 {
		t.Errorf("over another time: %d, want 30", got)
	}
	m.Add(time.Nanosecond, start, 40)
	if got, _ := m.At(start); got != 40 {
		t.Errorf("over a nanosecond: %d, want 40", got)
	}
}

func TestRatesOfACounter(t *testing.T) {
	t.Parallel()
	type step struct {
		at          time.Duration
		nanoseconds int64
		want        int64 // -1: none
	}
	tests := map[string][]step{
		"the first value makes none":           {{0, 5e9, -1}},
		"half a CPU":                           {{0, 5e9, -1}, {time.Second, 5.5e9, 500}},
		"nothing is used":                      {{0, 7, -1}, {time.Second, 7, 0}},
		"a counter that goes back begins anew": {{0, 5, -1}, {time.Second, 0, -1}, {2 * time.Second, 1e9, 1000}},
		"a clock that goes back begins anew":   {{time.Hour, 0, -1}, {0, 1e9, -1}, {time.Second, 2e9, 1000}},
		"two values of one time":               {{0, 0, -1}, {0, 1e9, -1}, {time.Second, 2e9, 1000}},
		"a counter at the end of its range":    {{0, math.MaxInt64 - 1, -1}, {time.Second, math.MaxInt64, 0}},
		"a jump that no machine can do":        {{0, 0, -1}, {time.Nanosecond, math.MaxInt64, -1}},
		"a negative counter is not one": {
			{0, math.MinInt64, -1}, {time.Second, 0, -1}, {2 * time.Second, 1e9, 1000},
		},
		"a pause of a day averages over the day":    {{0, 0, -1}, {24 * time.Hour, int64(12 * time.Hour), 500}},
		"more than a million CPUs in a nanosecond":  {{0, 0, -1}, {time.Nanosecond, 2e9, -1}},
		"a value that differs by less than a milli": {{0, 0, -1}, {time.Second, 999999, 0}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c window.Counter
			for i, s := range steps {
				got, ok := c.Advance(start.Add(s.at), s.nanoseconds)
				if ok != (s.want >= 0) || ok && got != s.want {
					t.Errorf("step %d: got %d (%v), want %d", i, got, ok, s.want)
				}
			}
		})
	}
}

func BenchmarkAddSample(b *testing.B) {
	s, now := window.NewBuckets().Series(1), start
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		s.Add(now, int64(now.Second())*37)
	}
}

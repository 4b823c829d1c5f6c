package fragment_test

import (
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/fragment"
)

func cpus(n int64) fragment.Spec { return fragment.Spec{MilliCPU: 1000 * n} }

func weightOf(h *fragment.Histogram, s fragment.Spec) int64 {
	for _, w := range h.Specs() {
		if w.Spec == s {
			return w.Weight
		}
	}
	return 0
}

func TestHistogramExpectsAGPUBeforePodsArrive(t *testing.T) {
	t.Parallel()
	got := fragment.NewHistogram().Specs()
	if len(got) != 1 || got[0].Spec != (fragment.Spec{MilliCPU: 8000, GPUs: 1, Milli: 1000}) {
		t.Errorf("specs %+v, want one GPU with 8 CPUs", got)
	}
}

func TestAnArrivalCountsHalfAfter5000(t *testing.T) {
	t.Parallel()
	h := fragment.NewHistogram()
	h.Count(cpus(1))
	for range 4999 {
		h.Count(cpus(2))
	}
	h.Count(cpus(3))
	old, fresh := weightOf(h, cpus(1)), weightOf(h, cpus(3))
	if off := 2*old - fresh; off < -fresh/1000 || off > fresh/1000 {
		t.Errorf("weight %d after 5,000 arrivals, %d of a new one; want half", old, fresh)
	}
	for range 32_000 {
		h.Count(cpus(2))
	}
	if got := h.Specs(); len(got) != 1 {
		t.Errorf("specs %+v, want those dropped that arrived once, long ago", got)
	}
}

func TestHistogramHasTheHeaviestSpecs(t *testing.T) {
	t.Parallel()
	h := fragment.NewHistogram()
	for i := range int64(300) {
		h.Count(cpus(i))
	}
	for i := range int64(100) {
		h.Count(cpus(i))
	}
	got := h.Specs()
	if len(got) != 128 {
		t.Fatalf("%d specs, want 128", len(got))
	}
	for i := range int64(100) {
		if weightOf(h, cpus(i)) == 0 {
			t.Errorf("spec %d, which arrived twice, is missing", i)
		}
	}
	if !slices.IsSortedFunc(got, func(a, b fragment.Weighted) int { return int(b.Weight - a.Weight) }) {
		t.Errorf("weights are not descending: %+v", got)
	}
	if _, err := fragment.New(got, fragment.Supply{}, fragment.Standard(), newMemo()); err != nil {
		t.Error(err)
	}
}

func TestGenerationsAreDueOftenAtFirst(t *testing.T) {
	t.Parallel()
	dueOf := func(s fragment.Spec, arrivals int) (due []int) {
		h := fragment.NewHistogram()
		for i := range arrivals {
			if h.Count(s) {
				due = append(due, i+1)
			}
		}
		return due
	}
	want := []int{25, 50, 75, 100, 125, 150, 175, 200, 225, 250, 275, 300, 325, 350, 375, 400, 500, 750, 1000}
	if due := dueOf(fragment.Spec{GPUs: 1, Milli: 1000}, 1200); !slices.Equal(due, want) {
		t.Errorf("due after %v arrivals, want %v", due, want)
	}
	if due := dueOf(cpus(1), 1300); !slices.Equal(due, []int{625, 1250}) {
		t.Errorf("due after %v arrivals without GPUs, want 625 and 1250", due)
	}
}

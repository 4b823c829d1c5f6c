package claim

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// listing is a slice of a pool with devices, of which those with a + use counters. A device is NAME@ID.
func listing(generation int64, devices ...string) Slice[string] {
	s := Slice[string]{Generation: generation}
	for _, d := range devices {
		s.Devices = append(s.Devices, Listed[string]{d[:1], d[len(d)-1] == '+', d})
	}
	return s
}

// TestDevicesOfAPool: slice s lists x, which uses counters, and a claim has it.
func TestDevicesOfAPool(t *testing.T) {
	t.Parallel()
	has := func(name string) bool { return name == "x" }
	none := func(string) bool { return false }
	type pool = *Pool[string]
	for name, c := range map[string]struct {
		then        func(p pool)
		found, lost []string
	}{
		"listed":      {func(pool) {}, []string{"x1+"}, nil},
		"replaced":    {func(p pool) { p.Put("s", listing(1, "x2+"), has) }, []string{"x2+"}, nil},
		"not listed":  {func(p pool) { p.Put("s", listing(1, "y+"), has) }, nil, []string{"x1+"}},
		"removed":     {func(p pool) { p.Remove("s", has) }, nil, []string{"x1+"}},
		"of no claim": {func(p pool) { p.Remove("s", none) }, nil, nil},
		"without counters": {
			func(p pool) { p.Put("s", listing(1, "x2"), has); p.Remove("s", has) }, nil, nil,
		},
		"listed without counters": {func(p pool) { p.Put("s", listing(1, "x2"), has) }, []string{"x2"}, nil},
		"in an older generation alone": {
			func(p pool) { p.Put("r", listing(2, "y+"), has) }, []string{"x1+"}, []string{"x1+"},
		},
		"in both generations": {
			func(p pool) { p.Put("r", listing(2, "x2+"), has) }, []string{"x2+"}, nil,
		},
		"in a newer generation that came first": {
			func(p pool) { p.Put("a", listing(2, "x2+"), has) }, []string{"x2+"}, nil,
		},
		"twice": {func(p pool) { p.Put("t", listing(1, "x2+"), has) }, []string{"x1+", "x2+"}, nil},
		"lost, and another slice comes": {
			func(p pool) { p.Remove("s", has); p.Put("r", listing(3, "y+"), has) }, nil, []string{"x1+"},
		},
		"lost, and listed again": {
			func(p pool) { p.Remove("s", has); p.Put("r", listing(3, "x2+"), has) }, []string{"x2+"}, nil,
		},
		"lost, and still of a claim": {func(p pool) { p.Remove("s", has); p.Release(has) }, nil, []string{"x1+"}},
		"lost, and of no claim":      {func(p pool) { p.Remove("s", has); p.Release(none) }, nil, nil},
	} {
		p := &Pool[string]{}
		if !p.IsEmpty() {
			t.Fatal("an empty pool is not empty")
		}
		p.Put("s", listing(1, "x1+"), has)
		c.then(p)
		if diff := cmp.Diff(c.found, p.Find("x")); diff != "" {
			t.Errorf("%s: found (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.lost, p.Lost()); diff != "" {
			t.Errorf("%s: lost (-want +got):\n%s", name, diff)
		}
		if p.IsEmpty() != (len(p.slices)+len(c.lost) == 0) {
			t.Errorf("%s: empty is %v", name, p.IsEmpty())
		}
	}
}

// TestWhatAClaimHasIsListedOrLost: whatever slices come and go, each device that a claim has, and that was ever listed
// with counters, is listed by the newest generation or lost, and never both.
func TestWhatAClaimHasIsListedOrLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, seen := &Pool[string]{}, map[string]bool{}
		held := map[string]bool{"x": true, "y": true}
		has := func(name string) bool { return held[name] }
		exist := map[string]Slice[string]{}
		for range rapid.IntRange(1, 20).Draw(t, "events") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "slice")
			see := func() {
				for _, s := range exist {
					for _, d := range s.Devices {
						seen[d.Name] = seen[d.Name] || held[d.Name]
					}
				}
			}
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				see()
				delete(exist, name)
				see()
				p.Remove(name, has)
			case 1: // the claim of y is deallocated, or allocated
				if held["y"] = !held["y"]; !held["y"] {
					delete(seen, "y")
				}
				p.Release(has)
			default:
				see()
				devices := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x+", "y+", "z+"}), 0, 3,
					rapid.ID[string]).Draw(t, "devices")
				exist[name] = listing(rapid.Int64Range(1, 3).Draw(t, "generation"), devices...)
				p.Put(name, exist[name], has)
				see()
			}
			newest, listed := int64(0), map[string]bool{}
			for _, s := range exist {
				newest = max(newest, s.Generation)
			}
			for _, s := range exist {
				for _, d := range s.Devices {
					listed[d.Name] = listed[d.Name] || s.Generation == newest
				}
			}
			var want []string
			for _, name := range slices.Sorted(maps.Keys(seen)) {
				if seen[name] && !listed[name] {
					want = append(want, name+"+")
				}
			}
			if diff := cmp.Diff(want, p.Lost()); diff != "" {
				t.Fatalf("lost (-want +got):\n%s\nslices %s", diff, fmt.Sprint(exist))
			}
		}
	})
}

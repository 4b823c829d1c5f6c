package cpuset_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// model is a set as a map: what a Set must agree with.
type model map[int]bool

func (m model) sorted() []int { return slices.Sorted(maps.Keys(m)) }

func (m model) set() cpuset.Set { return cpuset.Of(m.sorted()...) }

func drawModel(t *rapid.T, label string) model {
	m := model{}
	for _, c := range rapid.SliceOfN(rapid.IntRange(0, cpuset.MaxCPUs-1), 0, 40).Draw(t, label) {
		m[c] = true
	}
	return m
}

func (m model) filter(keep func(int) bool) []int {
	return slices.DeleteFunc(m.sorted(), func(c int) bool { return !keep(c) })
}

func TestSetAgreesWithAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawModel(t, "a"), drawModel(t, "b")
		s, o := a.set(), b.set()
		both := maps.Clone(a)
		maps.Copy(both, b)
		equal := func(what string, got cpuset.Set, want []int) {
			if !slices.Equal(got.Slice(), want) {
				t.Fatalf("%s of %s and %s = %s, want %v", what, s, o, got, want)
			}
		}
		equal("union", s.Union(o), both.sorted())
		included := s
		included.Include(&o)
		equal("inclusion", included, both.sorted())
		equal("intersection", s.Intersect(o), a.filter(func(c int) bool { return b[c] }))
		equal("difference", s.Minus(o), a.filter(func(c int) bool { return !b[c] }))
		common := len(a.filter(func(c int) bool { return b[c] }))
		if s.CountIn(&o) != common || s.Overlaps(&o) != (common > 0) || s.SubsetOf(&o) != (common == len(a)) {
			t.Fatalf("%s in %s: count %d overlaps %v subset %v, %d are common", s, o, s.CountIn(&o), s.Overlaps(&o),
				s.SubsetOf(&o), common)
		}
		if s.Len() != len(a) || s.IsEmpty() != (len(a) == 0) || (s == o) != maps.Equal(a, b) {
			t.Fatalf("%s: %d CPUs, empty %v, equal %v", s, s.Len(), s.IsEmpty(), s == o)
		}
		if !slices.Equal(slices.Collect(s.All()), a.sorted()) {
			t.Fatalf("%s yields %v", s, slices.Collect(s.All()))
		}
	})
}

// TestSetFollowsAMapThroughChanges adds and removes at random and looks at the set after each step.
func TestSetFollowsAMapThroughChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s cpuset.Set
		m := model{}
		cpu := rapid.IntRange(0, cpuset.MaxCPUs-1)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				c := cpu.Draw(t, "cpu")
				s.Add(c)
				m[c] = true
			},
			"remove": func(t *rapid.T) {
				c := cpu.Draw(t, "cpu")
				s.Remove(c)
				delete(m, c)
			},
			"": func(t *rapid.T) {
				if !slices.Equal(s.Slice(), m.sorted()) {
					t.Fatalf("set %s, map %v", s, m.sorted())
				}
				from := rapid.IntRange(-2, cpuset.MaxCPUs+2).Draw(t, "from")
				want := -1
				if rest := m.filter(func(c int) bool { return c >= from }); len(rest) > 0 {
					want = rest[0]
				}
				if got := s.Next(from); got != want {
					t.Fatalf("Next(%d) of %s = %d, want %d", from, s, got, want)
				}
				if c := cpu.Draw(t, "asked"); s.Has(c) != m[c] {
					t.Fatalf("Has(%d) of %s = %v", c, s, s.Has(c))
				}
			},
		})
	})
}

func TestSetAtItsEdges(t *testing.T) {
	t.Parallel()
	var empty cpuset.Set
	full := cpuset.Span(0, cpuset.MaxCPUs-1)
	tests := map[string]struct{ got, want any }{
		"the zero value is empty":                     {empty.IsEmpty(), true},
		"an empty set has no first CPU":               {empty.First(), -1},
		"an empty set is a subset of an empty set":    {empty.SubsetOf(&empty), true},
		"an empty set overlaps nothing":               {empty.Overlaps(&full), false},
		"an empty set has an empty, not a nil, slice": {empty.Slice() != nil, true},
		"a full set counts all":                       {full.Len(), cpuset.MaxCPUs},
		"a full set ends":                             {full.Next(cpuset.MaxCPUs), -1},
		"a full set has its last CPU":                 {full.Has(cpuset.MaxCPUs - 1), true},
		"nothing beyond the last CPU is in a set":     {full.Has(cpuset.MaxCPUs), false},
		"nothing below zero is in a set":              {full.Has(-1), false},
		"Next starts at zero from below":              {full.Next(-5), 0},
		"a span that ends before it starts is empty":  {cpuset.Span(4, 3), empty},
		"a span over two words":                       {cpuset.Span(63, 64), cpuset.Of(64, 63)},
		"Of takes any order and repetition":           {cpuset.Of(3, 1, 3), cpuset.Of(1, 3)},
	}
	for name, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %v, want %v", name, tt.got, tt.want)
		}
	}
	stopped := 0
	for range full.All() {
		if stopped++; stopped == 3 {
			break
		}
	}
	if stopped != 3 {
		t.Errorf("a loop that breaks after 3 CPUs saw %d", stopped)
	}
}

func TestCPUsOutsideTheRangePanic(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"Of a negative CPU": func() { cpuset.Of(-1) },
		"Of CPU 1024":       func() { cpuset.Of(cpuset.MaxCPUs) },
		"Span to CPU 1024":  func() { cpuset.Span(0, cpuset.MaxCPUs) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("did not panic")
				}
			}()
			f()
		})
	}
}

func TestSetsAllocateNothing(t *testing.T) {
	a, b := cpuset.Span(0, 300), cpuset.Span(200, 900)
	sum := 0
	if got := testing.AllocsPerRun(10, func() {
		c := a.Union(b).Minus(a.Intersect(b))
		for cpu := range c.All() {
			sum += cpu
		}
		sum += c.Len() + c.CountIn(&a) + c.First()
	}); got != 0 {
		t.Errorf("set operations made %v allocations, want 0", got)
	}
}

func BenchmarkSet(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var x, y cpuset.Set
	for range 256 {
		x.Add(rng.IntN(cpuset.MaxCPUs))
		y.Add(rng.IntN(cpuset.MaxCPUs))
	}
	sink := 0
	for name, f := range map[string]func(){
		"Union":   func() { u := x.Union(y); sink += u.First() },
		"Len":     func() { sink += x.Len() },
		"CountIn": func() { sink += x.CountIn(&y) },
		"All": func() {
			for c := range x.All() {
				sink += c
			}
		},
		"String": func() { sink += len(x.String()) },
	} {
		b.Run("op="+name+"/cpus=256", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
	text := x.String()
	b.Run("op=Parse/cpus=256", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := cpuset.Parse(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}

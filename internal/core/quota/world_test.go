package quota_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

var dimensions = []string{cpu, "memory", "nvidia.com/gpu"}

// dice draws numbers from bytes as long as there are any, then from a random source; 0 without one. The tape has what
// came from the random source, as bytes that draw the same.
type dice struct {
	bytes  []byte
	random *rand.Rand
	tape   []byte
}

// below draws a number from 0 to n-1.
func (d *dice) below(n int64) int64 {
	width := 1
	if n > 256 {
		width = 8
	}
	switch {
	case len(d.bytes) >= width:
		word := append(make([]byte, 8-width), d.bytes[:width]...)
		d.bytes = d.bytes[width:]
		return int64(binary.BigEndian.Uint64(word) % uint64(n))
	case d.random != nil:
		drawn := d.random.Int64N(n)
		d.tape = append(d.tape, binary.BigEndian.AppendUint64(nil, uint64(drawn))[8-width:]...)
		return drawn
	}
	return 0
}

func (d *dice) oneIn(n int64) bool { return d.below(n) == n-1 }

// amount draws an amount up to most, often one of its ends.
func (d *dice) amount(most int64) int64 {
	switch d.below(10) {
	case 8:
		return 0
	case 9:
		return most
	}
	if most == math.MaxInt64 {
		return d.below(most)
	}
	return d.below(most + 1)
}

// shape is what worlds are drawn with.
type shape struct {
	config quota.Config
	quotas int
	levels int
	scale  int64 // the largest max
	broken bool  // with what the webhook refuses
}

func (d *dice) shape() shape {
	s := shape{quotas: int(d.below(40)) + 1, levels: int(d.below(5)) + 1, broken: d.oneIn(6)}
	s.config = quota.Config{ScaleMin: !d.oneIn(8)}
	scales := []int64{4, 12, 100, 60_000, 1 << 42, math.MaxInt64}
	s.scale = scales[d.below(int64(len(scales)))]
	return s
}

func name(i int) string { return fmt.Sprintf("q%02d", i) }

// spec draws the i-th of the quotas.
func (d *dice) spec(s shape, w *world, i int) quota.Spec {
	spec := quota.Spec{
		Name: name(i), KeepsMin: d.oneIn(4), FixedMin: d.oneIn(8), Min: amount.List{}, Max: amount.List{},
		Weight: amount.List{}, Total: amount.List{},
	}
	if i > 0 && s.levels > 1 && !d.oneIn(4) {
		spec.Parent = name(int(d.below(int64(i))))
		for depth, at := 2, spec.Parent; at != "" && spec.Parent != ""; depth, at = depth+1, w.specs[at].Parent {
			if depth > s.levels {
				spec.Parent = ""
			}
		}
	}
	if s.broken && d.oneIn(3) {
		spec.Parent = name(int(d.below(int64(s.quotas) + 1)))
	}
	spec.IsRoot = d.oneIn(24)
	spec.IgnoreDefaultTree = d.oneIn(2)
	for _, dimension := range dimensions {
		most := d.amount(s.scale)
		if !d.oneIn(12) {
			spec.Max[dimension] = most
		}
		if !d.oneIn(6) {
			spec.Min[dimension] = d.amount(most)
		}
		switch d.below(8) {
		case 0:
			spec.Weight[dimension] = 0
		case 1, 2, 3:
			spec.Weight[dimension] = d.amount(s.scale)
		}
		if spec.IsRoot {
			spec.Total[dimension] = d.amount(s.scale)
		}
		if s.broken && d.oneIn(6) {
			for _, field := range []amount.List{spec.Min, spec.Max, spec.Weight, spec.Total} {
				if d.oneIn(3) {
					field[dimension] = d.amount(s.scale) - s.scale/2
				}
			}
		}
	}
	return spec
}

// pods draws what pods of a quota ask for and use.
func (d *dice) pods(s shape) [4]amount.List {
	amounts := [4]amount.List{{}, {}, {}, {}}
	for _, dimension := range dimensions {
		request := d.amount(s.scale)
		used := d.amount(request)
		if s.broken && d.oneIn(8) {
			used = d.amount(s.scale)
		}
		amounts[quota.Request][dimension] = request
		amounts[quota.Used][dimension] = used
		amounts[quota.NonPreemptibleRequest][dimension] = d.amount(request)
		amounts[quota.NonPreemptibleUsed][dimension] = d.amount(used)
	}
	return amounts
}

func (w *world) put(name string, pods [4]amount.List, sign int64) {
	for m, amounts := range pods {
		for dimension, n := range amounts {
			w.count(name, quota.Measure(m), dimension, sign*n)
		}
	}
}

func (d *dice) nodes(s shape) amount.List {
	nodes := amount.List{}
	for _, dimension := range dimensions {
		most := new(big.Int).Mul(big.NewInt(s.scale), big.NewInt(d.below(int64(s.quotas)+1)))
		nodes[dimension] = d.amount(clamp(most))
	}
	return nodes
}

// world draws the final state of a cluster.
func (d *dice) world(s shape) *world {
	w := newWorld(s.config)
	w.nodes = d.nodes(s)
	for i := range s.quotas {
		spec := d.spec(s, w, i)
		w.specs[spec.Name] = spec
	}
	for i := range s.quotas {
		isParent := slices.ContainsFunc(w.list(), func(o quota.Spec) bool { return o.Parent == name(i) })
		if !isParent || s.broken {
			w.put(name(i), d.pods(s), 1)
		}
	}
	if d.oneIn(3) {
		w.put(quota.System, d.pods(s), 1)
		w.put(quota.Default, d.pods(s), 1)
	}
	return w
}

// list returns the specs by name.
func (w *world) list() []quota.Spec {
	var list []quota.Spec
	for _, s := range w.specs {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b quota.Spec) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// forest builds a forest from the state alone.
func (w *world) forest() *quota.Forest {
	f := quota.New(w.config)
	f.SetNodes(w.nodes)
	for _, s := range w.list() {
		f.Set(s)
	}
	w.addSums(f)
	return f
}

func (w *world) addSums(f *quota.Forest) {
	w.eachSum(func(name string, m quota.Measure, amounts amount.List) {
		f.Add(f.Find(name), m, f.Vector(amounts))
	})
}

// eachSum yields what the pods of each quota add up to, in parts that are an int64.
func (w *world) eachSum(yield func(name string, m quota.Measure, amounts amount.List)) {
	for _, name := range slices.Sorted(maps.Keys(w.sums)) {
		for m, amounts := range w.sums[name] {
			for _, dimension := range slices.Sorted(maps.Keys(amounts)) {
				for left := new(big.Int).Set(amounts[dimension]); left.Sign() > 0; {
					part := clamp(left)
					yield(name, quota.Measure(m), amount.List{dimension: part})
					left.Sub(left, big.NewInt(part))
				}
			}
		}
	}
}

// differences compares a forest with the definition.
func (w *world) differences(f *quota.Forest) []string {
	var out []string
	shares := f.Shares()
	for _, dimension := range dimensions {
		d := f.Dimension(dimension)
		for name, want := range w.solve(dimension) {
			q := f.Find(name)
			report := func(what string, got, want any) {
				if fmt.Sprint(got) != fmt.Sprint(want) {
					out = append(out, fmt.Sprintf("%s of %s in %s: got %v, want %v", what, name, dimension, got, want))
				}
			}
			report("request", q.Amount(quota.Request, d), want.request)
			report("used", q.Amount(quota.Used, d), want.used)
			runtime, named := f.Runtime(q, d)
			if name == quota.Root {
				report("total", runtime, want.runtime)
				continue
			}
			report("limited", named, want.named)
			if !want.named {
				continue
			}
			report("runtime", runtime, want.runtime)
			exact, _ := shares.Exact(q, d)
			report("exact share", exact.RatString(), want.exact.RatString())
			report("slack", shares.Slack(q, d), max(want.roundings-1, 0))
		}
	}
	slices.Sort(out)
	return out
}

// eachWorld runs a property on worlds of a shape that fit changes.
func eachWorld(t *testing.T, fit func(*shape), property func(t *rapid.T, w *world, d *dice)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		d := &dice{random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
		s := d.shape()
		s.quotas = rapid.IntRange(1, 40).Draw(t, "quotas")
		fit(&s)
		property(t, d.world(s), d)
	})
}

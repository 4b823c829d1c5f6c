package device_test

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// matrix is a class in the dullest form.
type matrix struct {
	n     int
	w     []int32
	nodes []topo.NodeSet
}

func (m *matrix) class() *device.Class { return device.NewClass(m.w, m.nodes, make([]int, m.n)) }

// drawMatrix draws links with few different values, so that sets often tie.
func drawMatrix(rng *rand.Rand, n int) *matrix {
	m := &matrix{n: n, w: make([]int32, n*n), nodes: make([]topo.NodeSet, n)}
	values := []int32{10, 20, 30, 50, 150, 420, 460}[:1+rng.IntN(7)]
	for i := range n {
		m.nodes[i] = []topo.NodeSet{0, 1, 1, 2, 4}[rng.IntN(5)]
		for j := range i {
			m.w[i*n+j] = values[rng.IntN(len(values))]
			m.w[j*n+i] = m.w[i*n+j]
		}
	}
	return m
}

func members(mask uint64) []int {
	var list []int
	for ; mask != 0; mask &= mask - 1 {
		list = append(list, bits.TrailingZeros64(mask))
	}
	return list
}

func (m *matrix) sums(mask uint64) (links, levels int64) {
	list := members(mask)
	for a, i := range list {
		for _, j := range list[:a] {
			links += int64(m.w[i*m.n+j] / 100 * 100)
			levels += int64(m.w[i*m.n+j] % 100)
		}
	}
	return links, levels
}

// ring tries every order of the members.
func (m *matrix) ring(mask uint64) int64 {
	list, best := members(mask), int64(0)
	if len(list) < 2 {
		return 0
	}
	var try func(at int)
	try = func(at int) {
		if at == len(list) {
			least := int64(math.MaxInt64)
			for i := range list {
				least = min(least, int64(m.w[list[i]*m.n+list[(i+1)%len(list)]]))
			}
			best = max(best, least)
			return
		}
		for i := at; i < len(list); i++ {
			list[at], list[i] = list[i], list[at]
			try(at + 1)
			list[at], list[i] = list[i], list[at]
		}
	}
	try(1)
	return best
}

func (m *matrix) residual(left uint64, q device.Demand) int64 {
	sum := int64(0)
	for i, size := range []int{8, 4, 2} {
		most := int64(0)
		for mask := left; mask != 0; mask = (mask - 1) & left {
			if links, levels := m.sums(mask); bits.OnesCount64(mask) == size {
				most = max(most, links+levels)
			}
		}
		sum += q[i] * most
	}
	return sum
}

// weakest is the least of all links of a set.
func (m *matrix) weakest(mask uint64) int64 {
	least := int64(0)
	for _, i := range members(mask) {
		for _, j := range members(mask) {
			if w := int64(m.w[i*m.n+j]); i != j && (least == 0 || w < least) {
				least = w
			}
		}
	}
	return least
}

// keys computes the eight keys of a set without other types; of more than 16 devices what is known of them.
func (m *matrix) keys(mask, free uint64, q device.Demand) device.Keys {
	k := device.Keys{Mask: mask}
	if m.n > 16 {
		k.Ring = m.weakest(mask)
	} else {
		k.Ring, k.Residual = m.ring(mask), m.residual(free&^mask, q)
	}
	k.Links, k.Levels = m.sums(mask)
	k.LinksLeft, _ = m.sums(free &^ mask)
	nodes := map[topo.NodeSet]bool{}
	for _, i := range members(mask) {
		nodes[m.nodes[i]] = true
	}
	k.Nodes = int64(len(nodes))
	return k
}

func (m *matrix) best(free uint64, k int, q device.Demand) (best device.Keys, found bool) {
	for mask := free; mask != 0; mask = (mask - 1) & free {
		if bits.OnesCount64(mask) != k {
			continue
		}
		keys := m.keys(mask, free, q)
		order := cmp.Or(cmp.Compare(keys.Ring, best.Ring), cmp.Compare(keys.Links, best.Links),
			cmp.Compare(best.Nodes, keys.Nodes), cmp.Compare(keys.Levels, best.Levels),
			cmp.Compare(keys.Residual, best.Residual), cmp.Compare(keys.LinksLeft, best.LinksLeft),
			cmp.Compare(best.Mask, mask))
		if !found || order > 0 {
			best, found = keys, true
		}
	}
	return best, found
}

// TestSelectIsTheBestOfAllSets is P6.
func TestSelectIsTheBestOfAllSets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "class"), 0))
		m := drawMatrix(rng, 1+rng.IntN(7))
		c := m.class()
		free, k := rng.Uint64()&(1<<m.n-1), 1+rng.IntN(m.n)
		q := device.Demand{1, 1, 1}
		if rng.IntN(2) == 0 {
			q = device.Demand{rng.Int64N(1000), rng.Int64N(1000), 1 + rng.Int64N(1000)}
		}
		want, feasible := m.best(free, k, q)
		got, found := c.Select(free, k, q)
		if diff := gocmp.Diff(want, got); diff != "" || found != feasible {
			t.Fatalf("%v of %b, k %d, q %v (-want +got):\n%s", m, free, k, q, diff)
		}
	})
}

// TestTheRestIsNotWorthMoreThanTheSet: bridged pairs of eight GPUs, two of which are half in use.
func TestTheRestIsNotWorthMoreThanTheSet(t *testing.T) {
	t.Parallel()
	m := pairs(8)
	var free uint64 = 1<<0 | 1<<1 | 1<<2 | 1<<4 | 1<<5 | 1<<6
	got, _ := m.class().Select(free, 4, device.Demand{})
	if got.Mask != 1<<0|1<<1|1<<4|1<<5 || got.Links != 800 || got.Links+got.Levels != 940 {
		t.Errorf("got %b with links %d and weight %d, want {0,1,4,5}, 800, 940", got.Mask, got.Links,
			got.Links+got.Levels)
	}
	if one, _ := m.class().Select(free, 1, device.Demand{}); one.Mask != 1<<2 {
		t.Errorf("one GPU is %b, want one without its pair", one.Mask)
	}
}

// pairs is a server with two GPUs and four lanes between them on each switch, and two NUMA nodes.
func pairs(n int) *matrix {
	m := &matrix{n: n, w: make([]int32, n*n), nodes: make([]topo.NodeSet, n)}
	for i := range n {
		m.nodes[i] = 1 << (i / (n / 2))
		for j := range n {
			switch {
			case i == j:
			case i/2 == j/2:
				m.w[i*n+j] = 450
			case i/4 == j/4:
				m.w[i*n+j] = device.SameRoot - 10 // as the worked figures have it: one level for a NUMA node
			default:
				m.w[i*n+j] = device.Remote
			}
		}
	}
	return m
}

// cards is a server of cards with logical GPUs, joined in a ring of cards.
func cards(n, each int) *matrix {
	m := &matrix{n: n * each, w: make([]int32, n*each*n*each), nodes: make([]topo.NodeSet, n*each)}
	for i := range m.n {
		m.nodes[i] = 1 << (i / each / (n / 2))
		for j := range m.n {
			switch a, b := i/each, j/each; {
			case i == j:
			case a == b:
				m.w[i*m.n+j] = 860
			case (a+1)%n == b || (b+1)%n == a:
				m.w[i*m.n+j] = 230
			default:
				m.w[i*m.n+j] = 20
			}
		}
	}
	return m
}

// TestEqualDevicesAreCounted compares the choice among logical GPUs with all sets of a few of them, and looks at 64.
func TestEqualDevicesAreCounted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := cards(4, 5)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "free"), 0))
		free, k := rng.Uint64()&rng.Uint64()&(1<<m.n-1), 1+rng.IntN(5)
		if bits.OnesCount64(free) > 12 {
			free &= 1<<12 - 1
		}
		want, feasible := m.best(free, k, device.Demand{1, 1, 1})
		got, found := m.class().Select(free, k, device.Demand{})
		if diff := gocmp.Diff(want, got); diff != "" || found != feasible {
			t.Fatalf("%b, k %d (-want +got):\n%s", free, k, diff)
		}
	})
	m := cards(8, 8)
	c := m.class()
	for k, want := range map[int]device.Keys{
		8:  {Ring: 860, Links: 28 * 800, Levels: 28 * 60, Nodes: 1, Mask: 1<<8 - 1},
		16: {Ring: 230, Links: 56*800 + 64*200, Levels: 56*60 + 64*30, Nodes: 1, Mask: 1<<16 - 1},
	} {
		got, _ := c.Select(math.MaxUint64, k, device.Demand{})
		got.Residual, got.LinksLeft = 0, 0
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%d of 64 (-want +got):\n%s", k, diff)
		}
	}
}

// TestManyDevicesAreAllLookedAt compares a class without tables with all sets of a part of it.
func TestManyDevicesAreAllLookedAt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "class"), 0))
		m := drawMatrix(rng, 17+rng.IntN(8))
		free, k := uint64(0), 1+rng.IntN(6)
		for range 12 {
			free |= 1 << rng.IntN(m.n)
		}
		want, feasible := m.best(free, k, device.Demand{1, 1, 1})
		got, found := m.class().Select(free, k, device.Demand{})
		if diff := gocmp.Diff(want, got); diff != "" || found != feasible {
			t.Fatalf("%v of %b, k %d (-want +got):\n%s", m, free, k, diff)
		}
	})
}

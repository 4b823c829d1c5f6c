package gang_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// shelf is a cluster of nodes with two resources, and the members that were put on it.
type shelf struct {
	nodes [][2]int // free CPUs and GPUs
	asks  map[string]ask
	put   []move
}

type ask struct {
	cpus, gpus int
	only       int // index of the node that the member selects; -1 for any
}

type move struct {
	uid  string
	node int
}

func (s *shelf) place(uid, node string) bool {
	n := int(node[0] - '0')
	a := s.asks[uid]
	if a.only >= 0 && a.only != n || s.nodes[n][0] < a.cpus || s.nodes[n][1] < a.gpus {
		return false
	}
	s.nodes[n][0] -= a.cpus
	s.nodes[n][1] -= a.gpus
	s.put = append(s.put, move{uid, n})
	return true
}

func (s *shelf) remove() {
	last := s.put[len(s.put)-1]
	s.put = s.put[:len(s.put)-1]
	a := s.asks[last.uid]
	s.nodes[last.node][0] += a.cpus
	s.nodes[last.node][1] += a.gpus
}

// fits reports whether some choice of nodes gives each gang its minimum, by trying all of them.
func (s *shelf) fits(uids []string, gangOf map[string]string, least map[string]int) bool {
	if len(uids) == 0 {
		for _, n := range least {
			if n > 0 {
				return false
			}
		}
		return true
	}
	uid, rest := uids[0], uids[1:]
	for n := range s.nodes {
		if s.place(uid, fmt.Sprint(n)) {
			least[gangOf[uid]]--
			ok := s.fits(rest, gangOf, least)
			least[gangOf[uid]]++
			s.remove()
			if ok {
				return true
			}
		}
	}
	return s.fits(rest, gangOf, least)
}

// TestAGangThatFitsIsFound: for small groups of one or two gangs, with CPUs, GPUs and selected nodes mixed, nodes are
// found exactly where trying all choices finds some, and the members fit on them together.
func TestAGangThatFitsIsFound(t *testing.T) {
	t.Parallel()
	cases, fitting := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 100 { // the 100 checks that are the default draw 10,000 groups
			cases++
			if checkSearch(t) {
				fitting++
			}
		}
	})
	if cases >= 10_000 && (fitting < cases/10 || fitting > cases*9/10) {
		t.Errorf("%d of %d groups fit: the cases are one-sided", fitting, cases)
	}
}

func checkSearch(t *rapid.T) bool {
	s := &shelf{asks: map[string]ask{}}
	for range rapid.IntRange(1, 5).Draw(t, "nodes") {
		s.nodes = append(s.nodes, [2]int{rapid.IntRange(1, 8).Draw(t, "CPUs"), rapid.IntRange(0, 4).Draw(t, "GPUs")})
	}
	state, gangs := gang.New(gang.Settings{}), []string{"n/a", "n/b"}[:rapid.IntRange(1, 2).Draw(t, "gangs")]
	gangOf, least, kinds := map[string]string{}, map[string]int{}, map[string]string{}
	var uids []string
	members := rapid.IntRange(len(gangs), 6).Draw(t, "members")
	for i := range members {
		uid, id := fmt.Sprint("m", i), gangs[i%len(gangs)]
		a := ask{
			rapid.IntRange(1, 5).Draw(t, "asked CPUs"),
			rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "asked GPUs"),
			-1,
		}
		if rapid.IntRange(0, 4).Draw(t, "selects") == 0 {
			a.only = rapid.IntRange(0, len(s.nodes)-1).Draw(t, "selected")
		}
		uids, gangOf[uid], s.asks[uid], kinds[uid] = append(uids, uid), id, a, fmt.Sprint(a)
		least[id]++
	}
	for _, id := range gangs {
		least[id] -= rapid.IntRange(0, least[id]-1).Draw(t, "beyond the minimum")
	}
	for _, uid := range uids {
		state.Put(gang.Pod{UID: uid, Namespace: "n", Name: uid, Gang: gangOf[uid], Settings: gang.Settings{
			Min: least[gangOf[uid]], Group: gangs,
		}})
	}
	plan, refused := state.Begin(uids[0])
	if plan == nil {
		t.Fatalf("no plan: %s", refused)
	}
	search, nodes := &gang.Search{
		Kinds: kinds, Nodes: map[string][]string{}, Steps: gang.MostSearchSteps, Place: s.place, Remove: s.remove,
	}, slices.Clone(s.nodes)
	for _, uid := range uids {
		if search.Nodes[kinds[uid]] != nil {
			continue
		}
		for n := range s.nodes {
			if s.place(uid, fmt.Sprint(n)) {
				s.remove()
				search.Nodes[kinds[uid]] = append(search.Nodes[kinds[uid]], fmt.Sprint(n))
			}
		}
	}
	found, ok := plan.Nodes(rapid.Permutation(uids).Draw(t, "order"), search)
	if len(s.put) > 0 || !slices.Equal(nodes, s.nodes) {
		t.Fatalf("%v remains placed", s.put)
	}
	if want := s.fits(uids, gangOf, least); ok != want {
		t.Fatalf("nodes were found: %t, want %t; %+v on %v, at least %v", ok, want, s.asks, s.nodes, least)
	}
	for uid, node := range found {
		if ok && !s.place(uid, node) {
			t.Fatalf("%s does not fit on %s beside %v", uid, node, s.put)
		}
		least[gangOf[uid]]--
	}
	for id, n := range least {
		if ok && n != 0 {
			t.Fatalf("%s has %d members more or fewer than it needs", id, -n)
		}
	}
	return ok
}

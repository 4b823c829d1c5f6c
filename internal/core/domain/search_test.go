package domain_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/domain"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// network is a small tree of nodes with room, and members with sizes.
type network struct {
	sites []domain.Site
	sizes []int64 // of members, ascending
	ask   domain.Request
}

// drawNetwork draws spines of blocks of nodes. The rules are about blocks, then spines.
func drawNetwork(t *rapid.T, rules []domain.Rule, equal bool) *network {
	n := &network{ask: domain.Request{Rules: rules}}
	for i := range rapid.IntRange(1, 7).Draw(t, "nodes") {
		spine := rapid.SampledFrom([]string{"s0", "s1", ""}).Draw(t, "spine")
		block := rapid.SampledFrom([]string{"b0", "b1", "b2", ""}).Draw(t, "block")
		s := domain.Site{Name: fmt.Sprint("n", i), Free: []int64{rapid.Int64Range(0, 4).Draw(t, "free")}}
		for _, r := range rules {
			in := spine
			if r.Layer == "block" && block != "" {
				in = spine + "/" + block
			} else if r.Layer == "block" {
				in = ""
			}
			s.In = append(s.In, in)
		}
		n.sites = append(n.sites, s)
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "members") {
		size := int64(1)
		if !equal {
			size = rapid.Int64Range(1, 3).Draw(t, "size")
		}
		n.sizes = append(n.sizes, size)
		n.ask.Members = append(n.ask.Members, fmt.Sprint("m", i))
	}
	slices.Sort(n.sizes)
	n.ask.Min = rapid.IntRange(1, len(n.sizes)).Draw(t, "least")
	return n
}

func (n *network) domains() (all []domain.Domain, many int) {
	d := domain.Demand{Each: n.sizes[:1], All: []int64{0}}
	for _, size := range n.sizes[:n.ask.Min] {
		d.All[0] += size
	}
	domains, many := n.ask.Domains(n.sites, d)
	return slices.Collect(domains), many
}

// fits tries every way to place the smallest members that must be placed.
func (n *network) fits(sites []int) bool {
	free := make([]int64, len(n.sites))
	for _, i := range sites {
		free[i] = n.sites[i].Free[0]
	}
	var place func(m int) bool
	place = func(m int) bool {
		if m < 0 {
			return true
		}
		for _, i := range sites {
			if free[i] >= n.sizes[m] {
				free[i] -= n.sizes[m]
				if place(m - 1) {
					return true
				}
				free[i] += n.sizes[m]
			}
		}
		return false
	}
	return place(n.ask.Min - 1)
}

// countsBy groups all sites by their domains of some rules; sites that are outside of one are left out.
func (n *network) countsBy(counts func(domain.Rule) bool) map[string][]int {
	out := map[string][]int{}
	for i, s := range n.sites {
		var key []string
		inside := true
		for r, rule := range n.ask.Rules {
			if counts(rule) {
				key = append(key, s.In[r])
				inside = inside && s.In[r] != ""
			}
		}
		if inside {
			out[strings.Join(key, "|")] = append(out[strings.Join(key, "|")], i)
		}
	}
	return out
}

func must(g domain.Rule) bool { return g.Must }

// TestADomainIsFoundWheneverOneExists compares with all domains (G12): members are in one domain of each layer in which
// they must be, and the first in which they fit leaves the larger ones whole.
func TestADomainIsFoundWheneverOneExists(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := []domain.Rule{
			{Layer: "block", Must: rapid.Bool().Draw(t, "block")},
			{Layer: "spine", Must: rapid.Bool().Draw(t, "spine")},
		}[rapid.IntRange(0, 1).Draw(t, "from"):]
		n := drawNetwork(t, rules, rapid.Bool().Draw(t, "equal"))
		found := ""
		domains, many := n.domains()
		for _, d := range domains {
			sites := d.Parts[0].Sites
			for r, rule := range rules {
				for _, i := range sites {
					if in := n.sites[i].In[r]; rule.Must && (in == "" || in != n.sites[sites[0]].In[r]) {
						t.Fatalf("%+v: %v is not in one domain of %v", n, sites, rule)
					}
				}
			}
			if found == "" && n.fits(sites) {
				found = n.sites[sites[0]].Name
			}
		}
		exists := false
		all := n.countsBy(must)
		for _, sites := range all {
			exists = exists || n.fits(sites)
		}
		if exists != (found != "") || len(all) != many {
			t.Fatalf("%+v: found %q of %d, want %v of %d", n, found, many, exists, len(all))
		}
	})
}

// TestLargeDomainsRemainWhole: of the domains with room for all members the one with the least room is the first.
func TestLargeDomainsRemainWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t, []domain.Rule{{Layer: "spine", Must: true}}, true)
		n.ask.Min = len(n.sizes)
		room := func(sites []int) (sum int64) {
			for _, i := range sites {
				sum += min(n.sites[i].Free[0], int64(len(n.sizes)))
			}
			return sum
		}
		least := int64(-1)
		for _, sites := range n.countsBy(must) {
			if r := room(sites); n.fits(sites) && (least < 0 || r < least) {
				least = r
			}
		}
		if domains, _ := n.domains(); least >= 0 && room(domains[0].Parts[0].Sites) != least {
			t.Fatalf("%+v: first %+v, want one with room for %d", n, domains[0], least)
		}
	})
}

// TestTheFewestDomainsArePreferred: equal members that prefer a layer are spread over no more of its domains than they
// need, and go to nodes outside of all domains only where these are too small.
func TestTheFewestDomainsArePreferred(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t, []domain.Rule{{Layer: "spine"}}, true)
		blocks := n.countsBy(func(domain.Rule) bool { return true })
		var lists [][]int
		for _, sites := range blocks {
			lists = append(lists, sites)
		}
		fewest := 0
		for set := range 1 << len(lists) {
			var sites []int
			k := 0
			for i, list := range lists {
				if set>>i&1 != 0 {
					sites = append(sites, list...)
					k++
				}
			}
			if k > 0 && n.fits(sites) && (fewest == 0 || k < fewest) {
				fewest = k
			}
		}
		domains, _ := n.domains()
		used := map[string]bool{}
		for _, i := range domains[0].Parts[0].Sites {
			used[n.sites[i].In[0]] = true
		}
		if fewest > 0 && (len(used) != fewest || used[""] || !n.fits(domains[0].Parts[0].Sites)) {
			t.Fatalf("%+v: first %+v, want %d domains", n, domains[0], fewest)
		}
	})
}

// TestALayerWithoutDomainsChangesNothing: the same nodes are tried in the same order where another layer is preferred
// that no node is in.
func TestALayerWithoutDomainsChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := []domain.Rule{{Layer: "block"}, {Layer: "spine", Must: rapid.Bool().Draw(t, "must")}}
		n := drawNetwork(t, rules, rapid.Bool().Draw(t, "equal"))
		want, _ := n.domains()
		at := rapid.IntRange(0, len(rules)).Draw(t, "at")
		n.ask.Rules = slices.Insert(slices.Clone(rules), at, domain.Rule{Layer: "bare"})
		for i := range n.sites {
			n.sites[i].In = slices.Insert(n.sites[i].In, at, "")
		}
		if got, _ := n.domains(); !cmp.Equal(got, want) {
			t.Fatalf("%+v: got %+v, want %+v", n, got, want)
		}
	})
}

// TestInnerDomainsCountWhereOuterOnesDoNotSuffice: members that exceed what is in a middle layer are still in as few
// domains of the inner layer as possible.
func TestInnerDomainsCountWhereOuterOnesDoNotSuffice(t *testing.T) {
	t.Parallel()
	var sites []domain.Site
	for i, free := range []int64{1, 4, 1, 4} { // n0 and n1 are in a clique
		name, clique := fmt.Sprint("n", i), ""
		if i < 2 {
			clique = "c"
		}
		sites = append(sites, domain.Site{Name: name, In: []string{name, clique}, Free: []int64{free}})
	}
	for members, want := range map[int][]int{
		4: {1},       // one node
		5: {0, 1},    // one clique
		8: {1, 3},    // two nodes, as the clique does not suffice
		9: {1, 2, 3}, // three nodes
	} {
		g := &domain.Request{
			Members: make([]string, members), Min: members,
			Rules: []domain.Rule{{Layer: domain.NodeLayer}, {Layer: "c"}},
		}
		domains, _ := g.Domains(sites, domain.Demand{Each: []int64{1}, All: []int64{int64(members)}})
		for d := range domains {
			if got := d.Parts[0].Sites; !slices.Equal(got, want) {
				t.Errorf("%d members: first %v, want %v", members, got, want)
			}
			break
		}
	}
}

// TestSixteenDomainsOfALayerThatIsPreferredAreTried, the smallest, then the fewest together, then all nodes.
func TestSixteenDomainsOfALayerThatIsPreferredAreTried(t *testing.T) {
	t.Parallel()
	var sites []domain.Site
	for i := range 20 {
		name := fmt.Sprintf("n%02d", i)
		sites = append(sites, domain.Site{Name: name, In: []string{name}, Free: []int64{int64(40 - i)}})
	}
	g := &domain.Request{Members: []string{"m"}, Min: 1, Rules: []domain.Rule{{Label: "l"}}}
	domains, _ := g.Domains(sites, domain.Demand{Each: []int64{1}, All: []int64{1}})
	var got []int
	for d := range domains {
		got = append(got, len(d.Parts[0].Sites))
	}
	if want := append(slices.Repeat([]int{1}, 17), 20); !slices.Equal(got, want) {
		t.Errorf("got domains of %v nodes, want %v", got, want)
	}
}

// TestRankedMembers: the same domains are tried, each block by itself, and one spine after the other.
func TestRankedMembers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t, []domain.Rule{{Layer: "block"}, {Layer: "spine"}}, rapid.Bool().Draw(t, "equal"))
		plain, many := n.domains()
		n.ask.Ranked = true
		ranked, same := n.domains()
		if many != same || len(plain) != len(ranked) {
			t.Fatalf("%+v: %d of %d domains, want %d of %d", n, len(ranked), same, len(plain), many)
		}
		for i, d := range ranked {
			var sites []int
			spines, last := map[string]bool{}, "none"
			blocks := map[string]bool{}
			for _, p := range d.Parts {
				sites = append(sites, p.Sites...)
				in := n.sites[p.Sites[0]].In
				for _, s := range p.Sites {
					if !slices.Equal(n.sites[s].In, in) || !slices.IsSorted(p.Sites) || p.Members != 0 {
						t.Fatalf("%+v: part %+v", n, p)
					}
				}
				if block := fmt.Sprint(in); blocks[block] || in[1] != last && spines[in[1]] {
					t.Fatalf("%+v: parts %+v", n, d.Parts)
				}
				blocks[fmt.Sprint(in)], spines[in[1]], last = true, true, in[1]
			}
			if slices.Sort(sites); !slices.Equal(sites, plain[i].Parts[0].Sites) {
				t.Fatalf("%+v: domain %d has %v, want %v", n, i, sites, plain[i].Parts[0].Sites)
			}
		}
	})
}

// TestMultiplesOfMembers: each domain of the layer has a multiple of the number, and as many are placed as must be,
// wherever that is possible.
func TestMultiplesOfMembers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		multiple := rapid.IntRange(2, 3).Draw(t, "multiple")
		rule := domain.Rule{Layer: "spine", Must: rapid.Bool().Draw(t, "must"), Multiple: multiple}
		n := drawNetwork(t, []domain.Rule{rule}, true)
		most := 0 // members that can be placed
		for _, sites := range n.countsBy(func(domain.Rule) bool { return true }) {
			room := 0
			for _, i := range sites {
				room += int(min(n.sites[i].Free[0], int64(len(n.sizes))))
			}
			room = min(room, len(n.sizes)) / multiple * multiple
			if rule.Must {
				most = max(most, room)
			} else {
				most = min(most+room, len(n.sizes)/multiple*multiple)
			}
		}
		domains, _ := n.domains()
		if (most >= n.ask.Min) != (len(domains) > 0) {
			t.Fatalf("%+v: %d members can be placed, got %+v", n, most, domains)
		}
		for _, d := range domains {
			all := 0
			for _, p := range d.Parts {
				room := int64(0)
				for _, i := range p.Sites {
					room += n.sites[i].Free[0]
				}
				if all += p.Members; p.Members == 0 || p.Members%multiple != 0 || int64(p.Members) > room {
					t.Fatalf("%+v: part %+v", n, p)
				}
			}
			if all < n.ask.Min || rule.Must && len(d.Parts) > 1 {
				t.Fatalf("%+v: %+v places %d", n, d, all)
			}
		}
	})
}

// TestAMultipleIsCompletedWhereMembersAre: with those that they hold, domains have multiples.
func TestAMultipleIsCompletedWhereMembersAre(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held, free     [2]int
		members, least int
		want           string
	}{
		"one is lost":                    {[2]int{3, 4}, [2]int{5, 9}, 1, 1, "a 1"},
		"in both some are lost":          {[2]int{3, 2}, [2]int{5, 9}, 3, 3, "a 1, b 2"},
		"others come":                    {[2]int{3, 4}, [2]int{5, 9}, 5, 5, "a 5"},
		"many others come":               {[2]int{3, 4}, [2]int{5, 9}, 9, 9, "a 1, b 8"},
		"no room where one is lost":      {[2]int{3, 4}, [2]int{0, 9}, 1, 1, ""},
		"as many as a multiple come":     {[2]int{3, 4}, [2]int{5, 9}, 4, 1, "b 4"},
		"no room where many are lost":    {[2]int{1, 2}, [2]int{2, 9}, 2, 2, "b 2"},
		"all is lost where there is one": {[2]int{4, 0}, [2]int{0, 9}, 4, 4, "b 4"},
	} {
		t.Run(name, func(t *testing.T) {
			var sites []domain.Site
			for i, in := range []string{"a", "b"} {
				free := []int64{int64(c.free[i])}
				sites = append(sites, domain.Site{Name: in, In: []string{in}, Free: free, Held: c.held[i]})
			}
			g := &domain.Request{Min: c.least, Rules: []domain.Rule{{Label: "l", Multiple: 4}}}
			for i := range c.members {
				g.Members = append(g.Members, fmt.Sprint("m", i))
			}
			var got []string
			domains, _ := g.Domains(sites, domain.Demand{Each: []int64{1}, All: []int64{int64(c.least)}})
			for d := range domains {
				for _, p := range d.Parts {
					got = append(got, fmt.Sprint(sites[p.Sites[0]].Name, " ", p.Members))
				}
				break
			}
			slices.Sort(got)
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestMembersGoWhereOthersAre(t *testing.T) {
	t.Parallel()
	site := func(name, in string, free int64, held int) domain.Site {
		return domain.Site{Name: name, In: []string{in}, Free: []int64{free}, Held: held}
	}
	sites := []domain.Site{
		site("n0", "a", 9, 0), site("n1", "b", 1, 1), site("n2", "b", 0, 0), site("n3", "c", 9, 0),
		site("n4", "", 9, 5),
	}
	for name, c := range map[string]struct {
		rule domain.Rule
		want []string
	}{
		"must":   {domain.Rule{Label: "l", Must: true}, []string{"b [1 2]"}},
		"prefer": {domain.Rule{Label: "l"}, []string{"b [1 2]", "a [0]", "c [3]", " [0 1 2 3 4]"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &domain.Request{Members: []string{"m"}, Min: 1, Rules: []domain.Rule{c.rule}}
			domains, _ := g.Domains(sites, domain.Demand{Each: []int64{1}, All: []int64{1}})
			var got []string
			for d := range domains {
				got = append(got, fmt.Sprint(d.Name, " ", d.Parts[0].Sites))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDomainsWithReservationsForTheMembersAreTriedFirst(t *testing.T) {
	t.Parallel()
	sites := []domain.Site{
		{Name: "n0", In: []string{"a"}, Free: []int64{4}, Link: 9},
		{Name: "n1", In: []string{"b"}, Free: []int64{9}, Reserved: 1},
		{Name: "n2", In: []string{"c"}, Free: []int64{5}, Reserved: 1},
		{Name: "n3", In: []string{"c"}, Free: []int64{5}, Reserved: 1},
		{Name: "n4", In: []string{"d"}, Free: []int64{5}},
		{Name: "n5", In: []string{"e"}, Free: []int64{1}, Reserved: 3},
	}
	g := &domain.Request{Members: []string{"m", "n", "o"}, Min: 3, Rules: []domain.Rule{{Label: "l", Must: true}}}
	var got []string
	domains, _ := g.Domains(sites, domain.Demand{Each: []int64{1}, All: []int64{3}})
	for d := range domains {
		got = append(got, d.Name)
	}
	if d := cmp.Diff([]string{"c", "b", "a", "d"}, got); d != "" {
		t.Error(d)
	}
}

func TestChoicesAreAllCombinations(t *testing.T) {
	t.Parallel()
	names := func(names ...string) iter.Seq[domain.Domain] {
		return func(yield func(domain.Domain) bool) {
			for _, n := range names {
				if !yield(domain.Domain{Name: n}) {
					return
				}
			}
		}
	}
	var got []string
	for c := range domain.Combinations([]iter.Seq[domain.Domain]{names("a", "b"), names("x", "y")}) {
		got = append(got, c[0].Name+c[1].Name)
		if len(got) == 3 {
			break
		}
	}
	if d := cmp.Diff([]string{"ax", "ay", "bx"}, got); d != "" {
		t.Error(d)
	}
}

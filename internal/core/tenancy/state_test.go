package tenancy_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// cpuNode has two NUMA nodes of 8 CPUs each, under a static CPU manager.
func cpuNode(tb testing.TB) *kubelet.Node {
	tb.Helper()
	model, _ := kubelet.ModelOf("v1.36.3")
	node, reason := kubelet.NewNode(grid.Machine{Nodes: 2, Cores: 8}.Build(tb), kubelet.Config{
		Model: model, CPU: kubelet.CPU{Static: true}, Topology: kubelet.Topology{Policy: hint.None},
	}, kubelet.Inventory{})
	if !reason.OK() {
		tb.Fatalf("NewNode: %+v", reason)
	}
	return node
}

// cpuPod has a container for each number of CPUs.
func cpuPod(uid string, cpus ...int) *kubelet.Pod {
	p := &kubelet.Pod{UID: uid, Guaranteed: true}
	for i, n := range cpus {
		p.Containers = append(p.Containers, kubelet.Container{Name: fmt.Sprint("c", i), CPUs: n})
	}
	return p
}

// onCPUs gives each container of a pod the CPUs of a list, "0-1".
func onCPUs(n *kubelet.Node, lists ...string) kubelet.Placement {
	var held []kubelet.Held
	for i, list := range lists {
		held = append(held, kubelet.Held{Container: fmt.Sprint("c", i), CPUList: list})
	}
	return kubelet.PlacementOf(n.Machine(), held)
}

// bound is a pod without a prediction.
func bound(n *kubelet.Node, created int64, p *kubelet.Pod) *tenancy.Tenant {
	return tenancy.NewTenant(n.Machine(), p.UID, "ns", p.UID, &tenancy.Guest{Pod: p, Created: created})
}

func TestWhatIsKnownOfAPod(t *testing.T) {
	t.Parallel()
	n := cpuNode(t)
	nobodys := func(cpus ...int) tenancy.Grant { return tenancy.Grant{CPUs: cpuset.Of(cpus...)} }
	pins := func(uid string, cpus ...int) tenancy.Grant { return tenancy.Grant{UID: uid, CPUs: cpuset.Of(cpus...)} }
	reports := func(uid string, lists ...string) tenancy.Grant {
		return tenancy.Grant{UID: uid, Placement: onCPUs(n, lists...)}
	}
	expects := func(gen int64, p *kubelet.Pod, lists ...string) *tenancy.Tenant {
		return tenantOf(n, p, gen, onCPUs(n, lists...))
	}
	const gen = 5
	for name, c := range map[string]struct {
		given   []tenancy.Grant
		tenants []*tenancy.Tenant
		want    []string // "UID source CPUs", by UID
		all     string   // the CPUs that no other pod can have; by default those of want
	}{
		"nothing": {nil, []*tenancy.Tenant{bound(n, 1, cpuPod("a", 2))}, []string{"a computed 0-1"}, ""},
		"by creation, then by UID": {
			nil,
			[]*tenancy.Tenant{bound(n, 2, cpuPod("a", 1)), bound(n, 2, cpuPod("b", 1)), bound(n, 1, cpuPod("c", 1))},
			[]string{"a computed 1", "b computed 2", "c computed 0"},
			"",
		},
		"its placement": {
			[]tenancy.Grant{reports("a", "4-5")},
			[]*tenancy.Tenant{bound(n, 1, cpuPod("a", 2)), bound(n, 2, cpuPod("b", 5))},
			[]string{"a reported 4-5", "b computed 0-3,6"},
			"",
		},
		"its CPUs alone": {
			[]tenancy.Grant{pins("a", 6, 7)},
			[]*tenancy.Tenant{bound(n, 2, cpuPod("a", 2)), bound(n, 1, cpuPod("b", 2))},
			[]string{"a pinned 6-7", "b computed 0-1"},
			"",
		},
		"a placement that lacks the CPUs of a container is read too early": {
			[]tenancy.Grant{reports("a", "4-5")},
			[]*tenancy.Tenant{bound(n, 1, cpuPod("a", 2, 1))},
			[]string{"a computed 0-2"},
			"",
		},
		"a container without CPUs is complete": {
			[]tenancy.Grant{reports("a", "4-5")},
			[]*tenancy.Tenant{bound(n, 1, cpuPod("a", 2, 0))},
			[]string{"a reported 4-5"},
			"",
		},
		"a prediction that the report cannot have": {
			[]tenancy.Grant{reports("a", "4-5")},
			[]*tenancy.Tenant{expects(gen, cpuPod("a", 2), "8-9")},
			[]string{"a predicted 8-9"},
			"",
		},
		"a prediction that a report confirms": {
			[]tenancy.Grant{reports("a", "8-9")},
			[]*tenancy.Tenant{expects(1, cpuPod("a", 2), "8-9"), expects(1, cpuPod("b", 2), "12-13")},
			[]string{"a reported 8-9", "b predicted 12-13"},
			"",
		},
		"a prediction that a report contradicts voids the older ones": {
			[]tenancy.Grant{reports("a", "4-5")},
			[]*tenancy.Tenant{
				expects(1, cpuPod("a", 2), "8-9"), expects(1, cpuPod("b", 2), "12-13"),
				expects(gen, cpuPod("c", 2), "14-15"),
			},
			[]string{"a reported 4-5", "b computed 0-1", "c predicted 14-15"},
			"",
		},
		"CPUs of a pod that the report does not identify": {
			[]tenancy.Grant{nobodys(4, 5)},
			[]*tenancy.Tenant{bound(n, 1, cpuPod("a", 2))},
			[]string{"a pinned 4-5"},
			"",
		},
		"they are the oldest pod's, the lowest first": {
			[]tenancy.Grant{nobodys(4, 5, 9)},
			[]*tenancy.Tenant{bound(n, 2, cpuPod("a", 1)), bound(n, 1, cpuPod("b", 1))},
			[]string{"a pinned 5", "b pinned 4"},
			"4-5,9",
		},
		"too few for a pod are another's that has gone": {
			[]tenancy.Grant{nobodys(0, 1)},
			[]*tenancy.Tenant{bound(n, 1, cpuPod("a", 3))},
			[]string{"a computed 2-4"},
			"0-4",
		},
		"without those of reported pods": {
			[]tenancy.Grant{nobodys(4, 5), reports("a", "4-5")},
			[]*tenancy.Tenant{bound(n, 1, cpuPod("a", 2)), bound(n, 2, cpuPod("b", 2))},
			[]string{"a reported 4-5", "b computed 0-1"},
			"",
		},
		"without those of pinned pods": {
			[]tenancy.Grant{nobodys(4, 5, 6, 7), pins("a", 4, 5)},
			[]*tenancy.Tenant{bound(n, 1, cpuPod("a", 2)), bound(n, 2, cpuPod("b", 2))},
			[]string{"a pinned 4-5", "b pinned 6-7"},
			"",
		},
		"without those of predicted pods": {
			[]tenancy.Grant{nobodys(4, 5, 6, 7)},
			[]*tenancy.Tenant{expects(gen, cpuPod("a", 2), "4-5"), bound(n, 2, cpuPod("b", 2))},
			[]string{"a predicted 4-5", "b pinned 6-7"},
			"",
		},
		"a pod that the kubelet refuses has nothing": {
			nil,
			[]*tenancy.Tenant{bound(n, 1, cpuPod("a", 17)), bound(n, 2, cpuPod("b", 1))},
			[]string{"a refused ", "b computed 0"},
			"",
		},
		"a pod without CPUs of its own takes no part": {
			nil,
			[]*tenancy.Tenant{bound(n, 1, cpuPod("a", 0)), bound(n, 2, cpuPod("b", 1))},
			[]string{"b computed 0"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stateOf(n, gen, tenancy.SortGrants(c.given), c.tenants)
			var got []string
			var sum cpuset.Set
			for _, a := range s.Assignments() {
				how, cpus := a.Source.String(), a.Placement.CPUs()
				if a.Refused {
					how = "refused"
				}
				got = append(got, fmt.Sprintf("%s %s %s", a.UID, how, cpuset.FormatIDs(cpus.Slice())))
				sum.Include(&cpus)
				if s.Assignment(a.UID) != a {
					t.Errorf("Assignment(%s) is another one", a.UID)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("pods have %q, want %q", got, c.want)
			}
			cpus := s.CPUs()
			if want := cmp.Or(c.all, cpuset.FormatIDs(sum.Slice())); cpuset.FormatIDs(cpus.Slice()) != want {
				t.Errorf("all have %s, want %s", cpuset.FormatIDs(cpus.Slice()), want)
			}
			taken := map[int]bool{} // the kubelet's state gives each of these CPUs once, and no other
			for _, p := range s.Kubelet().Placements() {
				for c := range p.CPUs().All() {
					if taken[c] || !cpus.Has(c) {
						t.Errorf("the kubelet gave CPU %d twice, or without a pod", c)
					}
					taken[c] = true
				}
			}
			if len(taken) != cpus.Len() {
				t.Errorf("the kubelet gave %d CPUs of %d", len(taken), cpus.Len())
			}
		})
	}
}

// TestAChangeEqualsNew: whatever the node reports, the state after one pod has changed is the one that New computes,
// or Change declines.
func TestAChangeEqualsNew(t *testing.T) {
	t.Parallel()
	n := cpuNode(t)
	uids := []string{"a", "b", "c", "d", "e"}
	places := []string{"0-1", "2-3", "8-9", "14-15"}
	changed, declined := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var given []tenancy.Grant
		for i, at := range rapid.Permutation(places).Draw(t, "reported CPUs") {
			g := tenancy.Grant{UID: uids[i], Placement: onCPUs(n, at)}
			switch rapid.IntRange(0, 4).Draw(t, "report") {
			case 0:
			case 1:
				cpus := g.Placement.CPUs()
				given = append(given, tenancy.Grant{UID: uids[i], CPUs: cpus})
			default:
				given = append(given, g)
			}
		}
		current := make([]*tenancy.Tenant, len(uids))
		known := func() []*tenancy.Tenant {
			return slices.DeleteFunc(slices.Clone(current), func(t *tenancy.Tenant) bool { return t == nil })
		}
		s := stateOf(n, 5, given, nil)
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			i := rapid.IntRange(0, len(uids)-1).Draw(t, "pod")
			var after *tenancy.Tenant
			p := cpuPod(uids[i], rapid.SampledFrom([]int{0, 1, 2, 2, 2, 5, 17}).Draw(t, "CPUs"))
			switch rapid.IntRange(0, 3).Draw(t, "becomes") {
			case 0:
			case 1:
				p = cpuPod(uids[i], 2)
				after = tenantOf(n, p, rapid.SampledFrom([]int64{1, 5}).Draw(t, "generation"),
					onCPUs(n, places[min(i, len(places)-1)]))
			default:
				after = bound(n, rapid.Int64Range(1, 3).Draw(t, "created"), p)
			}
			before := current[i]
			current[i] = after
			want := stateOf(n, 5, given, known())
			next, ok := s.Change(before, after)
			if !ok {
				declined++
				s = want
				continue
			}
			changed++
			if diff := unlike(next, want); diff != "" {
				t.Fatalf("%s; report %+v, %s becomes %+v", diff, given, uids[i], after)
			}
			if !next.Equal(want) {
				t.Fatal("two equal states are unlike")
			}
			s = next
		}
	})
	if changed < declined || declined == 0 {
		t.Errorf("%d changes, %d declined", changed, declined)
	}
}

// unlike says how two states differ.
func unlike(got, want *tenancy.State) string {
	if g, w := got.CPUs(), want.CPUs(); g != w {
		return fmt.Sprintf("CPUs %v, want %v", g.Slice(), w.Slice())
	}
	held := func(s *kubelet.State) map[string]string {
		all := map[string]string{}
		for uid, p := range s.Placements() {
			all[uid] = fmt.Sprintf("%+v", p)
		}
		return all
	}
	if g, w := held(got.Kubelet()), held(want.Kubelet()); !maps.Equal(g, w) {
		return fmt.Sprintf("the kubelet's state has %v, want %v", g, w)
	}
	if g, w := held(got.Confirmed()), held(want.Confirmed()); !maps.Equal(g, w) {
		return fmt.Sprintf("confirmed are %v, want %v", g, w)
	}
	text := func(s *tenancy.State) (all []string) {
		for _, a := range s.Assignments() {
			all = append(all, fmt.Sprintf("%s %v %t %+v", a.UID, a.Source, a.Refused, a.Placement))
		}
		return all
	}
	if g, w := text(got), text(want); !slices.Equal(g, w) {
		return fmt.Sprintf("pods have %q, want %q", g, w)
	}
	return ""
}

func TestStatesAreEqualByWhatPodsHave(t *testing.T) {
	t.Parallel()
	n := cpuNode(t)
	state := func(given []tenancy.Grant, tenants ...*tenancy.Tenant) *tenancy.State {
		return stateOf(n, 5, given, tenants)
	}
	on := func(list string) *tenancy.State { return state(nil, tenantOf(n, cpuPod("a", 2), 5, onCPUs(n, list))) }
	large := func(first, second int64) *tenancy.State { // neither fits, in either order
		return state(nil, bound(n, first, cpuPod("a", 17)), bound(n, second, cpuPod("b", 17)))
	}
	for name, c := range map[string]struct {
		a, b *tenancy.State
		want bool
	}{
		"neither":     {nil, nil, true},
		"one":         {nil, on("0-1"), false},
		"the other":   {on("0-1"), nil, false},
		"alike":       {on("0-1"), on("0-1"), true},
		"other CPUs":  {on("0-1"), on("2-3"), false},
		"another pod": {state(nil, bound(n, 1, cpuPod("a", 17))), state(nil, bound(n, 1, cpuPod("b", 17))), false},
		"more pods":   {on("0-1"), state(nil), false},
		"known otherwise": {
			on("4-5"), state([]tenancy.Grant{{UID: "a", Placement: onCPUs(n, "4-5")}}, bound(n, 1, cpuPod("a", 2))),
			false,
		},
		"in another order":  {large(1, 2), large(2, 1), false},
		"in the same order": {large(1, 2), large(1, 3), true},
		"one that is refused": {
			state(nil, bound(n, 1, cpuPod("a", 17))), state(nil, bound(n, 1, cpuPod("a", 2))), false,
		},
	} {
		if got := c.a.Equal(c.b); got != c.want {
			t.Errorf("%s: equal %t, want %t", name, got, c.want)
		}
	}
}

func TestAReportedPlacementIsInTheOrderOfThePodsContainers(t *testing.T) {
	t.Parallel()
	n := cpuNode(t)
	pl := onCPUs(n, "0-1", "2", "3")
	pl[2].Container = "of another"
	slices.Reverse(pl)
	s := stateOf(n, 5, []tenancy.Grant{{UID: "a", Placement: pl}}, []*tenancy.Tenant{bound(n, 1, cpuPod("a", 2, 1))})
	var got []string
	for _, g := range s.Assignment("a").Placement {
		got = append(got, g.Container)
	}
	if want := []string{"c0", "c1", "of another"}; !slices.Equal(got, want) {
		t.Errorf("containers %q, want %q", got, want)
	}
	if pl[0].Container != "of another" {
		t.Error("the report has changed")
	}
}

func TestPodsWithoutAReportAreUnconfirmed(t *testing.T) {
	t.Parallel()
	n := cpuNode(t)
	s := stateOf(n, 5, []tenancy.Grant{{UID: "a", Placement: onCPUs(n, "0-1")}, {UID: "b", CPUs: cpuset.Of(2, 3)}},
		[]*tenancy.Tenant{
			bound(n, 1, cpuPod("a", 2)), bound(n, 1, cpuPod("b", 2)), tenantOf(n, cpuPod("c", 2), 5, onCPUs(n, "8-9")),
			bound(n, 1, cpuPod("d", 2)), bound(n, 1, cpuPod("e", 2)),
		})
	for limit, want := range map[int][]string{0: nil, 2: {"c", "d"}, 9: {"c", "d", "e"}} {
		var got []string
		for _, p := range s.Unconfirmed(limit) {
			got = append(got, p.UID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("at most %d: %q, want %q", limit, got, want)
		}
	}
	confirmed := map[string]kubelet.Placement{}
	for uid, pl := range s.Confirmed().Placements() {
		confirmed[uid] = pl
	}
	if pl := confirmed["a"]; len(confirmed) != 1 || !pl.Equal(onCPUs(n, "0-1")) {
		t.Errorf("confirmed are %+v, want what the node reports of pod a alone", confirmed)
	}
}

func TestGrantsAreResolvedByName(t *testing.T) {
	t.Parallel()
	n := cpuNode(t)
	tenants := make([]*tenancy.Tenant, 3)
	for i, name := range []string{"one", "two", "two"} {
		tenants[i] = tenancy.NewTenant(n.Machine(), fmt.Sprint("uid-", i), "ns", name,
			&tenancy.Guest{Pod: cpuPod("", 1)})
	}
	for name, c := range map[string]struct {
		grant tenancy.Grant
		want  string
	}{
		"a name":                       {tenancy.Grant{Namespace: "ns", Name: "one"}, "uid-0"},
		"of two the lower UID":         {tenancy.Grant{Namespace: "ns", Name: "two"}, "uid-1"},
		"another namespace":            {tenancy.Grant{Namespace: "other", Name: "one"}, ""},
		"another name":                 {tenancy.Grant{Namespace: "ns", Name: "three"}, ""},
		"a UID stays":                  {tenancy.Grant{UID: "uid-9", Namespace: "ns", Name: "one"}, "uid-9"},
		"neither a name nor a UID":     {tenancy.Grant{Namespace: "ns"}, ""},
		"a UID without a name, as is":  {tenancy.Grant{UID: "uid-0"}, "uid-0"},
		"a UID of none, with its name": {tenancy.Grant{UID: "x", Name: "two"}, "x"},
	} {
		last := tenancy.Grant{UID: "uid-5"}
		given := []tenancy.Grant{last, c.grant}
		got := tenancy.ResolveUIDs(given, tenants)
		c.grant.UID = c.want
		want := tenancy.SortGrants([]tenancy.Grant{last, c.grant})
		if !slices.EqualFunc(got, want, tenancy.Grant.Equal) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if given[0].UID != "uid-5" {
			t.Errorf("%s: the caller's list has changed", name)
		}
	}
}

func TestGrantsAreEqualByAllFields(t *testing.T) {
	t.Parallel()
	n := cpuNode(t)
	g := tenancy.Grant{UID: "u", Namespace: "ns", Name: "n", CPUs: cpuset.Of(1), Placement: onCPUs(n, "1")}
	if same := g; !g.Equal(same) {
		t.Error("a grant differs from its copy")
	}
	for i, change := range []func(o *tenancy.Grant){
		func(o *tenancy.Grant) { o.UID = "" },
		func(o *tenancy.Grant) { o.Namespace = "" },
		func(o *tenancy.Grant) { o.Name = "" },
		func(o *tenancy.Grant) { o.CPUs = cpuset.Of(2) },
		func(o *tenancy.Grant) { o.Placement = onCPUs(n, "2") },
	} {
		o := g
		if change(&o); g.Equal(o) {
			t.Errorf("change %d leaves an equal grant", i)
		}
	}
}

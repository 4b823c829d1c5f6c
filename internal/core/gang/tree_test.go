package gang_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

// forest is CompositePodGroups and PodGroups by name, each PodGroup with a pod of its name.
type forest struct {
	composites map[string]gang.Composite
	podGroups  map[string]gang.Object
}

// path returns what is above an object, from the root down. It is not sound where one of these does not exist, or is in
// it twice.
func (f forest) path(parent string) (path []string, sound bool) {
	for ; parent != ""; parent = f.composites[parent].Parent {
		path = slices.Insert(path, 0, parent)
		if !f.composites[parent].Exists || slices.Contains(path[1:], parent) {
			return path, false
		}
	}
	return path, true
}

// frees reports whether a CompositePodGroup lets its child groups start on their own.
func (f forest) frees(c gang.Composite) bool { return c.Least == 0 && !c.Whole && c.Fault == "" }

// unit returns the topmost CompositePodGroup that keeps a PodGroup together with others; empty where none does.
func (f forest) unit(path []string) string {
	for level, name := range path {
		if !f.frees(f.composites[name]) || level > 3 {
			return name
		}
	}
	return ""
}

func (f forest) children(parent string) (n int) {
	for _, c := range f.composites {
		if c.Parent == parent {
			n++
		}
	}
	for _, o := range f.podGroups {
		if o.Parent == parent {
			n++
		}
	}
	return n
}

// oracle returns the PodGroups that start with one, and whether they may not.
func (f forest) oracle(id string) (group []string, refused bool) {
	path, sound := f.path(f.podGroups[id].Parent)
	if !sound {
		return nil, true
	}
	top := f.unit(path)
	if top == "" {
		return []string{id}, len(path) > 3
	}
	for other, o := range f.podGroups {
		if path, _ := f.path(o.Parent); slices.Contains(path, top) {
			group = append(group, other)
			refused = refused || o.Plain || len(path) > 3
		}
	}
	for name, c := range f.composites {
		if path, _ := f.path(c.Parent); name == top || slices.Contains(path, top) {
			refused = refused || c.Fault != "" || c.Least == 0 || c.Least != f.children(name) || len(path) > 3
		}
	}
	slices.Sort(group)
	return group, refused
}

// compare holds a State to the oracle.
func (f forest) compare(t *rapid.T, s *gang.State) {
	testkit.Check(t, s.Check())
	for id := range f.podGroups {
		group, refused := f.oracle(id)
		r := s.Gate(id)
		if (r.Code != why.None) != refused || refused && r.String() == "" {
			t.Fatalf("%s is refused by %+v, want %t: %+v", id, r, refused, f)
		}
		if got := s.Bond(id).Group; !refused && got != strings.Join(group, ",") {
			t.Fatalf("%s starts with %s, want %v: %+v", id, got, group, f)
		}
	}
}

func podOf(id string) gang.Pod {
	return gang.Pod{UID: id, Namespace: "ns", Name: id[3:], Gang: id, InObject: true, Created: time.Unix(1, 0)}
}

// TestWhatOneTreeHasStartsTogether whatever the order in which its objects come, change and go, and as a State has it
// that has seen them in another order.
func TestWhatOneTreeHasStartsTogether(t *testing.T) {
	t.Parallel()
	names := func(prefix string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("ns/", prefix, i))
		}
		return all
	}
	composites, podGroups := names("c", 5), names("p", 5)
	together, alone, held := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f := forest{composites: map[string]gang.Composite{}, podGroups: map[string]gang.Object{}}
		s := gang.New(gang.Settings{})
		parent := rapid.SampledFrom(append(composites, "", "", ""))
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			name := rapid.SampledFrom(composites).Draw(t, "composite")
			id := rapid.SampledFrom(podGroups).Draw(t, "PodGroup")
			switch rapid.SampledFrom([]string{"c", "c", "c", "p", "p", "p", "p", "-c", "-p"}).Draw(t, "event") {
			case "c":
				c := gang.Composite{
					Exists: true, Parent: parent.Draw(t, "parent"),
					Least: rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "least"),
					Whole: rapid.IntRange(0, 5).Draw(t, "whole") == 0,
				}
				if rapid.IntRange(0, 20).Draw(t, "fault") == 0 {
					c.Fault = "it cannot be read"
				}
				f.composites[name] = c
				s.PutComposite(name, c)
			case "-c":
				delete(f.composites, name)
				s.PutComposite(name, gang.Composite{})
			case "p":
				o := gang.Object{
					Gang: id, Parent: parent.Draw(t, "parent"), Plain: rapid.IntRange(0, 9).Draw(t, "plain") == 0,
				}
				f.podGroups[id] = o
				s.PutObject(o)
				s.Put(podOf(id))
			default:
				delete(f.podGroups, id)
				s.RemoveObject(id)
				s.Remove(id)
			}
			f.compare(t, s)
		}
		if rapid.Bool().Draw(t, "mended") {
			for _, name := range composites {
				if n := f.children(name); n > 0 {
					f.composites[name] = gang.Composite{Exists: true, Parent: f.composites[name].Parent, Least: n}
					s.PutComposite(name, f.composites[name])
					f.compare(t, s)
				}
			}
		}
		again := gang.New(gang.Settings{})
		for _, id := range rapid.Permutation(slices.Sorted(maps.Keys(f.podGroups))).Draw(t, "order") {
			again.Put(podOf(id))
			again.PutObject(f.podGroups[id])
		}
		for name, c := range f.composites {
			again.PutComposite(name, c)
		}
		f.compare(t, again)
		for id := range f.podGroups {
			switch group, refused := f.oracle(id); {
			case refused:
				held++
			case len(group) > 1:
				together++
			default:
				alone++
			}
		}
	})
	if together == 0 || alone == 0 || held == 0 {
		t.Errorf("%d PodGroups together, %d alone, %d held: too few to mean anything", together, alone, held)
	}
}

// TestWhyATreeIsHeld: each reason names the object, the field and the rule, on every PodGroup of the tree.
func TestWhyATreeIsHeld(t *testing.T) {
	t.Parallel()
	type composites = map[string]gang.Composite
	root := gang.Composite{Exists: true, Least: 2}
	below := gang.Composite{Exists: true, Parent: "ns/root", Least: 2}
	for name, c := range map[string]struct {
		composites
		parents [2]string
		plain   bool
		code    why.Code
		want    string
	}{
		"as it is to be": {composites{"ns/root": root}, [2]string{"ns/root", "ns/root"}, false, why.None, ""},
		"no root": {
			composites{},
			[2]string{"ns/root", "ns/root"},
			false, why.GangNotFound,
			"CompositePodGroup ns/root does not exist",
		},
		"no root of another": {
			composites{"ns/a": below},
			[2]string{"ns/a", "ns/a"},
			false, why.GangNotFound,
			"CompositePodGroup ns/root does not exist",
		},
		"one has yet to come": {
			composites{"ns/root": {Exists: true, Least: 3}},
			[2]string{"ns/root", "ns/root"},
			false, why.GangNotFound,
			"CompositePodGroup ns/root has 2 of the 3 child groups that must start together",
		},
		"more than must start together": {
			composites{"ns/root": {Exists: true, Least: 1}},
			[2]string{"ns/root", "ns/root"},
			false, why.BadAnnotation,
			"CompositePodGroup ns/root: spec.schedulingPolicy.gang.minGroupCount: must be the number of its child " +
				"groups, 2, is 1",
		},
		"basic below gang": {
			composites{"ns/root": {Exists: true, Least: 1}, "ns/a": {Exists: true, Parent: "ns/root"}},
			[2]string{"ns/a", "ns/a"},
			false, why.BadAnnotation,
			"CompositePodGroup ns/a: spec.schedulingPolicy: must be gang, as that of ns/root is, is basic",
		},
		"a basic PodGroup below gang": {
			composites{"ns/root": root},
			[2]string{"ns/root", "ns/root"},
			true, why.BadAnnotation,
			"PodGroup ns/p0: spec.schedulingPolicy: must be gang, as that of ns/root is, is basic",
		},
		"on their own, and evicted together": {
			composites{"ns/root": {Exists: true, Whole: true}},
			[2]string{"ns/root", "ns/root"},
			false, why.BadAnnotation,
			"CompositePodGroup ns/root: spec.disruptionMode: must be single with the policy basic, is all",
		},
		"above itself": {
			composites{"ns/a": {Exists: true, Parent: "ns/a", Least: 3}},
			[2]string{"ns/a", "ns/a"},
			false, why.BadAnnotation,
			"CompositePodGroup ns/a: spec.parentCompositePodGroupName: must lead to a root, with at most 4 levels " +
				"from there to PodGroups, is ns/a",
		},
		"five levels": {
			composites{
				"ns/root": {Exists: true, Least: 1}, "ns/a": {Exists: true, Parent: "ns/root", Least: 1},
				"ns/b": {Exists: true, Parent: "ns/a", Least: 1}, "ns/c": {Exists: true, Parent: "ns/b", Least: 2},
			},
			[2]string{"ns/c", "ns/c"},
			false, why.BadAnnotation,
			"PodGroup ns/p0: spec.parentCompositePodGroupName: must lead to a root, with at most 4 levels from there " +
				"to PodGroups, is ns/c",
		},
		"a field that cannot be read": {
			composites{"ns/root": {Exists: true, Fault: "CompositePodGroup/ns/root: spec.x: must be y"}},
			[2]string{"ns/root", "ns/root"},
			false, why.BadAnnotation, "CompositePodGroup/ns/root: spec.x: must be y",
		},
	} {
		s := gang.New(gang.Settings{})
		for name, composite := range c.composites {
			s.PutComposite(name, composite)
		}
		for i, parent := range c.parents {
			id := fmt.Sprint("ns/p", i)
			s.PutObject(gang.Object{Gang: id, Parent: parent, Plain: c.plain && i == 0})
			s.Put(podOf(id))
		}
		for i := range c.parents {
			id := fmt.Sprint("ns/p", i)
			if r := s.Gate(id); r.Code != c.code || r.String() != c.want || r.Code != why.None && r.Gang != id {
				t.Errorf("%s: %s is held by %v of %s: %s\nwant %v: %s", name, id, r.Code, r.Gang, r, c.code, c.want)
			}
		}
	}
}

// TestATreeStartsWhole: its PodGroups are one plan, open at once with the last object, and are evicted together.
func TestATreeStartsWhole(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	rack := gang.Settings{DomainRules: []domain.Rule{{Label: "rack", Must: true}}}
	for id, parent := range map[string]string{"ns/a": "ns/root", "ns/b": "ns/sub", "ns/c": "ns/sub"} {
		s.PutObject(gang.Object{Gang: id, Parent: parent, Settings: rack})
		s.Put(podOf(id))
	}
	s.PutComposite("ns/root", gang.Composite{Exists: true, Least: 2, Whole: true})
	effects := s.PutComposite("ns/sub", gang.Composite{Exists: true, Parent: "ns/root", Least: 2})
	all := []string{"ns/a", "ns/b", "ns/c"}
	if !slices.Equal(effects.Opened, all) || !slices.Equal(slices.Sorted(slices.Values(effects.Bonds)), all) {
		t.Errorf("the last object opens %v, and changes the bonds of %v, want %v", effects.Opened, effects.Bonds, all)
	}
	plan, refused := s.Begin("ns/b")
	if plan == nil || !slices.Equal(plan.Members, all) || len(plan.DomainRequests) != len(all) { // a rack for each
		t.Fatalf("the plan is %+v, %v, want the members of %v", plan, refused, all)
	}
	if got := s.Conclude(plan.Members, all, gang.Failure{}, time.Unix(2, 0)); !slices.Equal(got.Allow, all) {
		t.Errorf("%v may be bound, want %v", got.Allow, all)
	}
	none := func(string) bool { return false }
	if units := s.Units([]string{"ns/b"}, none); len(units) != 1 || !slices.Equal(units[0], all) {
		t.Errorf("with one are evicted %v, want %v", units, all)
	}
	if now := s.Bond("ns/c"); !now.Whole || now.Group != "ns/a,ns/b,ns/c" {
		t.Errorf("one of them has the bond %+v", now)
	}
}

// TestAPodThatChangesNothingAllocatesLittle, although a change may concern all gangs of a tree.
func TestAPodThatChangesNothingAllocatesLittle(t *testing.T) {
	s := gang.New(gang.Settings{})
	s.Put(podOf("ns/a"))
	s.PutObject(gang.Object{Gang: "ns/a"})
	const most = 4 // 3 without the race detector
	if n := testing.AllocsPerRun(100, func() { s.Put(podOf("ns/a")) }); n > most {
		t.Errorf("%v allocations, want %d at most", n, most)
	}
}

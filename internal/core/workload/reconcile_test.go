package workload

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestObjectsOfGangs has what becomes of the objects of a RayCluster r while it changes.
func TestObjectsOfGangs(t *testing.T) {
	t.Parallel()
	joined := func(roles ...string) (gangs []Gang) {
		for _, r := range roles {
			gangs = append(gangs, Gang{Name: r, Min: 2, Members: 2, Joined: roles})
		}
		if len(roles) == 1 {
			gangs[0].Joined = nil
		}
		return gangs
	}
	made := func(pods, placed int, joined ...string) Made { return Made{joined, pods, placed} }
	for name, c := range map[string]struct {
		plan   Plan
		made   map[string]Made
		want   map[string]string // which objects start together
		unused []string
	}{
		"nothing was made": {
			Plan{Gangs: joined("head", "a")}, nil, map[string]string{"head": "[head a] 2", "a": "[head a] 2"}, nil,
		},
		"only one of two was made": {
			Plan{Gangs: joined("head", "a")},
			map[string]Made{"head": made(1, 0, "head", "a")},
			map[string]string{"head": "[head a] 2", "a": "[head a] 2"},
			nil,
		},
		"a role that comes before the others have started": {
			Plan{Gangs: joined("head", "a", "b")},
			map[string]Made{"head": made(1, 0, "head", "a"), "a": made(2, 0, "head", "a")},
			map[string]string{"head": "[head a b] 2", "a": "[head a b] 2", "b": "[head a b] 2"},
			nil,
		},
		"a role that comes after they have started": {
			Plan{Gangs: joined("head", "a", "b")},
			map[string]Made{"head": made(1, 1, "head", "a"), "a": made(2, 2, "head", "a")},
			map[string]string{"head": "[head a] 2", "a": "[head a] 2", "b": "[] 2"},
			nil,
		},
		"it remains alone": {
			Plan{Gangs: joined("head", "a", "b")},
			map[string]Made{
				"head": made(1, 1, "head", "a"), "a": made(2, 2, "head", "a"), "b": made(2, 2),
			},
			map[string]string{"head": "[head a] 2", "a": "[head a] 2", "b": "[] 2"},
			nil,
		},
		"it joins when all of them start again": {
			Plan{Gangs: joined("head", "a", "b")},
			map[string]Made{"head": made(0, 0, "head", "a"), "a": made(0, 0, "head", "a"), "b": made(0, 0)},
			map[string]string{"head": "[head a b] 2", "a": "[head a b] 2", "b": "[head a b] 2"},
			nil,
		},
		"a role that goes": {
			Plan{Gangs: joined("head", "a")},
			map[string]Made{
				"head": made(1, 1, "head", "a", "b"), "a": made(2, 2, "head", "a", "b"),
				"b": made(0, 0, "head", "a", "b"),
			},
			map[string]string{"head": "[head a] 2", "a": "[head a] 2"},
			[]string{"b"},
		},
		"a role that goes with pods left": {
			Plan{Gangs: joined("head", "a")},
			map[string]Made{
				"head": made(1, 1, "head", "a", "b"), "a": made(2, 2, "head", "a", "b"),
				"b": made(1, 0, "head", "a", "b"),
			},
			map[string]string{"head": "[head a] 2", "a": "[head a] 2", "b": "[] 1"},
			nil,
		},
		"one of two goes": {
			Plan{Gangs: joined("head")},
			map[string]Made{"head": made(1, 1, "head", "a"), "a": made(0, 0, "head", "a")},
			map[string]string{"head": "[] 2"},
			[]string{"a"},
		},
		"no gangs any more": {
			Plan{},
			map[string]Made{"head": made(1, 1, "head", "a"), "a": made(0, 0, "head", "a")},
			map[string]string{"head": "[] 1"},
			[]string{"a"},
		},
		"a suspended object": {
			Plan{Suspended: true}, map[string]Made{"head": made(0, 0, "head", "a")}, map[string]string{}, nil,
		},
	} {
		names := map[string]string{}
		for _, g := range c.plan.Gangs {
			names[g.Name] = g.Name
		}
		want, unused := c.plan.Reconcile(names, c.made)
		got := map[string]string{}
		for name, g := range want {
			got[name] = fmt.Sprint(g.Joined, " ", g.Min)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || !slices.Equal(unused, c.unused) {
			t.Errorf("%s: unused %v, want %v (-want +got):\n%s", name, unused, c.unused, diff)
		}
	}
}

// TestObjectsAlwaysListEachOther: whatever was made, what starts together lists each other, and only that.
func TestObjectsAlwaysListEachOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := []string{"a", "b", "c", "d"}
		var roles []string
		for _, name := range all {
			if rapid.Bool().Draw(t, "needs "+name) {
				roles = append(roles, name)
			}
		}
		var p Plan
		names := map[string]string{}
		for _, role := range roles {
			g := Gang{Name: role, Min: 1, Members: 1}
			if len(roles) > 1 {
				g.Joined = roles
			}
			p.Gangs, names[role] = append(p.Gangs, g), "x-"+role
		}
		made := map[string]Made{}
		for _, name := range all {
			if !rapid.Bool().Draw(t, "made "+name) {
				continue
			}
			m := Made{Pods: rapid.IntRange(0, 2).Draw(t, "pods")}
			m.Placed = rapid.IntRange(0, m.Pods).Draw(t, "placed")
			if rapid.Bool().Draw(t, "joined") {
				m.Joined = []string{"x-" + name, "x-other"}
			}
			made["x-"+name] = m
		}
		want, unused := p.Reconcile(names, made)
		for name, g := range want {
			for _, other := range g.Joined {
				if !slices.Equal(want[other].Joined, g.Joined) {
					t.Fatalf("%s lists %v, %s lists %v", name, g.Joined, other, want[other].Joined)
				}
			}
			if len(g.Joined) == 1 || len(g.Joined) > 1 && !slices.Contains(g.Joined, name) || g.Min < 1 {
				t.Fatalf("%s is %+v", name, g)
			}
		}
		for name, m := range made {
			_, kept := want[name]
			if kept == slices.Contains(unused, name) || !kept && m.Pods > 0 {
				t.Fatalf("%s with %d pods: kept %t, unused %v", name, m.Pods, kept, unused)
			}
		}
		// A second call changes nothing.
		for name, g := range want {
			m := made[name]
			m.Joined = g.Joined
			made[name] = m
		}
		for _, name := range unused {
			delete(made, name)
		}
		if again, _ := p.Reconcile(names, made); !cmp.Equal(want, again) {
			t.Fatalf("the second call: %s", cmp.Diff(want, again))
		}
	})
}

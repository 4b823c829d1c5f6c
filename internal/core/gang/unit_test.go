package gang_test

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// TestUnitsAreTheFewestPodsThatMayGoWithTheVictims compares with all sets of pods: each gang keeps what it needs, or no
// pod remains of those that start together.
func TestUnitsAreTheFewestPodsThatMayGoWithTheVictims(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := gang.New(gang.Settings{})
		ids := []string{"ns/a", "ns/b", "ns/c"}
		settings := map[string]gang.Settings{}
		joint := rapid.Bool().Draw(t, "a and b start together")
		for _, id := range ids {
			now := gang.Settings{Min: rapid.IntRange(1, 3).Draw(t, "minimum")}
			if joint && id != "ns/c" {
				now.Group = ids[:2]
			}
			settings[id] = now
			if rapid.IntRange(0, 2).Draw(t, "object") == 0 {
				s.PutObject(gang.Object{
					Gang: id, Settings: now, Whole: rapid.Bool().Draw(t, "whole"), Plain: rapid.Bool().Draw(t, "plain"),
				})
			}
		}
		var pods, gangs []string
		for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
			id := rapid.SampledFrom(ids).Draw(t, "gang")
			pods, gangs = append(pods, fmt.Sprint("p", i)), append(gangs, id)
			s.Put(gang.Pod{UID: pods[i], Namespace: "ns", Name: pods[i], Gang: id, Node: "n", Settings: settings[id]})
		}
		groupOf := func(id string) string {
			if group := s.Bond(id).Group; group != "" {
				return group
			}
			return id
		}
		mayGo := func(set int) bool {
			for i, id := range gangs {
				if set>>i&1 == 0 {
					continue
				}
				left, others := 0, 0
				for k, other := range gangs {
					if set>>k&1 == 0 && other == id {
						left++
					}
					if set>>k&1 == 0 && groupOf(other) == groupOf(id) {
						others++
					}
				}
				b := s.Bond(id)
				if others > 0 && (b.Whole || !b.Plain && left < b.Least) {
					return false
				}
			}
			return true
		}
		asked := rapid.IntRange(1, 1<<len(pods)-1).Draw(t, "victims")
		fewest := 1<<len(pods) - 1
		for set := range 1 << len(pods) {
			if set&asked == asked && bits.OnesCount(uint(set)) < bits.OnesCount(uint(fewest)) && mayGo(set) {
				fewest = set
			}
		}
		namesOf := func(set int) (names []string) {
			for i, name := range pods {
				if set>>i&1 != 0 {
					names = append(names, name)
				}
			}
			return names
		}
		got := slices.Concat(s.Units(namesOf(asked), func(string) bool { return false })...)
		slices.Sort(got)
		if want := namesOf(fewest); !slices.Equal(got, want) {
			t.Fatalf("pods of %v, victims %v: %v go, want %v", gangs, namesOf(asked), got, want)
		}
	})
}

// TestABondThatBecomesNonStrictIsNotReported: a gang joins a Strict one, which becomes NonStrict: both bonds change.
func TestAGroupIsSplitIfAGangLosesItsMinimumAndPodsAreLeft(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	put := func(uid, id, node string, needed int, group ...string) {
		s.Put(gang.Pod{
			UID: uid, Namespace: "ns", Name: uid, Gang: id, Node: node,
			Settings: gang.Settings{Min: needed, Group: group},
		})
	}
	for _, uid := range []string{"a1", "a2", "a3"} {
		put(uid, "ns/a", "n", 2)
	}
	put("b1", "ns/b", "n", 3) // it has lost its minimum before
	put("b2", "ns/b", "n", 3)
	put("c1", "ns/c", "n", 1, "ns/c", "ns/d")
	put("d1", "ns/d", "n", 1, "ns/c", "ns/d")
	for name, c := range map[string]struct {
		gone string
		want bool
	}{
		"one above the minimum":       {"a1", false},
		"one of the minimum":          {"a1 a2", true},
		"all":                         {"a1 a2 a3", false},
		"one of too few":              {"b1", true},
		"all of one gang of a group":  {"c1", true},
		"all of all gangs of a group": {"c1 d1", false},
		"a pod that is in no gang":    {"x", false},
	} {
		gone := strings.Fields(c.gone)
		if got := s.Splits(gone, func(uid string) bool { return slices.Contains(gone, uid) }); got != c.want {
			t.Errorf("%s: splits %t, want %t", name, got, c.want)
		}
	}
	if s.Splits([]string{"b1"}, func(string) bool { return false }) {
		t.Error("a gang with too few pods is split by none")
	}
}

func TestABondThatBecomesNonStrictIsNotReported(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	put := func(id string, mode gang.Mode, group ...string) gang.Effects {
		return s.Put(gang.Pod{
			UID: id, Namespace: "ns", Name: "p", Gang: id, Settings: gang.Settings{Mode: mode, Group: group},
		})
	}
	put("ns/a", gang.NonStrict, "ns/a", "ns/b")
	put("ns/b", gang.Strict)
	put("ns/b", gang.Strict, "ns/a", "ns/b")
	got := put("ns/b", gang.NonStrict, "ns/a", "ns/b").Bonds
	if !slices.Contains(got, "ns/a") || !s.Bond("ns/a").NonStrict {
		t.Errorf("reported are the bonds of %v, and that of ns/a is %+v; want that it is reported and NonStrict", got,
			s.Bond("ns/a"))
	}
}

// TestHowManyMembersAGangSparesAndLacks of three that it needs.
func TestHowManyMembersAGangSparesAndLacks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gang.Bond
		holding               int
		spares, lacks, atOnce int
	}{
		"fewer than it needs":           {gang.Bond{Least: 3}, 1, 0, 2, 2},
		"as many":                       {gang.Bond{Least: 3}, 3, 0, 0, 0},
		"more":                          {gang.Bond{Least: 3}, 5, 2, 0, 0},
		"its members start one by one":  {gang.Bond{Least: 3, NonStrict: true}, 1, 0, 2, 0},
		"it is evicted whole":           {gang.Bond{Least: 3, Whole: true}, 5, 0, 0, 0},
		"nothing is known of it":        {gang.Bond{}, 5, 0, 0, 0},
		"its PodGroup makes it no gang": {gang.Bond{Least: 3, Plain: true}, 1, 1, 0, 0},
	} {
		spares, lacks, atOnce := c.Spares(c.holding), c.Lacks(c.holding), c.AtOnce(c.holding)
		if spares != c.spares || lacks != c.lacks || atOnce != c.atOnce {
			t.Errorf("%s: it spares %d, lacks %d and lacks %d at once, want %d, %d and %d", name, spares, lacks, atOnce,
				c.spares, c.lacks, c.atOnce)
		}
	}
}

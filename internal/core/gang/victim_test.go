package gang_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
)

// TestVictimsOfAGangGoWhole compares with the rule: a member above its gang's minimum goes alone, unless the PodGroup
// wants it whole, else all that its group has goes with it.
func TestVictimsOfAGangGoWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := gang.New(gang.Settings{})
		group := rapid.SampledFrom([][]string{nil, {"ns/a", "ns/b"}}).Draw(t, "a and b start together")
		least, groupOf := map[string]int{}, map[string]string{"ns/a": "ns/a", "ns/b": "ns/b", "other/c": "other/c"}
		if group != nil {
			groupOf["ns/b"] = "ns/a"
		}
		for _, id := range names {
			least[id] = rapid.IntRange(1, 4).Draw(t, "minimum")
		}
		whole := rapid.SampledFrom(append([]string{""}, names...)).Draw(t, "goes whole")
		if whole != "" {
			o := gang.Object{Gang: whole, Whole: true, Plain: rapid.Bool().Draw(t, "plain")}
			if s.PutObject(o); o.Plain {
				least[whole] = 0
			}
			if o.Plain && whole != "other/c" {
				groupOf["ns/b"] = "ns/b" // one of the two lists no other
			}
		}
		gangOf, gone, holders := map[string]string{}, map[string]bool{}, map[string][]string{}
		var victims, want []string
		for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
			uid, id := fmt.Sprintf("u%02d", i), rapid.SampledFrom(names).Draw(t, "gang")
			p := gang.Pod{UID: uid, Namespace: "ns", Name: uid, Gang: id, Settings: gang.Settings{Min: least[id]}}
			if id != "other/c" {
				p.Settings.Group = group
			}
			if rapid.Bool().Draw(t, "bound") {
				p.Node = "n"
			}
			s.Put(p)
			gangOf[uid] = id
			switch {
			case p.Node == "":
			case rapid.IntRange(0, 4).Draw(t, "gone") == 0:
				gone[uid] = true
			default:
				holders[id] = append(holders[id], uid)
				if rapid.Bool().Draw(t, "victim") {
					victims = append(victims, uid)
				}
			}
		}
		victims = append(victims, "unknown")
		if countOf(gangOf, "ns/a") == 0 || countOf(gangOf, "ns/b") == 0 {
			groupOf["ns/b"] = "ns/b" // one of the two does not exist
		}
		broken, units := map[string]bool{}, map[string]bool{}
		for _, id := range names {
			taken := 0
			for _, uid := range holders[id] {
				if slices.Contains(victims, uid) {
					taken++
				}
			}
			if taken > 0 && (len(holders[id])-taken < least[id] || id == whole) {
				broken[groupOf[id]] = true
			}
		}
		for _, uid := range victims {
			if id := gangOf[uid]; id == "" || !broken[groupOf[id]] {
				want = append(want, uid)
				units[uid] = true
			}
		}
		for key := range broken {
			var unit []string
			for _, id := range names {
				if groupOf[id] == key {
					unit = append(unit, holders[id]...)
				}
			}
			slices.Sort(unit)
			want = append(want, unit...)
			units[fmt.Sprint(unit)] = true
		}
		var got []string
		for _, u := range s.Units(victims, func(uid string) bool { return gone[uid] }) {
			got = append(got, u...)
			if key := fmt.Sprint(u); !units[key] && !(len(u) == 1 && units[u[0]]) {
				t.Errorf("unit %v is none of %v", u, units)
			}
		}
		taken := maps.Clone(gone)
		for _, uid := range got {
			taken[uid] = true
		}
		isGone, isTaken := func(uid string) bool { return gone[uid] }, func(uid string) bool { return taken[uid] }
		for _, uid := range got { // what goes with all that must go splits no gang, apart from those that were split
			if s.Splits([]string{uid}, isTaken) && !s.Splits([]string{uid}, isGone) {
				t.Errorf("victims %v, gone %v: with %v gone the gang of %s is split", victims, gone, got, uid)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("victims %v, gone %v: got %v, want %v", victims, gone, got, want)
		}
	})
}

func countOf(gangOf map[string]string, id string) (n int) {
	for _, o := range gangOf {
		if o == id {
			n++
		}
	}
	return n
}

func TestTheSmallestLossComesFirst(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	ordered := []gang.Loss{ // each differs from the one before by one rule
		{Violations: 0, Highest: 1, Units: 1, Sum: 1},
		{Violations: 0, Highest: 1, Units: 1, Sum: 1, Start: at(9)},
		{Violations: 0, Highest: 1, Units: 1, Sum: 1, Start: at(8)},
		{Violations: 0, Highest: 1, Units: 1, Sum: 2, Start: at(9)},
		{Violations: 0, Highest: 1, Units: 2, Sum: 1, Start: at(9)},
		{Violations: 0, Highest: 2, Units: 1, Sum: 1, Start: at(9)},
		{Violations: 1, Highest: 1, Units: 1, Sum: 1, Start: at(9)},
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := a.Compare(b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%+v against %+v: %d", a, b, got)
			}
		}
	}
	var l gang.Loss
	l.Add(gang.Victim{Priority: -5})
	l.Add(gang.Victim{Priority: -5, Start: at(3)})
	l.Add(gang.Victim{Priority: -7, Start: at(1)})
	l.Add(gang.Victim{Priority: -5, Start: at(2)})
	if l.Highest != -5 || !l.Start.Equal(at(2)) || l.Sum <= 0 {
		t.Errorf("pods of priorities -5, -5, -7 and -5: %+v", l)
	}
}

// TestTheOrderOfVictimsIsOne: of any pods, in any order, the one that is spared longest is the one that Loss counts,
// nothing is evicted before a pod of lower priority, nor before a later or no start at the same priority.
func TestTheOrderOfVictimsIsOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pods := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) gang.Victim {
			v := gang.Victim{Priority: rapid.Int32Range(-1, 1).Draw(t, "priority")}
			if s := rapid.Int64Range(-2, 3).Draw(t, "start"); s < 3 {
				v.Start = time.Unix(s, 0)
			}
			return v
		}), 1, 8).Draw(t, "pods")
		var loss gang.Loss
		for _, v := range pods {
			loss.Add(v)
		}
		sorted := slices.SortedFunc(slices.Values(pods), gang.Victim.Compare)
		if last := sorted[len(sorted)-1]; last != (gang.Victim{Priority: loss.Highest, Start: loss.Start}) {
			t.Errorf("%v is evicted last, and the loss is %+v", last, loss)
		}
		for i, a := range sorted {
			for _, b := range sorted[i:] {
				later := a.Start.IsZero() || !b.Start.IsZero() && !a.Start.Before(b.Start)
				if a.Priority > b.Priority || a.Priority == b.Priority && !later {
					t.Errorf("%v is evicted before %v", a, b)
				}
				if a.Compare(b) != -b.Compare(a) || (a.Compare(b) == 0) != (a == b) {
					t.Errorf("%v against %v: %d and %d", a, b, a.Compare(b), b.Compare(a))
				}
			}
		}
	})
}

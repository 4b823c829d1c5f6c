package quota

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/gang"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const (
	cpuName = "cpu"
	memory  = "memory"
)

// world is what an account was given last, kept in the simplest way.
type world struct {
	config   Config
	rules    Rules
	specs    map[string]Spec
	pods     map[string]Pod
	reserved map[string]bool
	nodes    amount.List
}

func newWorld(c Config, r Rules) *world {
	return &world{config: c, rules: r, specs: map[string]Spec{}, pods: map[string]Pod{}, reserved: map[string]bool{}}
}

// rebuilt is an account that is given everything at once, in an order that the seed shuffles: pods before their quotas,
// or after them.
func (w *world) rebuilt(seed uint64) *Account {
	a := NewAccount(w.config, w.rules)
	var steps []func()
	steps = append(steps, func() { a.SetNodes(w.nodes) })
	for _, name := range slices.Sorted(maps.Keys(w.specs)) {
		steps = append(steps, func() { a.Set(w.specs[name]) })
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		steps = append(steps, func() { a.Put(w.pods[uid]) })
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		step()
	}
	for uid := range w.reserved {
		if e := a.pods[uid]; e != nil && e.state == Pending {
			a.turn(e, Reserved)
		}
	}
	return a
}

// quotaOf is the rules of which quota a pod belongs to, read from the specs one by one.
func (w *world) quotaOf(p Pod) string {
	names := slices.Sorted(maps.Keys(w.specs))
	free, bound := Default, false
	if _, exists := w.specs[p.Bound]; exists && p.Node != "" && !isReserved(p.Bound) {
		free, bound = p.Bound, true
	}
	if p.Quota != "" {
		_, exists := w.specs[p.Quota]
		if exists && !isReserved(p.Quota) || (p.Quota == System || p.Quota == Default) && !bound {
			return p.Quota
		}
		return free
	}
	var own, listing []string
	for _, name := range names {
		if w.specs[name].Namespace == p.Namespace && !isReserved(name) {
			own = append(own, name)
		}
		if slices.Contains(w.specs[name].Namespaces, p.Namespace) && !isReserved(name) {
			listing = append(listing, name)
		}
	}
	switch {
	case slices.Contains(own, p.Namespace):
		return p.Namespace
	case len(own) == 1:
		if s := w.specs[own[0]]; !s.IsParent && (s.Parent == "" || s.Parent == Root) {
			return own[0]
		}
	}
	if len(listing) > 0 {
		return listing[0]
	}
	return free
}

var (
	quotaNames = []string{"a", "b", "c", "d", "n0", "n1", Default, System, Root}
	namespaces = []string{"n0", "n1", "n2"}
	labels     = []string{"", "", "", "a", "b", "c", "d", "absent", System, Root}
)

func drawAmounts(t *rapid.T, label string, most int64) amount.List {
	amounts := amount.List{}
	for _, d := range []string{cpuName, memory} {
		if n := rapid.Int64Range(-1, most).Draw(t, label+" "+d); n >= 0 {
			amounts[d] = n
		}
	}
	return amounts
}

func drawSpec(t *rapid.T) Spec {
	return Spec{
		Name:      rapid.SampledFrom(quotaNames).Draw(t, "quota"),
		Namespace: rapid.SampledFrom(namespaces).Draw(t, "home"),
		Parent:    rapid.SampledFrom([]string{"", "", Root, "a", "b", "n1", "absent"}).Draw(t, "parent"),
		IsParent:  rapid.Bool().Draw(t, "is parent"), IsRoot: rapid.IntRange(0, 5).Draw(t, "is root") == 0,
		KeepsMin:   rapid.Bool().Draw(t, "keeps"),
		Namespaces: rapid.SliceOfN(rapid.SampledFrom(namespaces), 0, 2).Draw(t, "list"),
		Min:        drawAmounts(t, "min", 20), Max: drawAmounts(t, "max", 60), Total: drawAmounts(t, "total", 60),
	}
}

func drawPod(t *rapid.T, uid string) Pod {
	p := Pod{
		UID: uid, Name: uid, Namespace: rapid.SampledFrom(namespaces).Draw(t, "namespace"),
		Quota:          rapid.SampledFrom(labels).Draw(t, "label"),
		Bound:          rapid.SampledFrom(labels).Draw(t, "record"),
		Amounts:        drawAmounts(t, "pod", 15),
		NonPreemptible: rapid.IntRange(0, 3).Draw(t, "firm") == 0,
		Priority:       rapid.Int32Range(0, 3).Draw(t, "priority"),
		Gang:           rapid.SampledFrom([]string{"", "g", "h"}).Draw(t, "gang"),
		Leaving:        rapid.Bool().Draw(t, "leaving"),
	}
	if rapid.IntRange(0, 2).Draw(t, "bound") == 0 {
		p.Node = "n"
	}
	return p
}

// eventsOfAHistory times the 100 checks of a plain run are 10,000 events.
const eventsOfAHistory = 100

// drawMembers returns a gang, or a single pod, in any order.
func drawMembers(t *rapid.T) []string {
	first := rapid.IntRange(0, 9).Draw(t, "first member")
	var uids []string
	for i := range rapid.IntRange(1, 4).Draw(t, "members") {
		uids = append(uids, fmt.Sprint("p", (first+3*i)%10))
	}
	return uids
}

// alike reports whether two accounts have the same quotas at the same places, with the same sums, runtimes and mins,
// and the same pods in the same states. A Hash says so too, and takes ten times as long.
func alike(a, b *Account) bool {
	for _, name := range append([]string{Root, System, Default}, quotaNames...) {
		if p, q := a.forest.Find(name), b.forest.Find(name); (p == nil) != (q == nil) ||
			p != nil && !sameQuota(a.forest, b.forest, p, q) {
			return false
		}
	}
	return maps.EqualFunc(a.pods, b.pods, func(x, y *entry) bool {
		return x.state == y.state && x.group.quota.Name() == y.group.quota.Name() && x.group.missing == y.group.missing
	})
}

func sameQuota(f, g *Forest, p, q *Quota) bool {
	if p.misplaced != q.misplaced || (p.parent == nil) != (q.parent == nil) ||
		p.parent != nil && p.parent.Name() != q.parent.Name() {
		return false
	}
	for _, dimension := range []string{cpuName, memory} {
		i, j := f.Dimension(dimension), g.Dimension(dimension)
		var x, y cell
		x.runtime, x.named = f.Runtime(p, i) // divides what is stale
		y.runtime, y.named = g.Runtime(q, j)
		if x.runtime != y.runtime || x.named != y.named {
			return false
		}
		if int(i) < len(p.cells) {
			x = p.cells[i]
		}
		if int(j) < len(q.cells) {
			y = q.cells[j]
		}
		if x.sums != y.sums || x.limits != y.limits || x.named && p.parent != nil && x.effective != y.effective {
			return false
		}
	}
	return true
}

// TestAnyOrderOfEventsEqualsARebuild is U1 to U4 and U7, and the rules of which quota a pod belongs to: after each of
// 10,000 random events, the account equals one that is given the last state of all objects at once. Quotas come,
// change, move and go under their pods; pods come, are resized, bound and deleted; gangs reserve together and give back
// together; nodes change; everything is said twice.
//
// Q15: a stale subtraction counts too little as used.
func TestAnyOrderOfEventsEqualsARebuild(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Config{ScaleMin: rapid.Bool().Draw(t, "scale")}, Rules{})
		a := NewAccount(w.config, w.rules)
		for i := range eventsOfAHistory {
			uid := fmt.Sprint("p", rapid.IntRange(0, 9).Draw(t, "pod"))
			switch rapid.IntRange(0, 10).Draw(t, "event") {
			case 0, 1:
				s := drawSpec(t)
				w.specs[s.Name] = s
				a.Set(s)
				a.Set(s)
			case 2:
				name := rapid.SampledFrom(quotaNames).Draw(t, "removed quota")
				delete(w.specs, name)
				a.Unset(name)
				a.Unset(name)
			case 3:
				w.nodes = drawAmounts(t, "nodes", 100)
				a.SetNodes(w.nodes)
			case 4:
				uids := drawMembers(t)
				if a.Reserve(slices.Concat(uids, uids)...) == nil {
					for _, uid := range uids {
						if p, known := w.pods[uid]; known && p.Node == "" {
							w.reserved[uid] = true
						}
					}
					if x := a.Reserve(uids...); x != nil {
						t.Fatalf("pods that are reserved are refused: %v", x)
					}
				}
			case 5: // a bind that fails
				uids := drawMembers(t)
				for _, uid := range uids {
					delete(w.reserved, uid)
				}
				a.Release(uids...)
				a.Release(uids...)
			case 6:
				delete(w.pods, uid)
				delete(w.reserved, uid)
				a.Remove(uid)
				a.Remove(uid)
			case 7: // a resize
				if p, known := w.pods[uid]; known {
					p.Amounts = drawAmounts(t, "resized", 15)
					w.pods[uid] = p
					a.Put(p)
					a.Put(p)
				}
			default:
				p := drawPod(t, uid)
				if w.pods[uid].Node != "" || p.Node != "" {
					delete(w.reserved, uid)
				}
				w.pods[uid] = p
				a.Put(p)
				a.Put(p)
			}
			b := w.rebuilt(uint64(i))
			if !alike(a, b) || i%10 == 9 && a.Hash() != b.Hash() {
				diff := cmp.Diff(b.Forest().Reports(), a.Forest().Reports())
				t.Fatalf("after event %d (-rebuilt +live):\n%s", i, diff)
			}
			if names := a.Miscounted(); names != nil {
				t.Fatalf("after event %d the use of %q is not that of their pods", i, names)
			}
			if i%10 == 9 && a.Rebuilt().Hash() != a.Hash() {
				t.Fatalf("after event %d an account of the same objects and reservations differs", i)
			}
			for uid, p := range w.pods {
				if m, known := a.Find(uid); !known || m.Quota.Name() != w.quotaOf(p) {
					t.Fatalf("pod %+v counts with %q, want %q", p, m.Quota.Name(), w.quotaOf(p))
				}
			}
		}
	})
}

// TestPodsFollowTheQuotaThatTheyName: what a pod asks for and holds goes with it in one step, through its quota's
// deletion and recreation.
func TestPodsFollowTheQuotaThatTheyName(t *testing.T) {
	t.Parallel()
	a := NewAccount(Config{}, Rules{})
	a.SetNodes(amount.List{cpuName: 100})
	a.Put(Pod{
		UID: "p", Namespace: "x", Quota: "team", Amounts: amount.List{cpuName: 10}, Node: "n", NonPreemptible: true,
	})
	sums := func(name string) [4]int64 {
		q, d := a.Forest().Find(name), a.Forest().Dimension(cpuName)
		return [4]int64{
			q.Amount(Request, d), q.Amount(Used, d),
			q.Amount(NonPreemptibleRequest, d), q.Amount(NonPreemptibleUsed, d),
		}
	}
	all, none := [4]int64{10, 10, 10, 10}, [4]int64{}
	if got := sums(Default); got != all {
		t.Errorf("without its quota the pod counts %v with Default, want %v", got, all)
	}
	for range 2 {
		a.Set(Spec{Name: "team", Max: amount.List{cpuName: 50}})
		if got, left := sums("team"), sums(Default); got != all || left != none {
			t.Errorf("with its quota the pod counts %v there and %v with Default, want %v and none", got, left, all)
		}
		a.Unset("team")
		if got := sums(Default); got != all {
			t.Errorf("after the deletion the pod counts %v with Default, want %v", got, all)
		}
	}
}

// TestAPodRunsAsLongAsItsQuotaSays: or the closest quota above that says something.
func TestAPodRunsAsLongAsItsQuotaSays(t *testing.T) {
	t.Parallel()
	a := NewAccount(Config{}, Rules{})
	a.Set(Spec{Name: "org", IsParent: true, RunTime: time.Hour})
	a.Set(Spec{Name: "own", Parent: "org", RunTime: time.Minute})
	a.Set(Spec{Name: "none", Parent: "org"})
	for quota, want := range map[string]time.Duration{"own": time.Minute, "none": time.Hour, "": 0, "missing": 0} {
		a.Put(Pod{UID: "p", Namespace: "x", Quota: quota})
		if got := a.RunTime("p"); got != want {
			t.Errorf("quota %q: got %s, want %s", quota, got, want)
		}
	}
	if got := a.RunTime("other"); got != 0 {
		t.Errorf("a pod that is not known: got %s", got)
	}
}

func TestMembersOfAQuota(t *testing.T) {
	t.Parallel()
	a := NewAccount(Config{}, Rules{})
	a.Set(Spec{Name: "team", Namespace: "team", Max: amount.List{cpuName: 10}})
	a.Put(Pod{UID: "2", Namespace: "team", Name: "b"})
	a.Put(Pod{UID: "1", Namespace: "team", Name: "a", Node: "n"})
	a.Put(Pod{UID: "3", Namespace: "zoo", Name: "c", Quota: "team"})
	a.Put(Pod{UID: "4", Namespace: "zoo", Name: "d"})
	a.Reserve("2")
	var got []string
	for _, m := range a.Members(a.Forest().Find("team")) {
		got = append(got, fmt.Sprint(m.Name, m.State))
	}
	if diff := cmp.Diff([]string{"a2", "b1", "c0"}, got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if got := a.Namespaces(); !slices.Equal(got, []string{"team"}) {
		t.Errorf("namespaces with a quota: %v, want team alone", got)
	}
}

func TestGangsCountMembersOfAllQuotas(t *testing.T) {
	t.Parallel()
	a := NewAccount(Config{}, Rules{})
	a.Set(Spec{Name: "team", Namespace: "team", Max: amount.List{cpuName: 10}})
	for i, p := range []Pod{
		{Gang: "g", Node: "n", Quota: "team"},
		{Gang: "g", Node: "n"},
		{Gang: "g", Node: "n", Leaving: true},
		{Gang: "g"},
		{Gang: "silent", Node: "n"},
		{Gang: "silent", Node: "n"},
		{Node: "n"},
	} {
		p.UID = fmt.Sprint(i)
		a.Put(p)
	}
	a.Reserve("3")
	known := gang.Bond{Least: 3}
	a.SetGang("g", known)
	want := map[string]*Gang{"g": {Bond: known, Bound: 3}, "silent": {Bound: 2}}
	if diff := cmp.Diff(want, a.Gangs()); diff != "" {
		t.Errorf("gangs (-want +got):\n%s", diff)
	}
	a.SetGang("g", gang.Bond{Least: 2, Whole: true, Group: "g,silent"})
	a.SetGang("silent", gang.Bond{Least: 1, Group: "g,silent"})
	got := a.Gangs()
	g, silent := got["g"], got["silent"]
	if !slices.Equal(g.Group, []*Gang{g, silent}) || !slices.Equal(silent.Group, g.Group) {
		t.Errorf("of a gang that goes whole, and one that starts with it: %+v, %+v", g, silent)
	}
	a.SetGang("silent", gang.Bond{Plain: true})
	if got := a.Gangs(); got["g"].Group != nil || got["silent"].Group != nil {
		t.Errorf("gangs that start alone are a group: %+v", got)
	}
}

// TestACountThatIsWrongIsFoundAndEnds takes more from a quota than its pods hold: the quota and those above it are
// named, and the account that is computed anew counts right.
//
// Q1: used is above max or wrong, and remains so. Q23: a counter below 0 counts too much from then on.
func TestACountThatIsWrongIsFoundAndEnds(t *testing.T) {
	t.Parallel()
	a := NewAccount(Config{DefaultMax: amount.List{cpuName: 7}}, Rules{})
	a.SetNodes(amount.List{cpuName: 100})
	a.Set(Spec{Name: "org", IsParent: true, Max: amount.List{cpuName: 100}})
	a.Set(Spec{Name: "team", Parent: "org", Max: amount.List{cpuName: 100}})
	a.SetGang("x/g", gang.Bond{Least: 2})
	for uid, node := range map[string]string{"bound": "n", "reserved": "", "pending": ""} {
		a.Put(Pod{UID: uid, Namespace: "x", Quota: "team", Gang: "x/g", Amounts: amount.List{cpuName: 10}, Node: node})
	}
	a.turn(a.pods["reserved"], Reserved)
	want, f := a.Hash(), a.Forest()
	f.Subtract(f.Find("team"), Used, f.Vector(amount.List{cpuName: 15}))
	if diff := cmp.Diff([]string{Root, "org", "team"}, a.Miscounted()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b := a.Rebuilt()
	if names := b.Miscounted(); names != nil || b.Hash() != want {
		t.Errorf("computed anew, %q are wrong: %+v", names, b.Forest().Reports())
	}
	if got, want := b.bonds["x/g"], a.bonds["x/g"]; got != want {
		t.Errorf("the gang is held together by %+v, want %+v", got, want)
	}
}

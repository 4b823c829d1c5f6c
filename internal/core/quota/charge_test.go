package quota

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/gang"
)

var gpuClass = ClassDimension("gpu")

// chargeWorld is two quotas that limit the devices of a class, each with its namespace.
func chargeWorld(most int64) *Account {
	a := NewAccount(Config{ScaleMin: true}, Rules{})
	a.SetNodes(amount.List{cpuName: 100_000})
	for _, name := range []string{"a", "b"} {
		a.Set(Spec{Name: name, Namespace: name, Max: amount.List{gpuClass: most, cpuName: 50_000}})
	}
	return a
}

// TestMappedClasses: devices of classes x and y count as example.com/gpu, beside what pods ask of a device plugin. The
// nodes have one of these, and max alone limits them.
func TestMappedClasses(t *testing.T) {
	t.Parallel()
	const gpu = "example.com/gpu"
	c := Config{ScaleMin: true, Classes: map[string]string{"x": gpu, "y": gpu}}
	other := ClassDimension("z")
	in := amount.List{ClassDimension("x"): 1, ClassDimension("y"): 2, other: 4, "cpu": 8, "x": 16}
	if diff := cmp.Diff(amount.List{gpu: 3, other: 4, "cpu": 8, "x": 16}, c.Named(in)); diff != "" {
		t.Errorf("named (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(in, (&Config{}).Named(in)); diff != "" {
		t.Errorf("without a mapping (-want +got):\n%s", diff)
	}
	a := NewAccount(c, Rules{})
	a.Set(Spec{Name: "a", Namespace: "a", Max: amount.List{gpu: 4}})
	a.SetNodes(amount.List{cpuName: 100_000, gpu: 1})
	a.Put(Pod{UID: "p", Namespace: "a", Name: "p", Amounts: amount.List{gpu: 1}, Claims: []string{"a/c"}})
	a.PutCharge(Charge{ID: "a/c", Amounts: c.Named(amount.List{ClassDimension("x"): 3})})
	if x := a.Reserve("p"); x != nil {
		t.Errorf("4 of 4 devices are refused: %v", x)
	}
	a.Put(Pod{UID: "q", Namespace: "a", Name: "q", Amounts: amount.List{gpu: 1}})
	if x := a.Reserve("q"); x == nil {
		t.Error("a fifth device is granted")
	}
	if bad := a.Miscounted(); len(bad) > 0 {
		t.Errorf("miscounted: %v", bad)
	}
	late := NewAccount(c, Rules{}) // a quota that comes after the nodes, which have none
	late.SetNodes(amount.List{cpuName: 100_000})
	late.Set(Spec{Name: "a", Namespace: "a", Max: amount.List{gpu: 4}})
	late.Put(Pod{UID: "p", Namespace: "a", Name: "p", Amounts: amount.List{gpu: 4}})
	if x := late.Reserve("p"); x != nil {
		t.Errorf("4 of 4 devices are refused by a quota that came late: %v", x)
	}
}

func usedOf(a *Account, q string) int64 { return a.forest.Report(a.forest.Find(q)).Used[gpuClass] }

func TestAClaimIsChargedOnce(t *testing.T) {
	t.Parallel()
	a := chargeWorld(4)
	for _, uid := range []string{"p1", "p2"} {
		a.Put(Pod{UID: uid, Namespace: "a", Name: uid, Amounts: amount.List{cpuName: 1000}, Claims: []string{"a/c"}})
	}
	a.Put(Pod{UID: "p3", Namespace: "a", Name: "p3", Quota: "b", Claims: []string{"a/c"}})
	a.PutCharge(Charge{ID: "a/c", Amounts: amount.List{gpuClass: 3}})
	check := func(when string, inA, inB int64) {
		t.Helper()
		if got := [...]int64{usedOf(a, "a"), usedOf(a, "b")}; got != [...]int64{inA, inB} {
			t.Errorf("%s: quotas a and b use %v devices, want %d and %d", when, got, inA, inB)
		}
		if bad := a.Miscounted(); len(bad) > 0 {
			t.Errorf("%s: miscounted: %v", when, bad)
		}
		if a.Rebuilt().Hash() != a.Hash() {
			t.Errorf("%s: the account rebuilt is another one", when)
		}
	}
	check("pending pods hold nothing", 0, 0)
	if x := a.Reserve("p1", "p2"); x != nil {
		t.Fatalf("two pods with one claim of 3 devices are refused: %v", x)
	}
	check("both pods hold the claim", 3, 0)
	if x := a.Reserve("p3"); x != nil {
		t.Fatalf("a pod whose claim counts already is refused: %v", x)
	}
	check("the claim counts with the first pod", 3, 0)
	a.PutCharge(Charge{ID: "a/c", Amounts: amount.List{gpuClass: 2}, ReservedFor: []string{"p3", "p1"}})
	check("it counts what it was given, with the first pod that it is reserved for", 0, 2)
	a.Remove("p3")
	check("it moves to the next pod", 2, 0)
	bound := amount.List{cpuName: 1000}
	a.Put(Pod{UID: "p1", Namespace: "a", Name: "p1", Node: "n", Amounts: bound, Claims: []string{"a/c"}})
	a.Release("p2")
	check("a bound pod has it", 2, 0)
	a.Remove("p1")
	check("no pod holds it", 0, 0)
	a.Remove("p2")
	a.PutCharge(Charge{ID: "a/c"})
	check("it is gone", 0, 0)
	if len(a.charges) > 0 {
		t.Errorf("charges remain: %v", slices.Collect(maps.Keys(a.charges)))
	}
}

func TestClaimsAreRefusedAboveMax(t *testing.T) {
	t.Parallel()
	a := chargeWorld(4)
	for i, uid := range []string{"p1", "p2", "p3"} {
		a.PutCharge(Charge{ID: "a/" + uid, Amounts: amount.List{gpuClass: int64(i + 1)}})
		a.Put(Pod{UID: uid, Namespace: "a", Name: uid, Claims: []string{"a/" + uid}})
	}
	if x := a.Reserve("p1", "p2"); x != nil {
		t.Fatalf("3 of 4 devices are refused: %v", x)
	}
	want := `quota "a"; ` + gpuClass + `: used 3 + request 3 > runtime 4`
	x := a.Reserve("p3")
	if x == nil || x.String() != want {
		t.Fatalf("got %v, want %s", x, want)
	}
	if a.Grew("p3", x) {
		t.Error("nothing has changed, and more is said to be left")
	}
	if !a.PutCharge(Charge{ID: "a/p3", Amounts: amount.List{gpuClass: 1}}) {
		t.Error("a claim of 1 device instead of 3 is said to count no less")
	}
	if !a.Grew("p3", x) {
		t.Error("the pod's claim asks for less, and it is not asked again")
	}
	if x := a.Reserve("p3"); x != nil {
		t.Errorf("one more of 4 is refused: %v", x)
	}
}

func TestMembersOfAGangAreAdmittedWithTheirClaims(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		max    int64
		shared bool
		admits bool
	}{
		"a claim each, enough":  {max: 6, admits: true},
		"a claim each, too few": {max: 5},
		"one claim, enough":     {max: 2, shared: true, admits: true},
		"one claim, too few":    {max: 1, shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := chargeWorld(test.max)
			a.SetGang("g", gang.Bond{Least: 3})
			var uids []string
			for i := range 3 {
				uid, claim := fmt.Sprint("p", i), "a/c"
				if !test.shared {
					claim += uid
				}
				a.PutCharge(Charge{ID: claim, Amounts: amount.List{gpuClass: 2}})
				a.Put(Pod{UID: uid, Namespace: "a", Name: uid, Gang: "g", Claims: []string{claim}})
				uids = append(uids, uid)
			}
			for _, uid := range uids {
				if x := a.Reserve(uid); (x == nil) != test.admits {
					t.Fatalf("%s: got %v, admitted is to be %v", uid, x, test.admits)
				}
			}
		})
	}
}

func TestAVictimFreesAClaimThatEndsWithIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		shared bool
		frees  bool
	}{
		"it is the only pod of the claim": {frees: true},
		"another pod has the claim":       {shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := chargeWorld(2)
			a.PutCharge(Charge{ID: "a/old", Amounts: amount.List{gpuClass: 2}, ReservedFor: []string{"v", "o"}})
			a.PutCharge(Charge{ID: "a/new", Amounts: amount.List{gpuClass: 2}})
			a.Put(Pod{UID: "v", Namespace: "a", Name: "v", Node: "n", Claims: []string{"a/old"}})
			if test.shared {
				a.Put(Pod{UID: "o", Namespace: "a", Name: "o", Node: "n", Priority: 100, Claims: []string{"a/old"}})
			}
			a.Put(Pod{UID: "p", Namespace: "a", Name: "p", Priority: 10, Claims: []string{"a/new"}})
			trial := a.Try("p")
			a.Take(trial, "v")
			if got := a.AdmitTrial(trial) == nil; got != test.frees {
				t.Errorf("without the victim the pod is admitted: %v, want %v", got, test.frees)
			}
			nodes, _ := a.VictimNodes("p")
			if got := nodes["n"]; got != test.frees {
				t.Errorf("the victim's node helps: %v, want %v", got, test.frees)
			}
		})
	}
}

// TestChargesEqualTheDefinition compares an account with sums over its pods and claims, after any history.
func TestChargesEqualTheDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, most := chargeWorld(6), int64(6)
		pods, claims, held := map[string]Pod{}, map[string]Charge{}, map[string]bool{}
		uids, ids := []string{"p", "q", "r", "s"}, []string{"n/c", "n/d", "n/e"}
		uid, id := rapid.SampledFrom(uids), rapid.SampledFrom(ids)
		// want is what each quota uses, if also the pods more hold what they ask for.
		want := func(more ...string) map[string]int64 {
			sums := map[string]int64{"a": 0, "b": 0}
			holds := func(uid string) bool { return held[uid] || slices.Contains(more, uid) }
			for id, c := range claims {
				var users []string
				for _, uid := range slices.Concat(c.ReservedFor, uids, nil) {
					if slices.Contains(pods[uid].Claims, id) && held[uid] {
						users = append(users, uid)
					}
				}
				for _, uid := range more { // who comes first of those that are asked about
					if slices.Contains(pods[uid].Claims, id) && holds(uid) {
						users = append(users, uid)
					}
				}
				if len(users) > 0 {
					sums[pods[users[0]].Quota] += c.Amounts[gpuClass]
				}
			}
			return sums
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch u, c := uid.Draw(t, "pod"), id.Draw(t, "claim"); rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				p := Pod{
					UID: u, Name: u, Namespace: "n", Quota: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "quota"),
					Claims: rapid.SliceOfNDistinct(id, 0, 2, rapid.ID).Draw(t, "claims"),
				}
				if last, known := pods[u]; known && last.Node != "" {
					p.Node = last.Node
				} else if rapid.Bool().Draw(t, "bound") {
					p.Node = "n"
				}
				held[u] = held[u] || p.Node != ""
				pods[u] = p
				a.Put(p)
			case 1:
				a.Remove(u)
				delete(pods, u)
				delete(held, u)
			case 2:
				claims[c] = Charge{
					c,
					amount.List{gpuClass: rapid.Int64Range(0, 4).Draw(t, "n")},
					rapid.SliceOfNDistinct(uid, 0, 2, rapid.ID).Draw(t, "reserved for"),
				}
				a.PutCharge(claims[c])
			case 3:
				a.PutCharge(Charge{ID: c})
				delete(claims, c)
			case 4:
				if _, known := pods[u]; !known || held[u] {
					continue
				}
				now, next := want(), want(u)
				fits := true
				for q := range next {
					fits = fits && (next[q] == now[q] || next[q] <= most)
				}
				if x := a.Reserve(u); (x == nil) != fits {
					t.Fatalf("pod %+v, used %v, would be %v: got %v", pods[u], now, next, x)
				}
				held[u] = fits
			case 5:
				if pods[u].Node == "" {
					a.Release(u)
					delete(held, u)
				}
			}
			got := map[string]int64{"a": usedOf(a, "a"), "b": usedOf(a, "b")}
			if diff := cmp.Diff(want(), got); diff != "" {
				t.Fatalf("use (-want +got):\n%s", diff)
			}
			if bad := a.Miscounted(); len(bad) > 0 || a.Rebuilt().Hash() != a.Hash() {
				t.Fatalf("miscounted %v, or another account when rebuilt", bad)
			}
		}
	})
}

// TestAClaimChangesWhileItsGangStarts: what members were admitted with is not what they ask for any more.
func TestAClaimChangesWhileItsGangStarts(t *testing.T) {
	t.Parallel()
	a := chargeWorld(4)
	a.SetGang("g", gang.Bond{Least: 2})
	for _, uid := range []string{"p", "q"} {
		a.PutCharge(Charge{ID: "a/" + uid, Amounts: amount.List{ClassDimension("other"): 1}})
		a.Put(Pod{UID: uid, Namespace: "a", Name: uid, Gang: "g", Claims: []string{"a/" + uid}})
	}
	if x := a.Reserve("p"); x != nil {
		t.Fatalf("the first member is refused: %v", x)
	}
	a.PutCharge(Charge{ID: "a/q", Amounts: amount.List{gpuClass: 5}})
	if x := a.Reserve("q"); x == nil {
		t.Error("5 devices of 4 are admitted")
	}
}

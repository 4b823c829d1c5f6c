package quota_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
)

func member(name, gangName string, cpus int64) quota.Pod {
	return quota.Pod{UID: name, Name: name, Quota: gangName, Amounts: amount.List{"cpu": cpus}, Gang: "g"}
}

func accountOf(limit int64) *quota.Account {
	a := quota.NewAccount(quota.Config{}, quota.Rules{ByMax: true})
	a.SetNodes(amount.List{"cpu": 1000})
	a.Set(quota.Spec{Name: "parent", IsParent: true, Max: amount.List{"cpu": limit}})
	for _, leaf := range []string{"a", "b"} {
		a.Set(quota.Spec{Name: leaf, Parent: "parent", Max: amount.List{"cpu": 1000}})
	}
	return a
}

// TestAGangAsksForAllThatItNeedsAtOnce: 4 of 5 members must run; their quotas have room for so many only together.
func TestAGangAsksForAllThatItNeedsAtOnce(t *testing.T) {
	t.Parallel()
	a := accountOf(39)
	a.SetGang("g", gang.Bond{Least: 4})
	for i := range 5 {
		a.Put(member(fmt.Sprint("p", i), []string{"a", "b"}[i%2], 10))
	}
	x := a.Admit("p3")
	if x == nil || x.Quota != "parent" || x.Pods != 4 || x.Shortages[0].Request != 40 {
		t.Fatalf("got %+v, want 4 pods of 10 each above the 39 of parent", x)
	}
	if a.Grew("p3", x) {
		t.Error("nothing has changed, and the pod may be tried again")
	}
	if trial := a.Try("p3"); a.AdmitTrial(trial) == nil || a.AdmitTrial(trial).Pods != 4 {
		t.Error("a dry run asks for less than the gang")
	}
	for i := range 5 {
		a.Put(member(fmt.Sprint("p", i), "a", 10))
	}
	if a.SetGang("g", gang.Bond{Least: 3}); !a.Grew("p3", x) {
		t.Error("the gang needs fewer, and the pod is not tried again")
	}
	for i, want := range []bool{true, true, true, false, false} {
		if got := a.Reserve(fmt.Sprint("p", i)) == nil; got != want {
			t.Errorf("member %d of 3 that fit: admitted %v", i, got)
		}
	}
	// One of three ends, and another takes its place.
	a.Remove("p0")
	if x := a.Admit("p4"); x != nil {
		t.Errorf("a gang of 2 that lacks 1: %v", x)
	}
}

// TestAGangWhoseMembersSayNothingAsksForWhatIsSet: its PodGroup says it.
func TestAGangWhoseMembersSayNothingAsksForWhatIsSet(t *testing.T) {
	t.Parallel()
	a := accountOf(39)
	a.SetGang("g", gang.Bond{Least: 4})
	for i := range 5 {
		a.Put(member(fmt.Sprint("p", i), "a", 10))
	}
	x := a.Admit("p0")
	if x == nil || x.Pods != 4 {
		t.Fatalf("got %+v, want 4 pods of 10 each above the 39 of parent", x)
	}
	if a.SetGang("g", gang.Bond{Least: 3}); !a.Grew("p0", x) || a.Admit("p0") != nil {
		t.Error("the gang needs 3, and is refused")
	}
	a.SetGang("g", gang.Bond{Least: 4})
	if a.SetGang("g", gang.Bond{}); a.Admit("p0") != nil {
		t.Error("nothing is set any more, and the gang still needs 4")
	}
	a.SetGang("g", gang.Bond{Least: 4})
	if a.SetGang("g", gang.Bond{Plain: true}); a.Admit("p0") != nil {
		t.Error("pods that are not a gang are admitted together alone")
	}
}

// TestMembersOfANonStrictGangAreAdmittedOneByOne: 2 of 4 fit; a third does when the quota grows by one, and a dry run
// of several asks for all of them.
func TestMembersOfANonStrictGangAreAdmittedOneByOne(t *testing.T) {
	t.Parallel()
	a := accountOf(29)
	a.SetGang("g", gang.Bond{Least: 4, NonStrict: true})
	for i := range 4 {
		a.Put(member(fmt.Sprint("p", i), "a", 10))
	}
	for i, want := range []bool{true, true, false, false} {
		if got := a.Reserve(fmt.Sprint("p", i)) == nil; got != want {
			t.Errorf("member %d of 2 that fit: admitted %v", i, got)
		}
	}
	x := a.Admit("p2")
	if x == nil || x.Pods != 1 || x.Shortages[0].Request != 10 || x.Shortages[0].Used != 20 || a.Grew("p2", x) {
		t.Fatalf("got %+v, want one pod of 10 beside 20", x)
	}
	one, all := a.AdmitTrial(a.Try("p2")), a.AdmitTrial(a.TryAll([]string{"p2", "p3"}))
	if one == nil || one.Pods != 1 || all == nil || all.Pods != 2 {
		t.Errorf("a dry run of the pod asks for %+v, one of two for %+v; want 1 pod and 2", one, all)
	}
	a.Set(quota.Spec{Name: "parent", IsParent: true, Max: amount.List{"cpu": 30}})
	if !a.Grew("p2", x) || a.Reserve("p2") != nil || a.Reserve("p3") == nil {
		t.Error("the quota grew by one member, and not one more is admitted")
	}
}

// TestAPodIsTriedAgainWhenItsGangAsksForLess: the member that was in the way is gone, and another takes its place.
func TestAPodIsTriedAgainWhenItsGangAsksForLess(t *testing.T) {
	t.Parallel()
	large, lost := member("p1", "a", 35), member("p1", "absent", 10)
	for name, inTheWay := range map[string]quota.Pod{"a large one": large, "one whose quota does not exist": lost} {
		a := quota.NewAccount(quota.Config{}, quota.Rules{ByMax: true, Missing: quota.MissingReject})
		a.Set(quota.Spec{Name: "a", Max: amount.List{"cpu": 40}})
		a.SetGang("g", gang.Bond{Least: 2})
		a.Put(member("p0", "a", 10))
		a.Put(inTheWay)
		x := a.Admit("p0")
		if x == nil || a.Grew("p0", x) {
			t.Errorf("%s: refused with %v, and already grown or not refused", name, x)
			continue
		}
		a.Put(member("p2", "a", 10)) // the gang may start without the one in the way
		if a.Admit("p0") != nil || !a.Grew("p0", x) {
			t.Errorf("another beside %s: admitted %t, tried again %t", name, a.Admit("p0") == nil, a.Grew("p0", x))
		}
		a.Remove("p1")
		if a.Admit("p0") != nil || !a.Grew("p0", x) {
			t.Errorf("%s is gone: admitted %t, tried again %t", name, a.Admit("p0") == nil, a.Grew("p0", x))
		}
	}
}

// TestAMemberIsAdmittedBesideThoseThatAskForTheLeast: of a gang that needs some of its members, one is admitted to one
// quota exactly if some choice of the others fits with it; with several limits, it is if each leaves enough.
func TestAMemberIsAdmittedBesideThoseThatAskForTheLeast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 20).Draw(t, "limit")
		a := accountOf(limit)
		cpus := rapid.SliceOfN(rapid.Int64Range(0, 9), 1, 6).Draw(t, "CPUs")
		least := rapid.IntRange(1, len(cpus)).Draw(t, "least")
		a.SetGang("g", gang.Bond{Least: least})
		for i, n := range cpus {
			a.Put(member(fmt.Sprint("p", i), "a", n))
		}
		others := slices.Sorted(slices.Values(cpus[1:]))
		sum := cpus[0]
		for _, n := range others[:least-1] {
			sum += n
		}
		want := sum <= limit
		if x := a.Admit("p0"); (x == nil) != want || x != nil && (x.Pods != least || x.Shortages[0].Request != sum) {
			t.Fatalf("got %+v, want %t with %d of %d", x, want, sum, limit)
		}
	})
	a := quota.NewAccount(quota.Config{}, quota.Rules{ByMax: true})
	a.Set(quota.Spec{Name: "a", Max: amount.List{"cpu": 12, "gpu": 2}})
	a.SetGang("g", gang.Bond{Least: 2})
	for uid, gpus := range map[string]int64{"p0": 1, "p1": 2, "p2": 0} {
		p := member(uid, "a", 10-4*gpus)
		p.Amounts["gpu"] = gpus
		a.Put(p)
	}
	if x := a.Admit("p0"); x != nil { // with p1 it has 3 GPUs, with p2 16 CPUs
		t.Errorf("each limit leaves enough for another member: %v", x)
	}
	if x := a.Reserve("p0"); x != nil || a.Reserve("p1") == nil || a.Reserve("p2") == nil {
		t.Errorf("%v; no other member fits beside the first", x)
	}
}

// TestWhatTheLimitsLeaveOfAGang has a limit above the quotas, a min of pods that are not preemptible, what is held for
// a nominated pod, a Reservation, and a member that no quota admits.
func TestWhatTheLimitsLeaveOfAGang(t *testing.T) {
	t.Parallel()
	a := quota.NewAccount(quota.Config{}, quota.Rules{ByMax: true, Missing: quota.MissingReject})
	a.Set(quota.Spec{Name: "parent", IsParent: true, Max: amount.List{"cpu": 20}})
	a.Set(quota.Spec{
		Name: "a", Parent: "parent", Min: amount.List{"cpu": 4}, Max: amount.List{"cpu": 50, "memory": 9},
	})
	runs, room, first := member("runs", "a", 3), member("room", "a", 5), member("first", "a", 2)
	runs.Node, room.Node, room.Room, first.Nominated = "n", "n", true, true
	runs.Gang, room.Gang, first.Gang = "", "", ""
	firm := member("firm", "a", 6)
	firm.NonPreemptible = true
	for _, p := range []quota.Pod{runs, room, first, firm, member("plain", "a", 1), member("lost", "absent", 1)} {
		a.Put(p)
	}
	left, asks := a.Left([]string{"firm", "plain", "lost", "gone"})
	// of a, of the min of a, of parent, and of the quota that does not exist
	if want := []int64{45, 4, 15, 0}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
	for uid, want := range map[string][]int64{
		"firm": {6, 6, 6, 0}, "plain": {1, 0, 1, 0}, "lost": {0, 0, 0, 1}, "gone": {0, 0, 0, 0},
	} {
		if !slices.Equal(asks[uid], want) {
			t.Errorf("%s asks for %v, want %v", uid, asks[uid], want)
		}
	}
}

func TestAGangWithoutAllItsMembersAsksForThoseThereAre(t *testing.T) {
	t.Parallel()
	a := accountOf(20)
	a.SetGang("g", gang.Bond{Least: 4})
	a.Put(member("p0", "a", 10))
	a.Put(member("p1", "a", 10))
	if x := a.Admit("p0"); x != nil {
		t.Errorf("two members of 10 in 20: %v", x)
	}
	leaving := member("p2", "a", 10)
	leaving.Leaving = true
	a.Put(leaving)
	if x := a.Admit("p0"); x != nil {
		t.Errorf("a member that leaves is asked for: %v", x)
	}
	a.Put(member("p2", "a", 10))
	if x := a.Admit("p0"); x == nil || x.Pods != 3 {
		t.Errorf("three members of 10 in 20: %+v", x)
	}
	a.Nominate("p1") // what is held for a member is not held against its gang
	if x := a.Admit("p0", "p1", "p2"); x == nil || x.Shortages[0].Request != 30 || x.Shortages[0].Used != 0 {
		t.Errorf("three members of 10 in 20, one nominated: %+v", x)
	}
}

// TestNoGangStartsThatItsQuotasCannotHold reserves the members of random gangs one after the other, each gang when the
// one before it is done: it holds what it needs, or nothing; a NonStrict one holds what fits.
func TestNoGangStartsThatItsQuotasCannotHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 60).Draw(t, "limit")
		a := accountOf(limit)
		var used int64
		for g := range rapid.IntRange(1, 5).Draw(t, "gangs") {
			size, least := rapid.IntRange(1, 6).Draw(t, "size"), rapid.IntRange(0, 7).Draw(t, "min")
			each := rapid.Int64Range(1, 5).Draw(t, "amount")
			nonStrict := rapid.IntRange(0, 3).Draw(t, "NonStrict") == 0
			a.SetGang(fmt.Sprint(g), gang.Bond{Least: least, NonStrict: nonStrict})
			var pods []quota.Pod
			for i := range size {
				p := member(fmt.Sprint(g, "-", i), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "quota"), each)
				p.Gang, p.Priority = fmt.Sprint(g), rapid.Int32Range(0, 2).Draw(t, "priority")
				a.Put(p)
				pods = append(pods, p)
			}
			held := 0
			for _, p := range rapid.Permutation(pods).Draw(t, "order") {
				if a.Reserve(p.UID) == nil {
					held++
				}
			}
			needed := min(max(least, 1), size)
			if nonStrict {
				needed = 1
			}
			want := int64(0)
			if free := (limit - used) / each; free >= int64(needed) {
				want = min(free, int64(size))
			}
			if int64(held) != want {
				t.Fatalf("gang of %d, at least %d, of %d each: %d start where %d of %d are used, want %d", size, least,
					each, held, used, limit, want)
			}
			used += want * each
		}
	})
}

// TestMembersThatFollowAreAdmittedAsIfEachWereAskedAboutAnew compares two accounts after each of random calls: one
// forgets what was admitted together before it is asked.
func TestMembersThatFollowAreAdmittedAsIfEachWereAskedAboutAnew(t *testing.T) {
	followed, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rules := quota.Rules{ByMax: rapid.Bool().Draw(t, "by max"), LeafOnly: rapid.Bool().Draw(t, "leaf only")}
		if rapid.Bool().Draw(t, "missing quotas refuse") {
			rules.Missing = quota.MissingReject
		}
		config := quota.Config{ScaleMin: true}
		account, anew := quota.NewAccount(config, rules), quota.NewAccount(config, rules)
		both := func(f func(*quota.Account)) { f(account); f(anew) }
		put := func(uid string) {
			p := member(uid, rapid.SampledFrom([]string{"a", "a", "b", "c"}).Draw(t, "quota"),
				rapid.Int64Range(0, 3).Draw(t, "CPUs"))
			p.Gang, p.Priority = uid[:1], rapid.Int32Range(0, 1).Draw(t, "priority")
			p.Amounts["gpu"] = rapid.Int64Range(0, 1).Draw(t, "GPUs")
			p.NonPreemptible = rapid.IntRange(0, 3).Draw(t, "non-preemptible") == 0
			p.Leaving = rapid.IntRange(0, 9).Draw(t, "leaving") == 0
			if rapid.IntRange(0, 5).Draw(t, "bound") == 0 {
				p.Node = "n"
			}
			both(func(a *quota.Account) { a.Put(p) })
		}
		set := func(leaf string) {
			s := quota.Spec{ // GPUs are limited above alone
				Name: leaf, Parent: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "parent"),
				Min: amount.List{"cpu": 4}, Max: amount.List{"cpu": rapid.Int64Range(2, 40).Draw(t, "max")},
			}
			both(func(a *quota.Account) { a.Set(s) })
		}
		for _, parent := range []string{"p", "q"} {
			limit := amount.List{"cpu": rapid.Int64Range(10, 60).Draw(t, "limit"), "gpu": 8}
			s := quota.Spec{Name: parent, IsParent: true, Max: limit}
			both(func(a *quota.Account) { a.Set(s) })
		}
		set("a")
		set("b")
		both(func(a *quota.Account) { a.SetNodes(amount.List{"cpu": 50, "gpu": 9}) })
		bind := func(gangName string) {
			bond := gang.Bond{Least: rapid.SampledFrom([]int{0, 3, 5, 5, 5, 5, 5, 5, 5, 5}).Draw(t, "least")}
			bond.Plain = rapid.IntRange(0, 9).Draw(t, "plain") == 0
			bond.NonStrict = rapid.IntRange(0, 14).Draw(t, "NonStrict") == 0
			both(func(a *quota.Account) { a.SetGang(gangName, bond) })
		}
		for _, g := range []string{"x", "y"} {
			bind(g)
			for i := range 5 {
				put(fmt.Sprint(g, "-", i))
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			gangName := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "gang")
			uid := fmt.Sprint(gangName, "-", rapid.IntRange(0, 4).Draw(t, "pod"))
			switch rapid.IntRange(0, 15).Draw(t, "step") {
			case 0:
				put(uid)
			case 1:
				both(func(a *quota.Account) { a.Remove(uid) })
			case 2:
				both(func(a *quota.Account) { a.Release(uid) })
			case 3:
				set(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "leaf"))
			case 4:
				both(func(a *quota.Account) { a.Unset("b") })
			case 5:
				bind(gangName)
			case 6:
				cpus := rapid.Int64Range(10, 60).Draw(t, "nodes")
				both(func(a *quota.Account) { a.SetNodes(amount.List{"cpu": cpus, "gpu": 9}) })
			case 7:
				both(func(a *quota.Account) { a.Nominate(uid) })
			case 8:
				both(func(a *quota.Account) { a.Withdraw(uid) })
			default:
				for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4}).Draw(t, "order") {
					uid, before := fmt.Sprint(gangName, "-", i), account.Starting()
					anew.ForgetStarts()
					want, got := anew.Reserve(uid), account.Reserve(uid)
					// which quota a refusal names of several is up to the order of the members
					if (want == nil) != (got == nil) || want != nil && want.Pods != got.Pods {
						t.Fatalf("reserve %s: got %v one after the other, and %v anew", uid, got, want)
					}
					if got != nil {
						refused++
					} else if after := account.Starting(); after > 0 && after < before {
						followed++
					}
				}
			}
			if account.Hash() != anew.Hash() {
				t.Fatal("the accounts differ")
			}
		}
	})
	if !testing.Short() && (followed < 50 || refused < 50) {
		t.Errorf("%d members followed others and %d were refused: too few to mean anything", followed, refused)
	}
}

// BenchmarkReserveGang reserves the members of one gang, one after the other, and releases them.
func BenchmarkReserveGang(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("members=%d", size), func(b *testing.B) {
			a := accountOf(1000)
			var uids []string
			a.SetGang("g", gang.Bond{Least: size})
			for i := range size {
				a.Put(member(fmt.Sprint("p", i), "a", 1))
				uids = append(uids, fmt.Sprint("p", i))
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, uid := range uids {
					if x := a.Reserve(uid); x != nil {
						b.Fatal(x)
					}
				}
				a.Release(uids...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/member")
		})
	}
}

// TestAGangIsAdmittedBesideTheReservationThatItUses: a gang whose members take what is left of a Reservation, in any
// order, is refused if and only if all members and the unused rest exceed the limit.
func TestAGangIsAdmittedBesideTheReservationThatItUses(t *testing.T) {
	t.Parallel()
	seen := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(what string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(rt, what) }
		a, n := accountOf(draw("limit", 10, 60)), int(draw("members", 1, 5))
		a.SetGang("g", gang.Bond{Least: n})
		leaves := rapid.SampledFrom([]string{"a", "b"})
		room := quota.Pod{UID: "room", Quota: leaves.Draw(rt, "quota"), Node: "n", Room: true}
		put := func(cpus int64) { room.Amounts = amount.List{"cpu": cpus}; a.Put(room) }
		left, sum := draw("reserved", 0, 40), int64(0)
		put(left)
		var members []quota.Pod
		for i := range n {
			m := member(fmt.Sprint("p", i), leaves.Draw(rt, "quota of a member"), draw("CPUs", 1, 15))
			members = append(members, m)
			a.Put(m)
		}
		// Each member that uses the Reservation takes as much as there is, at most its request.
		limit, admitted := a.Forest().Find("parent").Spec().Max["cpu"], true
		for _, m := range members {
			uses := rapid.Bool().Draw(rt, "uses")
			rest := left
			if uses {
				rest -= min(left, m.Amounts["cpu"])
			}
			hash := a.Hash()
			inside := a.AdmitInside(m.UID, "room", &quota.Pod{Amounts: amount.List{"cpu": rest}})
			if a.Hash() != hash {
				rt.Error("the question changed the account")
			}
			put(rest)
			got := a.Reserve(m.UID)
			left, sum = rest, sum+m.Amounts["cpu"]
			if (inside == nil) != (got == nil) {
				rt.Fatalf("asked inside the Reservation %v, reserved %v", inside, got)
			}
			if got != nil {
				admitted = false
				break
			}
		}
		if admitted && sum+left > limit {
			rt.Errorf("%d of members and %d reserved are admitted to %d", sum, left, limit)
		}
		total := int64(0)
		for _, m := range members {
			total += m.Amounts["cpu"]
		}
		if !admitted && total <= limit && sum+left <= limit {
			rt.Errorf("%d of members and %d reserved are refused by %d", sum, left, limit)
		}
		seen[admitted]++
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("admitted and refused: %v", seen)
	}
}

// TestAMemberThatLeavesDoesNotCountForItsGang: the gang lacks one member, and that is not the one that is deleted.
func TestAMemberThatLeavesDoesNotCountForItsGang(t *testing.T) {
	t.Parallel()
	a := accountOf(9)
	a.SetGang("g", gang.Bond{Least: 1})
	leaving := member("leaves", "a", 1)
	leaving.Leaving = true
	a.Put(leaving)
	a.Put(member("stays", "a", 10))
	if x := a.Admit("leaves"); x == nil || x.Pods != 2 {
		t.Errorf("got %+v, want 2 pods above the 9 of parent", x)
	}
}

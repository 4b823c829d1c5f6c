package quota

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// tree is eng { search { train serve } ads } with a max for each, in CPUs, and 1,000 CPUs in nodes.
func tree(r Rules) *Account {
	a := NewAccount(Config{ScaleMin: true}, r)
	a.SetNodes(amount.List{cpuName: 1000, memory: 1000})
	for _, s := range []Spec{
		{Name: "eng", IsParent: true, Min: amount.List{cpuName: 100}, Max: amount.List{cpuName: 120}},
		{Name: "search", Parent: "eng", IsParent: true, Min: amount.List{cpuName: 60}, Max: amount.List{cpuName: 110}},
		{Name: "train", Parent: "search", Min: amount.List{cpuName: 20}, Max: amount.List{cpuName: 100, memory: 50}},
		{Name: "serve", Parent: "search", Min: amount.List{cpuName: 30}, Max: amount.List{cpuName: 60}},
		{Name: "ads", Parent: "eng", Max: amount.List{cpuName: 100}},
	} {
		a.Set(s)
	}
	return a
}

func pending(uid, quota string, cpus int64, more ...func(*Pod)) Pod {
	p := Pod{UID: uid, Name: uid, Namespace: "x", Quota: quota, Amounts: amount.List{cpuName: cpus}}
	for _, f := range more {
		f(&p)
	}
	return p
}

func onNode(p *Pod) { p.Node = "n" }
func firm(p *Pod)   { p.NonPreemptible = true }
func withMemory(n int64) func(*Pod) {
	return func(p *Pod) { p.Amounts = amount.List{cpuName: p.Amounts[cpuName], memory: n, "gpu": 1, "zero": 0} }
}

// TestAdmit asks at the limit, one unit below and one above it.
//
// Q4: a child passes the max of its parent. Q13: wrong sums where everything is used.
func TestAdmit(t *testing.T) {
	t.Parallel()
	short := func(quota string, kind LimitKind, shortages ...Shortage) *Excess {
		return &Excess{Quota: quota, LimitKind: kind, Shortages: shortages, Path: []string{"eng", "search", "train"}}
	}
	for name, c := range map[string]struct {
		rules Rules
		held  []Pod
		ask   []Pod
		want  *Excess
	}{
		"within every limit": {ask: []Pod{pending("p", "train", 100)}},
		"exactly what is left": {
			held: []Pod{pending("h", "train", 60, onNode)},
			ask:  []Pod{pending("p", "train", 40)},
		},
		"min, which preemptible pods do not use": {
			held: []Pod{pending("h", "train", 60, onNode)},
			ask:  []Pod{pending("p", "train", 20, firm)},
		},
		"one above what is left": {
			held: []Pod{pending("h", "train", 60, onNode)},
			ask:  []Pod{pending("p", "train", 41)},
			want: short("train", RuntimeLimit, Shortage{cpuName, 100, 60, 41}),
		},
		"more than max, unused": {
			ask:  []Pod{pending("p", "train", 101)},
			want: short("train", RuntimeLimit, Shortage{cpuName, 100, 0, 101}),
		},
		"a level in between": {
			held: []Pod{pending("h", "serve", 60, onNode)},
			ask:  []Pod{pending("p", "train", 51)},
			want: short("search", RuntimeLimit, Shortage{cpuName, 110, 60, 51}),
		},
		"the level is not asked": {
			rules: Rules{LeafOnly: true, ByMax: true},
			held:  []Pod{pending("h", "serve", 60, onNode)},
			ask:   []Pod{pending("p", "train", 51)},
		},
		"max in place of runtime": {
			rules: Rules{ByMax: true},
			ask:   []Pod{pending("p", "train", 101)},
			want:  short("train", MaxLimit, Shortage{cpuName, 100, 0, 101}),
		},
		"two dimensions": {
			ask:  []Pod{pending("p", "train", 101, withMemory(51))},
			want: short("train", RuntimeLimit, Shortage{cpuName, 100, 0, 101}, Shortage{memory, 50, 0, 51}),
		},
		"no limit on the others": {ask: []Pod{pending("p", "train", 1, withMemory(50))}},
		"min of a firm pod": {
			ask:  []Pod{pending("p", "train", 21, firm)},
			want: short("train", MinLimit, Shortage{cpuName, 20, 0, 21}),
		},
		"min has no such resource": {
			ask:  []Pod{pending("p", "train", 20, withMemory(1), firm)},
			want: short("train", MinLimit, Shortage{memory, 0, 0, 1}),
		},
		"min in full": {
			held: []Pod{pending("h", "train", 15, onNode, firm)},
			ask:  []Pod{pending("p", "train", 5, firm)},
		},
		"a gang as a whole": {
			held: []Pod{pending("h", "serve", 60, onNode)},
			ask:  []Pod{pending("p", "train", 30), pending("q", "train", 21)},
			want: short("search", RuntimeLimit, Shortage{cpuName, 110, 60, 51}),
		},
		"a gang whose members hold it": {ask: []Pod{pending("p", "train", 100, onNode), pending("q", "train", 0)}},
		"system is never limited":      {ask: []Pod{pending("p", System, 1<<60)}},
		"default has no limit":         {ask: []Pod{pending("p", Default, 1<<60, firm)}},
		"a missing quota is Default":   {ask: []Pod{pending("p", "absent", 1<<60)}},
		"a missing quota is rejected": {
			rules: Rules{Missing: MissingReject}, ask: []Pod{pending("p", "absent", 1)},
			want: &Excess{Quota: "absent", LimitKind: NoQuota},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := tree(c.rules)
			var uids []string
			for _, p := range append(c.held, c.ask...) { //nolint:gocritic // of this case alone
				a.Put(p)
			}
			for _, p := range c.ask {
				uids = append(uids, p.UID)
			}
			if c.want != nil && c.want.LimitKind != NoQuota {
				c.want.Pods = len(c.ask)
			}
			before := a.Hash()
			got := a.Admit(uids...)
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Excess{})); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if a.Hash() != before {
				t.Error("the question changed the account")
			}
			if got := a.Reserve(uids...); (got == nil) != (c.want == nil) {
				t.Errorf("reserve answers %v, admit %v", got, c.want)
			}
			if c.want != nil && a.Hash() != before {
				t.Error("a refused reservation left something behind")
			}
			a.Release(uids...)
			if a.Hash() != before {
				t.Error("reserve and release together changed the account")
			}
		})
	}
}

// With the webhooks down pods can be in a parent, by its name, as the quota of their namespace, or by its list: they
// count there, and the parent and all above it limit them as they do pods of leaves.
func TestPodsOfAParentAreWithinItsLimits(t *testing.T) {
	t.Parallel()
	search := Spec{
		Name: "search", Namespace: "search", Parent: "eng", IsParent: true, Namespaces: []string{"listed"},
		Min: amount.List{cpuName: 60}, Max: amount.List{cpuName: 110},
	}
	for name, in := range map[string]PodsOf{
		"that name it": {Namespace: "x", Quota: "search"}, "of its namespace": {Namespace: "search"},
		"that it lists": {Namespace: "listed"},
	} {
		a := tree(Rules{})
		a.Set(search)
		for uid, n := range map[string]int64{"all": 110, "more": 1} {
			p := pending(uid, in.Quota, n)
			p.Namespace = in.Namespace
			a.Put(p)
		}
		if x := a.Reserve("all"); x != nil {
			t.Errorf("pods %s within its max: %v", name, x)
		}
		if x := a.Admit("more"); x == nil || x.Quota != "search" || x.Shortages[0].Used != 110 {
			t.Errorf("pods %s above its max: %v", name, x)
		}
		a.Put(pending("train", "train", 1))
		if x := a.Admit("train"); x == nil || x.Quota != "search" {
			t.Errorf("a pod of a leaf beside pods %s: %v", name, x)
		}
	}
}

func TestDefaultIsLimitedByItsMax(t *testing.T) {
	t.Parallel()
	a := NewAccount(Config{DefaultMax: amount.List{cpuName: 10}}, Rules{})
	a.Put(pending("h", "", 8, onNode, firm))
	a.Put(pending("p", "", 3, firm))
	want := &Excess{
		Quota: Default, LimitKind: MaxLimit, Path: []string{Default}, Shortages: []Shortage{{cpuName, 10, 8, 3}},
		Pods: 1,
	}
	if diff := cmp.Diff(want, a.Admit("p"), cmpopts.IgnoreUnexported(Excess{})); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// TestAdmissionAllocatesNothing: it runs in each scheduling cycle.
func TestAdmissionAllocatesNothing(t *testing.T) {
	a := tree(Rules{})
	a.Put(pending("p", "train", 10, withMemory(1)))
	if n := testing.AllocsPerRun(100, func() {
		if x := a.Reserve("p"); x != nil {
			t.Fatal(x)
		}
		a.Release("p")
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// companies returns, for the gang g, each set of pods that may be admitted with these: with as many of its other
// members as it lacks. alike says that all of these ask for the same.
func companies(a *Account, uids []string) (sets [][]string, alike bool) {
	lacks, asked := a.bonds["g"].Least, false
	var others []*entry
	for _, uid := range slices.Sorted(maps.Keys(a.gangs["g"])) {
		e := a.pods[uid]
		isAsked := slices.Contains(uids, uid)
		asked = asked || isAsked && e.state == Pending
		switch {
		case e.pod.Leaving:
		case isAsked || e.state != Pending:
			lacks--
		default:
			others = append(others, e)
		}
	}
	if !asked || a.bonds["g"].Plain || a.bonds["g"].NonStrict {
		lacks = 0
	}
	lacks = min(max(lacks, 0), len(others))
	for mask := range 1 << len(others) {
		if set := slices.Clone(uids); bits.OnesCount(uint(mask)) == lacks {
			for i, o := range others {
				if mask>>i&1 == 1 {
					set = append(set, o.pod.UID)
				}
			}
			sets = append(sets, set)
		}
	}
	return sets, !slices.ContainsFunc(others, func(o *entry) bool { return a.differ(o, others[0]) })
}

// fits is admission of pending pods by brute force: the runtimes before, and what every quota would use.
func fits(a *Account, uids []string) bool {
	type place struct {
		quota *Quota
		d     Dimension
	}
	asked, firmly := map[place]int64{}, map[place]int64{}
	for _, uid := range uids {
		e := a.pods[uid]
		if e == nil || e.state != Pending {
			continue
		}
		for d := range a.forest.names {
			d := Dimension(d)
			n := e.pod.Amounts[a.forest.NameOf(d)]
			if e.pod.NonPreemptible && e.group.quota.Name() != Default && e.group.quota.Name() != System {
				firmly[place{e.group.quota, d}] += n
			}
			for q := e.group.quota; q != nil; q = q.Parent() {
				asked[place{q, d}] += n
			}
		}
	}
	for at, n := range asked {
		limit, named := a.forest.Runtime(at.quota, at.d)
		if name := at.quota.Name(); n == 0 || !named || name == Root || name == System {
			continue
		}
		if at.quota.Amount(Used, at.d)+n > limit ||
			firmly[at] > 0 && at.quota.Amount(NonPreemptibleUsed, at.d)+firmly[at] > at.quota.Min(at.d) {
			return false
		}
	}
	return true
}

// TestAdmissionIsBruteForce is U5, U6 and U8: sets of pods are admitted exactly when each quota on each path has what
// they ask for together, and what is then used is within what a quota may use. Of a gang whose other members ask for
// different amounts, no pod is refused that can be admitted with some of them.
func TestAdmissionIsBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := NewAccount(Config{ScaleMin: true, DefaultMax: amount.List{cpuName: 30}}, Rules{})
		a.SetNodes(amount.List{cpuName: 100, memory: 100})
		for range rapid.IntRange(1, 6).Draw(t, "quotas") {
			a.Set(drawSpec(t))
		}
		for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
			a.Put(drawPod(t, fmt.Sprint("p", i)))
		}
		a.SetGang("g", gang.Bond{
			Least: rapid.IntRange(0, 4).Draw(t, "set"), Plain: rapid.IntRange(0, 4).Draw(t, "plain") == 0,
			NonStrict: rapid.IntRange(0, 2).Draw(t, "NonStrict") == 0,
		})
		for range 4 {
			uids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p0", "p1", "p2", "p3", "p4", "p5"}), 1, 4,
				rapid.ID[string]).Draw(t, "asked")
			sets, alike := companies(a, uids)
			want := slices.ContainsFunc(sets, func(set []string) bool { return fits(a, set) })
			alone := fits(a, uids)
			x := a.Reserve(uids...)
			if want && x != nil || x == nil && (alike && !want || !alone) {
				t.Fatalf("%v of %v: got %v, brute force %t", uids, sets, x, want)
			}
			for _, uid := range uids {
				m, known := a.Find(uid)
				if x == nil && known && m.State == Pending {
					t.Fatalf("%s is admitted and holds nothing", uid)
				}
			}
		}
	})
}

// TestGrewFindsEveryChangeThatHelps: a pod that is admitted now and was refused before has seen a limit grow, and a
// change that leaves less or as much at all of them wakes none.
func TestGrewFindsEveryChangeThatHelps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := NewAccount(Config{ScaleMin: true}, Rules{Missing: MissingReject})
		a.SetNodes(amount.List{cpuName: 50, memory: 50})
		for i := range rapid.IntRange(2, 12).Draw(t, "quotas and pods") {
			a.Set(drawSpec(t))
			a.Put(drawPod(t, fmt.Sprint("p", i%6)))
		}
		before := map[string]*Excess{}
		for uid := range a.pods {
			if x := a.Admit(uid); x != nil {
				before[uid] = x
				if a.Grew(uid, x) {
					t.Fatalf("%s: nothing changed, and %v grew", uid, x)
				}
			}
		}
		other := fmt.Sprint("p", rapid.IntRange(0, 5).Draw(t, "changed pod"))
		switch rapid.IntRange(0, 3).Draw(t, "change") {
		case 0:
			a.Remove(other)
		case 1:
			a.Set(drawSpec(t))
		case 2:
			a.SetNodes(drawAmounts(t, "nodes", 200))
		case 3:
			a.Unset(rapid.SampledFrom(quotaNames).Draw(t, "removed quota"))
		}
		for uid, x := range before {
			if _, known := a.Find(uid); known && a.Admit(uid) == nil && !a.Grew(uid, x) {
				t.Fatalf("%s was refused (%v) and is admitted: nothing grew", uid, x)
			}
		}
	})
}

func TestGrew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Account)
		want   bool
	}{
		"nothing":                      {func(*Account) {}, false},
		"a pod of the same quota ends": {func(a *Account) { a.Remove("h") }, true},
		"a pod of another tree ends":   {func(a *Account) { a.Remove("o") }, false},
		"a pod of the sibling ends":    {func(a *Account) { a.Remove("s") }, false},
		"max is raised": {func(a *Account) {
			a.Set(Spec{Name: "train", Parent: "search", Max: amount.List{cpuName: 120}})
		}, true},
		"a limit that did not refuse": {func(a *Account) {
			a.Set(Spec{Name: "eng", IsParent: true, Max: amount.List{cpuName: 900}})
		}, false},
		"the quota no longer limits it": {func(a *Account) {
			a.Set(Spec{Name: "train", Parent: "search"})
		}, true},
		"the quota is gone":                  {func(a *Account) { a.Unset("train") }, true},
		"nodes come that it cannot use":      {func(a *Account) { a.SetNodes(amount.List{cpuName: 2000}) }, false},
		"a pod of the quota starts":          {func(a *Account) { a.Reserve("small") }, false},
		"the end of a pod that held nothing": {func(a *Account) { a.Remove("small") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := tree(Rules{})
			a.Put(pending("h", "train", 60, onNode))
			a.Put(pending("s", "serve", 5, onNode))
			a.Put(pending("o", "", 10, onNode))
			a.Put(pending("small", "train", 1))
			a.Put(pending("p", "train", 41))
			x := a.Admit("p")
			if x == nil {
				t.Fatal("the pod is admitted")
			}
			if c.change(a); a.Grew("p", x) != c.want {
				t.Errorf("grew is %t, want %t", !c.want, c.want)
			}
		})
	}
}

func TestMayPreempt(t *testing.T) {
	t.Parallel()
	with := func(priority int32, gang string) func(*Pod) {
		return func(p *Pod) { p.Priority, p.Gang = priority, gang }
	}
	a := tree(Rules{})
	for _, p := range []Pod{
		pending("p", "train", 1, with(5, "g")),
		pending("lower", "train", 1, with(4, ""), onNode),
		pending("equal", "train", 1, with(5, ""), onNode),
		pending("firm", "train", 1, with(4, ""), onNode, firm),
		pending("sibling", "train", 1, with(4, "g"), onNode),
		pending("other gang", "train", 1, with(4, "h"), onNode),
		pending("neighbor", "serve", 1, with(0, ""), onNode),
		pending("plain", "", 1, with(9, "")),
		pending("plain victim", "", 1, with(0, ""), onNode, firm),
		pending("system", System, 1, with(9, "")),
	} {
		a.Put(p)
	}
	for _, c := range []struct {
		preemptor, victim string
		want              bool
	}{
		{"p", "lower", true},
		{"p", "equal", false},
		{"p", "firm", false},
		{"p", "sibling", false},
		{"p", "other gang", true},
		{"p", "neighbor", false},
		{"p", "plain victim", false},
		{"p", "unknown", false},
		{"plain", "plain victim", true},
		{"plain", "unknown", true},
		{"plain", "lower", false},
		{"system", "lower", true},
	} {
		if got := a.MayPreempt(c.preemptor, c.victim); got != c.want {
			t.Errorf("%s may preempt %s: %t, want %t", c.preemptor, c.victim, got, c.want)
		}
	}
}

// TestATrialIsWhatWouldBe is R7: a dry run answers as admission does once the victims are gone, and sparing a victim
// takes it back.
//
// Q10: a dry run takes or spares a victim twice.
func TestATrialIsWhatWouldBe(t *testing.T) {
	t.Parallel()
	a := tree(Rules{})
	a.Put(pending("v", "train", 60, onNode))
	a.Put(pending("w", "serve", 40, onNode))
	a.Put(pending("first", "serve", 20))
	a.Put(pending("p", "train", 50))
	before := a.Hash()
	t0 := a.Try("p")
	if x := a.AdmitTrial(t0); x == nil || x.Quota != "train" {
		t.Fatalf("before: %v, want a refusal by train", x)
	}
	t1 := t0.Clone()
	a.Take(t1, "v")
	a.Take(t1, "v")
	if x := a.AdmitTrial(t1); x != nil {
		t.Errorf("without the victim: %v", x)
	}
	a.Give(t1, "first")
	a.Give(t1, "first")
	if x := a.AdmitTrial(t1); x != nil {
		t.Errorf("beside a pod that comes first: %v, want 40 + 20 + 50 within 110", x)
	}
	a.Take(t1, "first")
	a.Give(t1, "v")
	if diff := cmp.Diff(a.AdmitTrial(t0), a.AdmitTrial(t1), cmpopts.IgnoreUnexported(Excess{})); diff != "" {
		t.Errorf("after all is taken back (-want +got):\n%s", diff)
	}
	a.Give(t1, "w")
	if diff := cmp.Diff(a.AdmitTrial(t0), a.AdmitTrial(t1), cmpopts.IgnoreUnexported(Excess{})); diff != "" {
		t.Errorf("a pod that is there counts twice (-want +got):\n%s", diff)
	}
	if a.Hash() != before {
		t.Error("a dry run changed the account")
	}
	if a.Try("v") != nil {
		t.Error("a pod that holds its quota begins a dry run")
	}
}

// TestAChangeOfABoundPodIsAdmittedLikeAPod compares with the account after the change: it is refused exactly if a quota
// then uses more than before and more than it may, if the quota that the pod names now does not exist, or if the pod
// leaves its quota for none. Wherever the pod goes, what it uses is counted.
func TestAChangeOfABoundPodIsAdmittedLikeAPod(t *testing.T) {
	t.Parallel()
	refused, admitted := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		a := tree(Rules{ByMax: rapid.Bool().Draw(rt, "by max")})
		quotas := []string{"train", "serve", "ads", "absent", ""}
		total := int64(0)
		for i := range 6 {
			p := pending(fmt.Sprint("p", i), rapid.SampledFrom(quotas).Draw(rt, "quota"),
				rapid.Int64Range(0, 40).Draw(rt, "CPUs"), onNode)
			p.NonPreemptible = rapid.IntRange(0, 3).Draw(rt, "firm") == 0
			total += p.Amounts[cpuName]
			a.Put(p)
		}
		was, _ := a.Find("p0")
		next := was.Pod
		next.Quota = rapid.SampledFrom(quotas).Draw(rt, "new quota")
		next.Amounts = amount.List{cpuName: rapid.Int64Range(0, 60).Draw(rt, "new CPUs")}
		type measured struct {
			quota string
			m     Measure
		}
		read := func() map[measured]int64 {
			out := map[measured]int64{}
			for _, name := range []string{"eng", "search", "train", "serve", "ads", Default} {
				q := a.forest.Find(name)
				for _, m := range []Measure{Used, NonPreemptibleUsed} {
					out[measured{name, m}] = q.Amount(m, a.forest.Dimension(cpuName))
				}
			}
			return out
		}
		before, hash, x := read(), a.Hash(), a.AdmitChange(next)
		if a.Hash() != hash {
			rt.Error("the question changed the account")
		}
		a.Put(next)
		after := read()
		want := next.Quota == "absent" && was.Pod.Quota != "absent" ||
			next.Quota == "" && was.Quota.Name() != Default
		for at, n := range after {
			q := a.forest.Find(at.quota)
			limit, named := q.Max(a.forest.Dimension(cpuName))
			if named && !a.rules.ByMax && at.quota != Default {
				limit, _ = a.forest.Runtime(q, a.forest.Dimension(cpuName))
			}
			if at.m == NonPreemptibleUsed {
				limit = q.Min(a.forest.Dimension(cpuName))
				named = named && at.quota == next.Quota
			}
			want = want || named && n > before[at] && n > limit
		}
		if (x != nil) != want {
			rt.Errorf("%+v becomes %+v: %v, want refused: %t; used before %v, after %v", was.Pod, next, x, want, before,
				after)
		}
		if x != nil {
			refused++
		} else {
			admitted++
		}
		sum := after[measured{"eng", Used}] + after[measured{Default, Used}]
		if want := total - was.Amounts[cpuName] + next.Amounts[cpuName]; sum != want {
			rt.Errorf("%d are used in all quotas, pods have %d", sum, want)
		}
	})
	if refused == 0 || admitted == 0 {
		t.Errorf("%d changes refused, %d admitted", refused, admitted)
	}
}

// TestTheRoomOfMovedPodsIsAdmittedBesideThem compares with an account to which the rooms are added as pending pods.
func TestTheRoomOfMovedPodsIsAdmittedBesideThem(t *testing.T) {
	t.Parallel()
	seen := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		a := tree(Rules{ByMax: rapid.Bool().Draw(rt, "by max")})
		moved, rooms := []string{"unknown"}, []string{}
		var added []Pod
		for i := range 6 {
			p := pending(fmt.Sprint("p", i), rapid.SampledFrom([]string{"train", "serve", "ads", ""}).Draw(rt, "quota"),
				rapid.Int64Range(0, 30).Draw(rt, "CPUs"), onNode)
			if p.NonPreemptible = rapid.IntRange(0, 3).Draw(rt, "firm") == 0; rapid.Bool().Draw(rt, "member") {
				p.Gang = "g"
			}
			a.Put(p)
			if rapid.Bool().Draw(rt, "moved") {
				moved = append(moved, p.UID)
				p.UID, p.Node, p.Gang = "r"+p.UID, "", ""
				rooms, added = append(rooms, p.UID), append(added, p)
			}
		}
		hash, got := a.Hash(), a.AdmitAgain(moved...)
		if a.Hash() != hash {
			rt.Error("the question changed the account")
		}
		for _, p := range added {
			a.Put(p)
		}
		if want := a.Admit(rooms...); (got == nil) != (want == nil) {
			rt.Errorf("moving %v: got %v, want %v", moved, got, want)
		}
		seen[got == nil]++
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("admitted and refused: %v", seen)
	}
}

// TestARefusalNamesThePodsOutsideAllQuotasWhereTheyUseThePool: exactly where the runtime is below the max of the quota,
// siblings on its path use less above their mins than is lacking, and pods outside all quotas use something.
func TestARefusalNamesThePodsOutsideAllQuotasWhereTheyUseThePool(t *testing.T) {
	t.Parallel()
	seen := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		a := tree(Rules{})
		a.SetNodes(amount.List{cpuName: rapid.Int64Range(60, 200).Draw(rt, "nodes")})
		for i := range 8 {
			p := pending(fmt.Sprint("p", i), rapid.SampledFrom([]string{"train", "serve", "ads", "absent", System}).
				Draw(rt, "quota"), rapid.Int64Range(1, 50).Draw(rt, "CPUs"))
			if i > 0 && rapid.Bool().Draw(rt, "bound") {
				p.Node = "n"
			}
			a.Put(p)
		}
		x := a.Admit("p0")
		if x == nil || x.LimitKind != RuntimeLimit {
			return
		}
		s, reports := x.Shortages[0], map[string]Report{}
		for _, r := range a.forest.Reports() {
			reports[r.Name] = r
		}
		lacks := s.Used + s.Request - s.Limit
		for name := x.Quota; name != Root; name = reports[name].Parent {
			for _, r := range reports {
				if _, divides := r.Max[cpuName]; divides && r.Parent == reports[name].Parent && r.Name != name {
					lacks -= max(r.Used[cpuName]-r.EffectiveMin[cpuName], 0)
				}
			}
		}
		want := Outside{}
		if lacks > 0 && s.Limit < reports[x.Quota].Max[cpuName] {
			d := a.forest.Dimension(cpuName)
			want = Outside{a.fallback.Amount(Used, d), a.system.Amount(Used, d)}
		}
		if x.Outside != want {
			rt.Errorf("%v: outside %+v, want %+v", x, x.Outside, want)
		}
		seen[want != Outside{}]++
	})
	if !testing.Short() && (seen[true] == 0 || seen[false] == 0) {
		t.Errorf("%d refusals name pods outside, %d do not", seen[true], seen[false])
	}
}

// TestNoEditEndsTheUseOfABoundPod: every label that a running pod may get, with and without a record of its quota. The
// webhook refuses to move it to no quota; where no webhook was asked, it remains in the quota that it was bound in.
func TestNoEditEndsTheUseOfABoundPod(t *testing.T) {
	t.Parallel()
	quotas := []Spec{
		{Name: "a", Namespace: "q", Max: amount.List{cpuName: 100}},
		{Name: "b", Namespace: "q", Max: amount.List{cpuName: 100}},
		{Name: "full", Namespace: "q", Max: amount.List{cpuName: 1}},
		{Name: "team", Namespace: "q", Max: amount.List{cpuName: 100}, Namespaces: []string{"listed"}},
	}
	for name, c := range map[string]struct {
		namespace, was, label string
		want                  LimitKind // that the webhook refuses for; empty if it does not
		quota                 string    // that the pod counts in if no webhook was asked
	}{
		"removed":                      {"x", "a", "", Unlimited, "a"},
		"changed to the default quota": {"x", "a", Default, Unlimited, "a"},
		"changed to the system quota":  {"x", "a", System, Unlimited, "a"},
		"changed to none that exists":  {"x", "a", "gone", NoQuota, "a"},
		"changed to the root":          {"x", "a", Root, NoQuota, "a"},
		"changed":                      {"x", "a", "b", "", "b"},
		"changed to one without room":  {"x", "a", "full", RuntimeLimit, "full"},
		"removed where a list has it":  {"listed", "a", "", "", "team"},
		"added over that of a list":    {"listed", "", "a", "", "a"},
		"system over that of a list":   {"listed", "", System, Unlimited, "team"},
		"default over that of a list":  {"listed", "", Default, Unlimited, "team"},
		"added to a pod in no quota":   {"x", "", "a", "", "a"},
		"system for a pod in no quota": {"x", "", System, "", System},
		"kept":                         {"x", "a", "a", "", "a"},
		"kept, of a pod in no quota":   {"x", "", "", "", Default},
	} {
		for _, recorded := range []bool{true, false} {
			a := NewAccount(Config{ScaleMin: true}, Rules{})
			a.SetNodes(amount.List{cpuName: 1000})
			for _, s := range quotas {
				a.Set(s)
			}
			p := pending("p", c.was, 10, onNode)
			p.Namespace = c.namespace
			a.Put(p)
			if m, _ := a.Find("p"); recorded && !a.isFree(m.Quota) {
				p.Bound = m.Quota.Name()
				a.Put(p)
			}
			was := a.Hash()
			p.Quota = c.label
			x := a.AdmitChange(p)
			if x != nil {
				if x.LimitKind != c.want {
					t.Errorf("%s: refused for %s (%v), want %q", name, x.LimitKind, x, c.want)
				}
			} else if c.want != "" {
				t.Errorf("%s: admitted, want %s", name, c.want)
			}
			if a.Hash() != was {
				t.Errorf("%s: the question changed the account", name)
			}
			a.Put(p)
			m, _ := a.Find("p")
			if recorded && m.Quota.Name() != c.quota {
				t.Errorf("%s: without a webhook it counts in %s, want %s", name, m.Quota.Name(), c.quota)
			}
			if used := m.Quota.Amount(Used, a.forest.Dimension(cpuName)); used != 10 {
				t.Errorf("%s: %s uses %d, want 10", name, m.Quota.Name(), used)
			}
			if recorded && c.quota == "a" && c.label != "a" { // a resize is not asked about the label
				p.Amounts = amount.List{cpuName: 20}
				if x := a.AdmitChange(p); x != nil {
					t.Errorf("%s: a resize after it is refused: %v", name, x)
				}
			}
		}
	}
	// The list of a quota is edited under its running pods.
	a := NewAccount(Config{}, Rules{})
	team := quotas[3]
	a.Set(team)
	p := pending("p", "", 10, onNode, func(p *Pod) { p.Namespace, p.Bound = "listed", "team" })
	a.Put(p)
	a.Put(pending("new", "", 5, func(p *Pod) { p.Namespace, p.Bound = "listed", "team" }))
	team.Namespaces = nil
	a.Set(team)
	q := a.Forest().Find("team")
	if used, request := q.Amount(Used, 0), q.Amount(Request, 0); used != 10 || request != 10 {
		t.Errorf("of a namespace that left the list: used %d, request %d, want 10 of the bound pod", used, request)
	}
	if n := len(a.Members(q)); n != 1 {
		t.Errorf("%d members, want the bound pod", n)
	}
	if x := NewChecker(World{Quotas: []Spec{team}, Pods: a.Counts()}).Check(Change{Old: &team}); len(x) == 0 {
		t.Error("the quota of a bound pod can be deleted")
	}
}

package ledger_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const gibi = 1 << 30

// follows are the facts of a node in Follow mode, whose kubelet is static and whose topology policy is the given one.
func follows(tb interface{ Fatalf(string, ...any) }, m *topo.Machine, policy hint.Policy) ledger.Facts {
	behaviour, _ := kubelet.ModelOf("v1.36.3")
	zones := make([]map[string]int64, m.NumNUMA())
	for i := range zones {
		zones[i] = map[string]int64{"memory": 8 * gibi}
	}
	node, reason := kubelet.NewNode(m, kubelet.Config{
		Model: behaviour, CPU: kubelet.CPU{Static: true, Reserved: cpuset.Of(0)}, Memory: kubelet.Memory{Static: true},
		Topology: kubelet.Topology{Policy: policy},
	}, kubelet.Inventory{Zones: zones, Devices: []kubelet.DeviceSet{{
		Resource: "x.io/d", Nodes: 1, Registered: 4,
		Healthy: 3,
	}}})
	if !reason.OK() {
		tb.Fatalf("the kubelet of the test is refused: %+v", reason)
	}
	return ledger.Facts{
		Machine: m, Mode: ledger.Follow,
		MinSharedCPUs: -1,
		Model: kubelet.Facts{
			Node: node, Config: node.Config(), Devices: []string{"x.io/d"}, Gen: 1,
		},
	}
}

// guaranteed is a pod of one container.
func guaranteed(uid string, cpus int, bytes int64, devices int64) *kubelet.Pod {
	c := kubelet.Container{Name: "c", CPUs: cpus}
	if bytes > 0 {
		c.Memory = []kubelet.Amount{{Name: "memory", N: bytes}}
	}
	if devices > 0 {
		c.Devices = []kubelet.Amount{{Name: "x.io/d", N: devices}}
	}
	return &kubelet.Pod{UID: uid, Guaranteed: true, Containers: []kubelet.Container{c}}
}

func entryOf(p *kubelet.Pod, created int64, prediction *tenancy.Prediction) ledger.Entry {
	return ledger.Entry{
		UID: p.UID, Namespace: "ns", Name: p.UID,
		Guest: &tenancy.Guest{Pod: p, Created: created, Prediction: prediction},
	}
}

// predict is the offer that follows the kubelet of v.
func predict(v *ledger.View, p *kubelet.Pod, created int64) (ledger.Offer, bool) {
	_, placement, refusal := v.Kubelet().Admit(p)
	if refusal != nil {
		return ledger.Offer{}, false
	}
	m := &v.Facts().Model
	return ledger.Offer{
		Entry: entryOf(p, created,
			&tenancy.Prediction{Model: m.Release(), Gen: m.Gen, Held: kubelet.HeldOf(v.Machine(), placement)}),
		Version: v.Version(),
	}, true
}

// answers are what the kubelet of a view has given, and what it says to pods that have not been requested yet.
func answers(v *ledger.View) map[string]string {
	out := map[string]string{}
	if v.Kubelet() == nil {
		return out
	}
	for uid, p := range v.Kubelet().Placements() {
		out["has "+uid] = fmt.Sprintf("%+v", kubelet.HeldOf(v.Machine(), p))
	}
	for _, probe := range []*kubelet.Pod{
		guaranteed("p1", 1, gibi, 0), guaranteed("p2", 3, 2*gibi, 1), guaranteed("p3", 6, 9*gibi, 0),
		guaranteed("p4", 0, 0, 2),
	} {
		_, p, refusal := v.Kubelet().Admit(probe)
		if refusal != nil {
			out["asks "+probe.UID] = fmt.Sprintf("%s %+v", refusal.Status, refusal.Reason)
		} else {
			out["asks "+probe.UID] = fmt.Sprintf("%+v", kubelet.HeldOf(v.Machine(), p))
		}
	}
	return out
}

// TestTheKubeletsAccountEqualsARebuild is L1 to L6 for what kubelets give: after any history of reservations, reverts,
// bindings, pods of others, reports that are right, wrong, stale or repeated, and departures, the live account is the
// one that is built from the last facts and entries alone, in any order.
func TestTheKubeletsAccountEqualsARebuild(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t)
		facts := follows(t, m, rapid.SampledFrom([]hint.Policy{
			hint.None, hint.BestEffort, hint.Restricted,
			hint.SingleNUMANode,
		}).Draw(t, "policy"))
		history := []ledger.Facts{facts}
		live := ledger.New(facts)
		entries := map[string]ledger.Entry{}
		offers := map[string]ledger.Offer{}
		pods := 0
		draw := func() (*kubelet.Pod, int64) {
			pods++
			return guaranteed(fmt.Sprintf("%c%d", 'a'+rune(rapid.IntRange(0, 3).Draw(t, "name")), pods),
					rapid.IntRange(0, 4).Draw(t, "cpus"),
					int64(rapid.SampledFrom([]int{0, 1, 3, 9}).Draw(t, "GiB"))*gibi,
					int64(rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "devices"))),
				int64(rapid.IntRange(0, 3).Draw(t, "created"))
		}
		some := func() (string, bool) {
			uids := slices.Sorted(maps.Keys(entries))
			if len(uids) == 0 {
				return "", false
			}
			return rapid.SampledFrom(uids).Draw(t, "uid"), true
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			before := live.View()
			switch step := rapid.IntRange(0, 8).Draw(t, "step"); step {
			case 0, 1: // reserve
				p, created := draw()
				o, ok := predict(before, p, created)
				if !ok {
					seen["refused"]++
					continue
				}
				if err := live.Commit(o); err != nil {
					t.Fatalf("commit: %v", err)
				}
				if err := live.Commit(o); !errors.Is(err, ledger.ErrExpired) {
					t.Fatalf("the same offer again: %v, want ErrExpired", err)
				}
				offers[p.UID], entries[p.UID] = o, o.Entry
				if s := live.View().Tenancy().Assignment(p.UID); s != nil && s.Source != tenancy.Predicted {
					t.Fatalf("a pod that was just reserved is %s", s.Source)
				}
			case 2: // unreserve: the identity, right after
				p, created := draw()
				if o, ok := predict(before, p, created); ok {
					if err := live.Commit(o); err != nil {
						t.Fatalf("commit: %v", err)
					}
					live.Revert(o)
					live.Revert(o)
					if diff := cmp.Diff(answers(before), answers(live.View())); diff != "" {
						t.Fatalf("reserve and unreserve (-before +after):\n%s", diff)
					}
				}
			case 3: // the API confirms a pod, or another scheduler binds one
				if uid, ok := some(); ok && rapid.Bool().Draw(t, "known") {
					live.Put(entries[uid])
					continue
				}
				p, created := draw()
				entries[p.UID] = entryOf(p, created, nil)
				live.Put(entries[p.UID])
			case 4: // the pod ends
				if uid, ok := some(); ok {
					others := map[string]string{}
					for _, s := range before.Tenancy().Assignments() {
						if s.Source <= tenancy.Predicted && s.Source != tenancy.Pinned && s.UID != uid {
							others[s.UID] = fmt.Sprint(s.Placement)
						}
					}
					live.Remove(uid)
					delete(entries, uid)
					for other, had := range others { // L5
						if s := live.View().Tenancy().Assignment(other); s.Source <= tenancy.Predicted &&
							fmt.Sprint(s.Placement) != had {
							t.Fatalf("when %s ended %s changed from %s to %v", uid, other, had, s.Placement)
						}
					}
				}
			case 5, 6: // a report, right or wrong
				f := facts
				f.Model.Gen = history[len(history)-1].Model.Gen + 1
				f.Given = nil
				for _, s := range before.Tenancy().Assignments() {
					held := kubelet.HeldOf(m, s.Placement)
					switch rapid.IntRange(0, 5).Draw(t, "report "+s.UID) {
					case 0: // not yet
						continue
					case 1:
						held = []kubelet.Held{{Container: "c", CPUList: m.FormatList(drawCPUs(t, m))}}
						seen["wrong"]++
					case 2:
						f.Given = append(f.Given, tenancy.Grant{UID: s.UID, CPUs: drawCPUs(t, m)})
						continue
					}
					f.Given = append(f.Given, tenancy.Grant{UID: s.UID, Placement: kubelet.PlacementOf(m, held)})
				}
				if rapid.Bool().Draw(t, "an unknown pod") {
					f.Given = append(f.Given, tenancy.Grant{
						UID:       "outsider",
						Placement: kubelet.PlacementOf(m, []kubelet.Held{{Container: "c", CPUList: "1"}}),
					})
				}
				facts = f
				history = append(history, f)
				live.SetFacts(f)
			case 8: // predict a pod again, as if the others were not there, where the API has not confirmed it yet
				uid, ok := some()
				if !ok {
					continue
				}
				was, reserved := offers[uid]
				if !reserved {
					continue
				}
				bare := before
				for other := range entries {
					bare = bare.Without(other)
				}
				predicted, ok := predict(bare, was.Entry.Guest.Pod, was.Entry.Guest.Created)
				if !ok {
					continue
				}
				if err := live.Amend(was, predicted); !errors.Is(err, ledger.ErrExpired) {
					t.Fatalf("amend with an offer of no version of the account: %v, want ErrExpired", err)
				}
				predicted.Version = before.Version()
				switch err := live.Amend(was, predicted); {
				case err == nil:
					offers[uid], entries[uid] = predicted, predicted.Entry
					seen["amended"]++
				case !errors.Is(err, ledger.ErrExpired) || live.View() != before:
					t.Fatalf("amend: %v, want ErrExpired and nothing changed", err)
				}
			case 7: // an old report once more
				facts = rapid.SampledFrom(history).Draw(t, "old report")
				live.SetFacts(facts)
				seen["stale"]++
			}
			v := live.View()
			for _, s := range v.Tenancy().Assignments() {
				seen[s.Source.String()]++
				if p := s.Prediction; s.Source == tenancy.Reported && p != nil && facts.Model.Gen <= p.Gen {
					// L4
					t.Fatalf("%s was predicted on report %d and counts as reported by %d", s.UID, p.Gen,
						facts.Model.Gen)
				}
			}
			shuffled := rapid.Permutation(slices.Collect(maps.Values(entries))).Draw(t, "order")
			rebuilt := ledger.New(facts, shuffled...).View()
			if !v.Equal(rebuilt) {
				t.Fatalf("live and rebuilt differ:\n%s", cmp.Diff(assignmentsOf(rebuilt), assignmentsOf(v)))
			}
			if diff := cmp.Diff(answers(rebuilt), answers(v)); diff != "" { // L6
				t.Fatalf("the kubelet answers otherwise (-rebuilt +live):\n%s", diff)
			}
			taken := cpuset.Set{} // L1: what is taken is what the entries have
			for _, s := range v.Tenancy().Assignments() {
				for _, g := range s.Placement {
					taken.Include(&g.CPUs)
				}
			}
			if got := v.KubeletStatic(); !taken.SubsetOf(&got) {
				t.Fatalf("pods have CPUs %v, the pools lost %v", taken, got)
			}
		}
		_ = offers
	})
	for _, kind := range []string{
		"refused", "wrong", "stale", "amended", "reported", "pinned", "predicted",
		"computed",
	} {
		if seen[kind] == 0 {
			t.Errorf("never %s: the generator is too narrow", kind)
		}
	}
}

func drawCPUs(t *rapid.T, m *topo.Machine) cpuset.Set {
	online := m.Online().Slice()
	return cpuset.Of(rapid.SliceOfNDistinct(rapid.SampledFrom(online), 0, min(3, len(online)), rapid.ID).Draw(t,
		"CPUs")...)
}

func assignmentsOf(v *ledger.View) []string {
	var out []string
	for _, s := range v.Tenancy().Assignments() {
		out = append(out, fmt.Sprintf("%s %s %v %v", s.UID, s.Source, s.Refused, s.Placement))
	}
	return out
}

func TestAReportCountsMoreThanAPrediction(t *testing.T) {
	t.Parallel()
	m := worked(t)
	facts := follows(t, m, hint.Restricted)
	l := ledger.New(facts)
	for i, uid := range []string{"a", "b"} {
		o, ok := predict(l.View(), guaranteed(uid, 2, gibi, 0), int64(i))
		if !ok {
			t.Fatalf("%s is refused", uid)
		}
		testkit.Check(t, l.Commit(o))
	}
	where := func() string {
		out := ""
		for _, s := range l.View().Tenancy().Assignments() {
			out += fmt.Sprintf("%s %s %s; ", s.UID, s.Source, m.FormatList(s.Placement[0].CPUs))
		}
		return out
	}
	report := func(gen int64, placed ...tenancy.Grant) {
		f := facts
		f.Model.Gen, f.Given = gen, placed
		l.SetFacts(f)
	}
	actual := func(uid, cpus string) tenancy.Grant {
		return tenancy.Grant{UID: uid, Placement: kubelet.PlacementOf(m, []kubelet.Held{{
			Container: "c", CPUList: cpus,
			Memory: []kubelet.HeldMemory{{Type: "memory", NUMAIDs: []int{0}, Bytes: gibi}},
		}})}
	}
	steps := []struct {
		name   string
		report func()
		want   string
	}{
		{"before any report both are predicted", func() {}, "a predicted 1,17; b predicted 2,18; "},
		{
			"a report of the generation that was predicted on is too old", func() { report(1, actual("a", "3,19")) },
			"a predicted 1,17; b predicted 2,18; ",
		},
		{
			"a right report leaves the other prediction", func() { report(2, actual("a", "1,17")) },
			"a reported 1,17; b predicted 2,18; ",
		},
		{
			"after a wrong one the other pod is computed again", func() { report(3, actual("a", "2,18")) },
			"a reported 2,18; b computed 1,17; ",
		},
		{
			"until the node reports it", func() { report(4, actual("a", "2,18"), actual("b", "3,19")) },
			"a reported 2,18; b reported 3,19; ",
		},
		{
			"a report that does not mention a pod leaves it", func() { report(5, actual("b", "2,18")) },
			"a predicted 1,17; b reported 2,18; ",
		},
	}
	for _, s := range steps {
		before := l.View()
		s.report()
		if got := where(); got != s.want {
			t.Errorf("%s:\n got %s\nwant %s", s.name, got, s.want)
		}
		for _, c := range l.View().Tenancy().Confirmations(before.Tenancy()) {
			if right := c.Difference == 0; right != (s.name == "a right report leaves the other prediction" ||
				c.UID == "b" && s.name == steps[5].name) {
				t.Errorf("%s: %s differs by %d", s.name, c.UID, c.Difference)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	m := worked(t)
	given := func(cpus string, nodes topo.NodeSet, bytes int64, devices ...kubelet.Devices) kubelet.Placement {
		g := kubelet.Given{Container: "c", Hint: hint.Hint{Mask: nodes}, CPUs: cpuset.MustParse(cpus), Devices: devices}
		if bytes > 0 {
			g.Memory = []kubelet.Block{{Type: "memory", Nodes: nodes, Bytes: bytes}}
		}
		return kubelet.Placement{g}
	}
	tests := map[string]struct {
		predicted, actual kubelet.Placement
		want              tenancy.Difference
	}{
		"the same":               {given("1-2", 1, gibi), given("1-2", 1, gibi), 0},
		"other CPUs of the node": {given("1-2", 1, gibi), given("2-3", 1, gibi), tenancy.DifferentCPUs},
		"another node":           {given("1-2", 1, gibi), given("4-5", 2, gibi), tenancy.DifferentMask},
		"less memory": {
			given("1-2", 1, gibi), given("1-2", 1, gibi/2),
			tenancy.DifferentMemory,
		},
		"nothing at all": {given("1-2", 1, 0), nil, tenancy.DifferentMask},
		"another device of the mask": {
			given("", 3, 0, kubelet.Devices{Resource: "d", Nodes: 1, Count: 1}),
			given("", 0, 0, kubelet.Devices{Resource: "d", Nodes: 2, Count: 1}), 0,
		},
		"a device outside of the mask": {
			given("", 1, 0, kubelet.Devices{Resource: "d", Nodes: 1, Count: 1}),
			given("", 0, 0, kubelet.Devices{Resource: "d", Nodes: 2, Count: 1}), tenancy.DifferentDevices,
		},
		"one device more": {
			given("", 1, 0, kubelet.Devices{Resource: "d", Nodes: 1, Count: 1}),
			given("", 1, 0, kubelet.Devices{Resource: "d", Nodes: 1, Count: 2}), tenancy.DifferentDevices,
		},
		"a hint that is missing from the report does not differ": {given("1", 1, 0), given("1", 0, 0), 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tenancy.CompareOn(m, tt.predicted, tt.actual); got != tt.want {
				t.Errorf("CompareOn(%v, %v) = %b, want %b", tt.predicted, tt.actual, got, tt.want)
			}
		})
	}
}

// A pod that ends while others remain costs a With or a Without, whatever the number of pods.
func BenchmarkPutGuest(b *testing.B) {
	for _, pods := range []int{10, 50, 100} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			m := grid.Machine{Sockets: 2, Nodes: 4, Cores: 16, Threads: 2}.Build(b)
			l := ledger.New(follows(b, m, hint.Restricted))
			var last ledger.Entry
			for i := range pods {
				o, ok := predict(l.View(), guaranteed(fmt.Sprintf("u%d", i), 2, 1<<20, 0), int64(i))
				if !ok {
					b.Fatalf("pod %d is refused", i)
				}
				if err := l.Commit(o); err != nil {
					b.Fatal(err)
				}
				last = o.Entry
			}
			v := l.View()
			without := v.Without(last.UID)
			b.ReportAllocs()
			for b.Loop() {
				without.With(last)
			}
		})
	}
}

// TestAReportOfAPodThatIsHalfAdmittedIsNone: the kubelet gives the containers of a pod their CPUs one after the other,
// and an agent may read its record in between.
func TestAReportOfAPodThatIsHalfAdmittedIsNone(t *testing.T) {
	t.Parallel()
	m := worked(t)
	facts := follows(t, m, hint.Restricted)
	pod := &kubelet.Pod{UID: "p", Guaranteed: true, Containers: []kubelet.Container{
		{Name: "setup", Role: kubelet.Init, CPUs: 1, Memory: []kubelet.Amount{{Name: "memory", N: gibi}}},
		{Name: "main", CPUs: 2, Memory: []kubelet.Amount{{Name: "memory", N: gibi}}},
		{Name: "side", CPUs: 1, Memory: []kubelet.Amount{{Name: "memory", N: gibi}}},
	}}
	l := ledger.New(facts)
	offer, ok := predict(l.View(), pod, 1)
	if !ok {
		t.Fatal("the pod of the test is refused")
	}
	l.Put(offer.Entry)
	held := map[string]kubelet.Held{}
	for _, h := range offer.Entry.Guest.Prediction.Held {
		held[h.Container] = h
	}
	before := l.View()
	facts.Model.Gen = 2
	facts.Given = []tenancy.Grant{{UID: "p", Placement: kubelet.PlacementOf(m, []kubelet.Held{held["main"]})}}
	l.SetFacts(facts)
	if s := l.View().Tenancy().Assignment("p"); s.Source != tenancy.Predicted ||
		l.View().KubeletStatic() != before.KubeletStatic() {
		t.Errorf("half a report counts: the pod is %s, taken are %s of %s", s.Source,
			m.FormatList(l.View().KubeletStatic()), m.FormatList(before.KubeletStatic()))
	}
	if news := l.View().Tenancy().Confirmations(before.Tenancy()); len(news) != 0 {
		t.Errorf("half a report confirms or contradicts: %+v", news)
	}
	facts.Model.Gen = 3
	facts.Given = []tenancy.Grant{{
		UID: "p", Placement: kubelet.PlacementOf(m, []kubelet.Held{held["main"], held["side"]}),
	}}
	l.SetFacts(facts)
	if s := l.View().Tenancy().Assignment("p"); s.Source != tenancy.Reported {
		t.Errorf("a report without the init container, which has ended, does not count: the pod is %s", s.Source)
	}
	if news := l.View().Tenancy().Confirmations(before.Tenancy()); len(news) != 1 || news[0].Difference != 0 {
		t.Errorf("the whole report does not confirm the prediction: %+v", news)
	}
}

package place_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// guardedFacts are those of a machine with nodes NUMA nodes of 4 cores × 2 threads under a kubelet that is predicted.
func guardedFacts(tb interface {
	Helper()
	Fatalf(string, ...any)
}, nodes int, mode ledger.Mode,
	policy hint.Policy,
) ledger.Facts {
	var s topo.Spec
	for c := range nodes * 8 {
		core := c % (nodes * 4)
		s.CPUs = append(s.CPUs, topo.CPUSpec{ID: c, Core: core, L3: -1, NUMA: core / 4, Socket: core / 4})
	}
	m := grid.Build(tb, s)
	behaviour, _ := kubelet.ModelOf("v1.36.3")
	zones := make([]map[string]int64, nodes)
	for i := range zones {
		zones[i] = map[string]int64{"memory": 100}
	}
	node, reason := kubelet.NewNode(m, kubelet.Config{
		Model: behaviour, CPU: kubelet.CPU{Static: true, Reserved: cpuset.Of(0)}, Memory: kubelet.Memory{Static: true},
		Topology: kubelet.Topology{Policy: policy},
	}, kubelet.Inventory{Zones: zones})
	if !reason.OK() {
		tb.Fatalf("NewNode: %+v", reason)
	}
	return ledger.Facts{
		Machine: m, Mode: mode,
		Model: kubelet.Facts{
			Node: node, Config: node.Config(), Gen: 5,
		},
	}
}

func guestOf(uid string, cpus int, bytes int64) *kubelet.Pod {
	c := kubelet.Container{Name: "c", CPUs: cpus}
	if bytes > 0 {
		c.Memory = []kubelet.Amount{{Name: "memory", N: bytes}}
	}
	return &kubelet.Pod{UID: uid, Guaranteed: true, Containers: []kubelet.Container{c}}
}

// pinnedRequest is a Guaranteed pod of n CPUs.
func pinnedRequest(uid string, n int, bytes int64) *place.Request {
	r := &place.Request{
		UID: uid, Namespace: "ns", Name: uid, RequestMilli: int64(n) * 1000,
		LimitMilli: int64(n) * 1000, Kubelet: guestOf(uid, n, bytes),
	}
	return r
}

// TestWhatFitsAKubeletIsGranted is L7 where kubelets are predicted, and M1 and M2 of the offers: on one view Fits
// accepts exactly when Try does, the offer can be committed, in Follow mode it names no CPUs of ours and the kubelet,
// asked in that order, gives what was predicted. A prediction that says it is uncertain need not come true: a kubelet
// under best-effort can give memory of a NUMA node that is in a group already, and then the order of all pods counts,
// which the account does not keep.
func TestWhatFitsAKubeletIsGranted(t *testing.T) {
	t.Parallel()
	granted, refused, unaligned, uncertain := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]hint.Policy{
			hint.None, hint.BestEffort, hint.Restricted,
			hint.SingleNUMANode,
		}).Draw(t, "policy")
		mode := rapid.SampledFrom([]ledger.Mode{ledger.Follow, ledger.Follow, ledger.Own}).Draw(t, "mode")
		facts := guardedFacts(t, rapid.IntRange(1, 3).Draw(t, "NUMA nodes"), mode, policy)
		facts.Topology = rapid.SampledFrom([]hint.Policy{
			0, 0, hint.Restricted,
			hint.SingleNUMANode,
		}).Draw(t, "node policy")
		facts.Bind = rapid.SampledFrom([]ledger.NodeBind{0, 0, ledger.FullPCPUsOnly, ledger.SpreadByPCPUs}).Draw(t,
			"node bind")
		l := ledger.New(facts)
		replay := facts.Model.Node.Empty()
		for i := range rapid.IntRange(1, 6).Draw(t, "pods") {
			r := pinnedRequest(fmt.Sprintf("p%d", i), rapid.IntRange(0, 9).Draw(t, "cpus"),
				int64(rapid.SampledFrom([]int{1, 20, 60, 150}).Draw(t, "bytes")))
			if r.Kubelet.CPUs() > 0 && rapid.Bool().Draw(t, "binds") {
				r.Class, r.Role, r.CPUs = qos.LSR, qos.ExclusiveWithBE, r.Kubelet.CPUs()
				r.Required = rapid.SampledFrom([]place.BindWish{
					0, place.WantFullPCPUs,
					place.WantSpreadByPCPUs,
				}).Draw(t, "required")
			}
			r.Topology = rapid.SampledFrom([]hint.Policy{
				0, 0, hint.Restricted,
				hint.SingleNUMANode,
			}).Draw(t, "pod policy")
			r.NUMAExclusive = rapid.SampledFrom([]place.NUMAExclusive{0, 0, 1, 2}).Draw(t, "NUMA exclusive")
			v := l.View()
			fits := place.Fits(v, r)
			o, reason := place.Try(v, r)
			if fits != reason {
				t.Fatalf("Fits says %+v, Try says %+v", fits, reason)
			}
			if entry := fits.Code.Entry(); entry.Amount && fits.Free >= fits.Asked {
				t.Fatalf("refused for want of %d where %d are free: %+v", fits.Asked, fits.Free, fits)
			}
			if !reason.OK() {
				refused++
				if reason.Code == why.TopologyPolicy && mode == ledger.Follow {
					unaligned++
				}
				continue
			}
			if err := l.Commit(o); err != nil {
				t.Fatalf("commit: %v", err)
			}
			granted++
			if v.Kubelet() != nil && v.Kubelet().Uncertain(r.Kubelet) {
				if p := o.Entry.Guest.Prediction; p != nil && !p.Held[0].Uncertain {
					t.Fatalf("%s follows from an order that is not known, and is predicted as certain: %+v", r.UID, p)
				}
				uncertain++
				return
			}
			after, placement, refusal := replay.Admit(r.Kubelet)
			if refusal != nil {
				t.Fatalf("%s is granted, and rejected with %s", r.UID, refusal.Status)
			}
			replay = after
			if mode != ledger.Follow {
				continue
			}
			if r.Kubelet.CPUs() > 0 && (o.Entry.CPUList != "" || o.Entry.NUMAIDs != nil) {
				t.Fatalf("in Follow mode the offer names CPUs %q and nodes %v of ours", o.Entry.CPUList,
					o.Entry.NUMAIDs)
			}
			if p := o.Entry.Guest.Prediction; p != nil {
				if got, want := fmt.Sprint(kubelet.HeldOf(facts.Machine, placement)),
					fmt.Sprint(p.Held); got != want || p.Gen != 5 || p.Model != "1.36" {
					t.Fatalf("the kubelet gives %s, predicted was %s by %s on %d", got, want, p.Model, p.Gen)
				}
			} else if facts.Model.Concerns(r.Kubelet) {
				t.Fatalf("no prediction for %+v", r.Kubelet)
			}
			if r.CPUs > 0 && r.Required == place.WantFullPCPUs {
				checkWholeCores(t, facts.Machine, placement)
			}
		}
	})
	if granted == 0 || refused == 0 || unaligned == 0 || uncertain > granted/50 {
		t.Errorf("%d granted, %d of them with an uncertain prediction, %d refused, %d of them by a policy tighter "+
			"than the kubelet's: the generator is too narrow", granted, uncertain, refused, unaligned)
	}
}

func checkWholeCores(t *rapid.T, m *topo.Machine, p kubelet.Placement) {
	for _, g := range p {
		for c := range g.CPUs.All() {
			for _, sibling := range m.CoreCPUs(m.CoreOf(topo.CPU(c))) {
				if !g.CPUs.Has(int(sibling)) {
					t.Fatalf("FullPCPUs is required and CPU %d is allocated without %d", c, sibling)
				}
			}
		}
	}
}

// TestFewUnconfirmedPodsAreTriedInEveryOrder compares with all permutations, made the dull way.
func TestFewUnconfirmedPodsAreTriedInEveryOrder(t *testing.T) {
	t.Parallel()
	fragile := 0
	rapid.Check(t, func(t *rapid.T) {
		facts := guardedFacts(t, 2, ledger.Follow,
			rapid.SampledFrom([]hint.Policy{hint.BestEffort, hint.Restricted, hint.SingleNUMANode}).Draw(t, "policy"))
		l := ledger.New(facts)
		var pods []*kubelet.Pod
		for i := range rapid.IntRange(0, 5).Draw(t, "unconfirmed") {
			r := pinnedRequest(fmt.Sprintf("u%d", i), rapid.IntRange(1, 7).Draw(t, "cpus"),
				int64(rapid.IntRange(1, 60).Draw(t, "bytes")))
			if o, reason := place.Try(l.View(), r); reason.OK() {
				if err := l.Commit(o); err != nil {
					t.Fatalf("commit: %v", err)
				}
				pods = append(pods, r.Kubelet)
			}
		}
		r := pinnedRequest("p", rapid.IntRange(1, 8).Draw(t, "cpus"), int64(rapid.IntRange(1, 60).Draw(t, "bytes")))
		want := l.View().Kubelet().Fits(r.Kubelet).OK()
		robust := want
		if facts.Model.Config.Topology.Policy >= hint.Restricted && len(pods) <= 3 {
			permute(append(pods, r.Kubelet), func(order []*kubelet.Pod) {
				state := facts.Model.Node.Empty()
				for _, p := range order {
					after, _, refusal := state.Admit(p)
					if refusal != nil {
						robust = false
						return
					}
					state = after
				}
			})
		}
		if got := place.Fits(l.View(), r).OK(); got != robust {
			t.Fatalf("Fits = %v, in every order %v", got, robust)
		}
		if want && !robust {
			fragile++
		}
		last := len(pods) > 3 && facts.Model.Config.Topology.Policy >= hint.Restricted && want
		if got := place.Score(l.View(), r, place.Usage{}, cpualloc.LeastAllocated); robust && (got == 0) != last {
			t.Fatalf("with %d unconfirmed pods the score is %d", len(pods), got)
		}
	})
	if fragile == 0 {
		t.Error("the order never decided: the generator is too narrow")
	}
}

func permute(pods []*kubelet.Pod, yield func([]*kubelet.Pod)) {
	var walk func(done, rest []*kubelet.Pod)
	walk = func(done, rest []*kubelet.Pod) {
		if len(rest) == 0 {
			yield(done)
		}
		for i := range rest {
			left := append(append([]*kubelet.Pod{}, rest[:i]...), rest[i+1:]...)
			walk(append(append([]*kubelet.Pod{}, done...), rest[i]), left)
		}
	}
	walk(nil, pods)
}

func TestSignaturesTellKubeletsRequestsApart(t *testing.T) {
	t.Parallel()
	base := func() *place.Request { return pinnedRequest("p", 2, 10) }
	seen := map[string]string{base().Signature(): "the base"}
	for name, change := range map[string]func(*place.Request){
		"more memory": func(r *place.Request) { r.Kubelet.Containers[0].Memory[0].N = 11 },
		"a device": func(r *place.Request) {
			r.Kubelet.Containers[0].Devices = []kubelet.Amount{{
				Name: "d",
				N:    1,
			}}
		},
		"an init container": func(r *place.Request) { r.Kubelet.Containers[0].Role = kubelet.Init },
		"a second container": func(r *place.Request) {
			r.Kubelet.Containers = append(r.Kubelet.Containers, kubelet.Container{CPUs: 1})
		},
		"another class":         func(r *place.Request) { r.Kubelet.Guaranteed = false },
		"pod-level resources":   func(r *place.Request) { r.Kubelet.PodLevel = true },
		"no business of theirs": func(r *place.Request) { r.Kubelet = nil },
	} {
		r := base()
		change(r)
		if other, known := seen[r.Signature()]; known {
			t.Errorf("%s and %s are signed alike: %s", name, other, r.Signature())
		}
		seen[r.Signature()] = name
	}
	other := pinnedRequest("q", 2, 10)
	other.Created, other.Kubelet.Containers[0].Name = 7, "d"
	if other.Signature() != base().Signature() {
		t.Error("who asks, and when, changes the signature")
	}
}

// TestAKubeletsChoiceKeepsToSingleNUMANodeExclusive has 2 NUMA nodes of 8 CPUs whose kubelet chooses, without a policy
// of its own or with that of the pod.
func TestAKubeletsChoiceKeepsToSingleNUMANodeExclusive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kubelet, pod hint.Policy
		held         []int // CPUs of the containers of the pod that is there
		spans        bool  // That pod uses both NUMA nodes.
		want         place.NUMAExclusive
		code         why.Code
	}{
		"required, beside a pod that spans both": {
			hint.None, hint.SingleNUMANode, []int{9}, true, place.RequireNUMAExclusive, why.NUMANodeShared,
		},
		"required under restricted, beside a pod that spans both": {
			hint.Restricted, hint.Restricted, []int{6, 4}, true, place.RequireNUMAExclusive, why.NUMANodeShared,
		},
		"required under best-effort, beside a pod that spans both": {
			hint.BestEffort, hint.BestEffort, []int{6, 4}, true, place.RequireNUMAExclusive, why.None,
		},
		"preferred, beside a pod that spans both": {
			hint.None, hint.SingleNUMANode, []int{9}, true, place.PreferNUMAExclusive, why.None,
		},
		"required, beside a pod of one": {
			hint.None, hint.SingleNUMANode, []int{2}, false, place.RequireNUMAExclusive, why.None,
		},
		"required, on an empty machine": {
			hint.None, hint.SingleNUMANode, nil, false, place.RequireNUMAExclusive, why.None,
		},
	} {
		l := ledger.New(guardedFacts(t, 2, ledger.Follow, c.kubelet))
		if len(c.held) > 0 {
			r := pinnedRequest("held", c.held[0], 1)
			for _, cpus := range c.held[1:] {
				other := guestOf("", cpus, 1).Containers[0]
				other.Name = "d"
				r.Kubelet.Containers = append(r.Kubelet.Containers, other)
			}
			offer, reason := place.Try(l.View(), r)
			if err := l.Commit(offer); err != nil || !reason.OK() {
				t.Fatalf("%s: %v, %+v", name, err, reason)
			}
		}
		r := pinnedRequest("new", 2, 1)
		r.Topology, r.NUMAExclusive = c.pod, c.want
		if _, reason := place.Try(l.View(), r); reason.Code != c.code {
			t.Errorf("%s: got %+v, want %v", name, reason, c.code)
		}
		score := place.Score(l.View(), r, place.Usage{AllocatableMilliCPU: 1, AllocatableMemory: 1}, 0)
		if c.spans != (score == 0) {
			t.Errorf("%s: score %d", name, score)
		}
	}
}

// TestPodsDoNotLandOnGuessedKubeletsAsOnKnownOnes: a kubelet that the model does not know was ranked, and believed,
// like one that it knows.
func TestPodsDoNotLandOnGuessedKubeletsAsOnKnownOnes(t *testing.T) {
	t.Parallel()
	facts := func(mode ledger.Mode, trust kubelet.Trust) ledger.Facts {
		f := guardedFacts(t, 2, mode, hint.BestEffort)
		f.Model.Trust = trust
		return f
	}
	followed := func(trust kubelet.Trust) ledger.Facts { return facts(ledger.Follow, trust) }
	usage := place.Usage{MilliCPU: 4000, AllocatableMilliCPU: 16_000, AllocatableMemory: 200}
	score := func(f ledger.Facts, r *place.Request) int64 {
		return place.Score(ledger.New(f).View(), r, usage, cpualloc.LeastAllocated)
	}
	one, two, none := pinnedRequest("u", 4, 0), pinnedRequest("u", 10, 0), pinnedRequest("u", 0, 4)
	for name, tt := range map[string]struct {
		facts   ledger.Facts
		request *place.Request
		code    why.Code
		behind  bool
	}{
		"a known kubelet":                        {followed(kubelet.Trusted), one, why.None, false},
		"a guessed one":                          {followed(kubelet.Doubted), one, why.None, true},
		"a guessed one, on two NUMA nodes":       {followed(kubelet.Doubted), two, why.None, true},
		"a guessed one that is refused":          {followed(kubelet.Distrusted), one, why.KubeletAssumed, false},
		"a pod that it gives no CPUs":            {followed(kubelet.Distrusted), none, why.None, false},
		"a guessed one where Tenon chooses CPUs": {facts(ledger.Own, kubelet.Distrusted), one, why.None, false},
	} {
		v := ledger.New(tt.facts).View()
		fits := place.Fits(v, tt.request)
		if _, tried := place.Try(v, tt.request); fits.Code != tt.code || tried.Code != tt.code {
			t.Errorf("%s: Fits %v, Try %v, want %v", name, fits, tried, tt.code)
		}
		if tt.code != why.None {
			continue
		}
		known := score(facts(tt.facts.Mode, kubelet.Trusted), tt.request)
		if got := score(tt.facts, tt.request); tt.behind && (got < 1 || got > known/10) || !tt.behind && got != known {
			t.Errorf("%s: score %d of %d, behind %v", name, got, known, tt.behind)
		}
	}
	if a, b := score(followed(kubelet.Doubted), one), score(followed(kubelet.Doubted), two); a <= b {
		t.Errorf("among guessed kubelets one NUMA node scores %d, two %d", a, b)
	}
}

// TestAPodDoesNotGetCPUsThatAnotherPodHas: of 2 cores with 2 threads and 4 with one, the kubelet takes a core for free
// if one thread is, and gives both.
func TestAPodDoesNotGetCPUsThatAnotherPodHas(t *testing.T) {
	t.Parallel()
	var s topo.Spec
	for c, core := range []int{0, 0, 1, 1, 2, 3, 4, 5} {
		s.CPUs = append(s.CPUs, topo.CPUSpec{ID: c, Core: core, L3: -1})
	}
	m := grid.Build(t, s)
	behaviour, _ := kubelet.ModelOf("v1.36.3")
	node, reason := kubelet.NewNode(m, kubelet.Config{
		Model: behaviour, CPU: kubelet.CPU{Static: true, Reserved: cpuset.Of(7)},
	}, kubelet.Inventory{})
	if !reason.OK() {
		t.Fatalf("NewNode: %+v", reason)
	}
	for _, mode := range []ledger.Mode{ledger.Follow, ledger.Own} {
		facts := guardedFacts(t, 2, mode, hint.None)
		facts.Machine, facts.Model.Config.CPU.Reserved, facts.Model.Node = m, cpuset.Of(7), node
		l := ledger.New(facts)
		commit := func(uid string, cpus int) {
			t.Helper()
			offer, reason := place.Try(l.View(), pinnedRequest(uid, cpus, 0))
			if err := l.Commit(offer); err != nil || !reason.OK() {
				t.Fatalf("%v, pod %s: %v, %+v", mode, uid, err, reason)
			}
		}
		commit("small cores", 3)
		commit("a thread", 1)
		want := why.Reason{
			Code: why.KubeletSharesCPUs, Resource: why.CPU, Unit: why.CPUs, Asked: 2, Free: 1, Extra: 1,
		}
		r := pinnedRequest("two", 2, 0)
		_, tried := place.Try(l.View(), r)
		if fits := place.Fits(l.View(), r); fits != want || tried != want {
			t.Errorf("%v: Fits %+v, Try %+v, want %+v", mode, fits, tried, want)
		}
		commit("one", 1)
	}
}

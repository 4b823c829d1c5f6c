package place_test

import (
	"flag"
	"math/bits"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

// cases is how many random views each property meets, unless -rapid.checks says otherwise.
const cases = 3_000

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(cases)); err != nil {
		panic(err)
	}
	m.Run()
}

// TestFitsAcceptsExactlyWhatTryGrants is L8: Filter accepts if and only if Reserve succeeds on an unchanged node; and
// the ledger takes every offer.
func TestFitsAcceptsExactlyWhatTryGrants(t *testing.T) {
	t.Parallel()
	granted, refused := 0, map[why.Code]int{}
	rapid.Check(t, func(t *rapid.T) {
		v, r := drawView(t), drawRequest(t)
		fits := place.Fits(v, r)
		offer, reason := place.Try(v, r)
		if fits != reason {
			t.Fatalf("Fits says %+v, Try says %+v", fits, reason)
		}
		if !reason.OK() {
			refused[reason.Code]++
			checkReason(t, reason)
			return
		}
		granted++
		checkOffer(t, v, r, offer)
		account := ledger.New(*v.Facts(), entriesOf(v)...)
		offer, _ = place.Try(account.View(), r)
		if err := account.Commit(offer); err != nil {
			t.Fatalf("the offer does not commit: %v", err)
		}
	})
	t.Logf("%d granted, refused: %v", granted, refused)
	for _, code := range []why.Code{
		why.SMTAlignment, why.BindPolicyConflict, why.TopologyPolicy, why.InsufficientExclusiveCPU,
		why.SharedPoolTooSmall,
		why.SharedPoolCommitted, why.SharedPoolFloor, why.InsufficientKubeletCPU, why.CPURequestNotInteger,
	} {
		if refused[code] == 0 {
			t.Errorf("no random case was refused with %v: the generator is too narrow", code)
		}
	}
}

func entriesOf(v *ledger.View) []ledger.Entry {
	var entries []ledger.Entry
	for e := range v.Entries() {
		entries = append(entries, e)
	}
	return entries
}

// checkReason is W2: have is less than need for every code about an amount, unless there are no numbers.
func checkReason(t *rapid.T, r why.Reason) {
	if none := r.Asked == 0 && r.Free == 0; r.Code.Entry().Amount && !none && (r.Free < 0 || r.Free >= r.Asked) {
		t.Fatalf("%v says %d of %d", r.Code, r.Free, r.Asked)
	}
}

func checkOffer(t *rapid.T, v *ledger.View, r *place.Request, o ledger.Offer) {
	if o.Version != v.Version() {
		t.Fatalf("the offer has version %d, the view %d", o.Version, v.Version())
	}
	r = r.On(v.Facts())
	if o.Entry.Role != r.Role {
		t.Fatalf("the offer has role %v, want %v", o.Entry.Role, r.Role)
	}
	checkMemory(t, v, r, o)
	if r.CPUs == 0 {
		checkPool(t, v, r, o)
		return
	}
	m := v.Machine()
	free, isolated := v.Allocatable(), o.CPUs.Overlaps(&v.Facts().Isolated)
	if isolated {
		free = v.FreeIsolated()
	}
	if r.Isolated == place.RequireIsolated && !isolated || r.Isolated == place.AvoidIsolated && isolated {
		t.Fatalf("%v: isolated CPUs are %v, wish %v", o.CPUs, v.Facts().Isolated, r.Isolated)
	}
	if o.CPUs.Len() != r.CPUs || !o.CPUs.SubsetOf(&free) {
		t.Fatalf("%d CPUs asked, got %v of free %v", r.CPUs, o.CPUs, free)
	}
	if got := v.SharedPool().Minus(o.CPUs); !isolated && got.Len() < v.Floor() {
		t.Fatalf("the LS pool keeps %v, its floor is %d", got, v.Floor())
	}
	nodes := 0
	for i, n := range m.CPUNodes() {
		cpus := m.NUMACPUs(n)
		taken := o.CPUs.CountIn(&cpus)
		if taken > 0 {
			nodes++
		}
		remembers := slices.ContainsFunc(o.Entry.Amounts, func(a align.Amount) bool { return a.NUMAID == m.NUMAID(n) })
		if got := taken > 0 || remembers; got != (o.Nodes&(1<<i) != 0) {
			t.Fatalf("NUMA node %d: %d CPUs taken, memory %v, mask %b", i, taken, o.Entry.Amounts, o.Nodes)
		}
		if s := v.Summary().Nodes[i]; !isolated && taken > 0 && s.PoolMilli < 1000*int64(taken) {
			t.Fatalf("NUMA node %d has %d milli-CPU left and gives %d CPUs", i, s.PoolMilli, taken)
		}
	}
	effect, reason := place.EffectOn(v, r)
	if !reason.OK() {
		t.Fatalf("granted against %+v", reason)
	}
	if limit := allowedNodes(v, r, effect); nodes > limit {
		t.Fatalf("%v allows %d NUMA nodes, got %d", effect.Topology, limit, nodes)
	}
	if !effect.Required {
		return
	}
	for core := range m.NumCores() {
		online, taken := 0, 0
		for _, c := range m.CoreCPUs(topo.Core(core)) {
			all := m.Online()
			if all.Has(int(c)) {
				online++
			}
			if o.CPUs.Has(int(c)) {
				taken++
			}
		}
		if effect.Bind == cpualloc.FullPCPUs && taken != 0 && taken != online ||
			effect.Bind == cpualloc.SpreadByPCPUs && taken > 1 {
			t.Fatalf("required %v: core %d gives %d of %d CPUs", effect.Bind, core, taken, online)
		}
	}
}

// checkMemory holds the memory of an offer: all of each type that takes part, inside what is free, in whole pages.
func checkMemory(t *rapid.T, v *ledger.View, r *place.Request, o ledger.Offer) {
	policy := max(v.Facts().Topology, r.Topology)
	got := map[why.Resource]int64{}
	for _, a := range o.Entry.Amounts {
		got[a.Resource] += a.N
		free := align.Find(v.Summary().Rows, a.Resource)
		// ids of these machines are positions
		if free == nil || free.Free[a.NUMAID] < a.N || a.N <= 0 || a.N%free.Page != 0 {
			t.Fatalf("%+v of %+v", a, free)
		}
		if o.Nodes&(1<<a.NUMAID) == 0 {
			t.Fatalf("memory on NUMA node %d, which is not in %b", a.NUMAID, o.Nodes)
		}
	}
	for _, a := range r.Needs {
		known := align.Find(v.Summary().Rows, a.Resource) != nil
		want := int64(0)
		if policy >= hint.Restricted && known && o.Nodes != 0 || got[a.Resource] != 0 {
			want = a.N
		}
		if got[a.Resource] != want {
			t.Fatalf("%d bytes of %s, want %d: %+v", got[a.Resource], a.Resource, want, o.Entry.Amounts)
		}
		delete(got, a.Resource)
	}
	if len(got) > 0 || policy == hint.None && len(o.Entry.Amounts) > 0 {
		t.Fatalf("memory that was not asked, or without a policy: %+v", o.Entry.Amounts)
	}
}

// allowedNodes is how many NUMA nodes the topology policy allows, found by trying all sets on the empty machine.
func allowedNodes(v *ledger.View, r *place.Request, e place.Effect) int {
	m := v.Machine()
	nodes := len(m.CPUNodes())
	switch e.Topology {
	case hint.SingleNUMANode:
		return 1
	case hint.Restricted:
	default:
		return nodes
	}
	least := nodes
	online := m.Online()
	for mask := uint(1); mask < 1<<nodes; mask++ {
		holds := 0
		for i, n := range m.CPUNodes() {
			if mask&(1<<i) == 0 {
				continue
			}
			count := cpualloc.CountNode(m, n, &online)
			if e.Required && e.Bind == cpualloc.SpreadByPCPUs {
				holds += count.FreeCores
			} else {
				holds += count.Free
			}
		}
		if holds >= r.CPUs {
			least = min(least, bits.OnesCount(mask))
		}
	}
	return least
}

// checkPool holds the offer of an LS pod against all sets of NUMA nodes.
func checkPool(t *rapid.T, v *ledger.View, r *place.Request, o ledger.Offer) {
	if o.Nodes == 0 {
		return
	}
	s, promises := v.Summary(), poolOracle(v)
	need := r.RequestMilli
	if r.ConstrainedBurst {
		need = max(need, r.LimitMilli)
	}
	holds := func(mask uint64) bool {
		cpus := 0
		for i := range s.Nodes {
			if mask&(1<<i) != 0 {
				if s.Nodes[i].PoolCPUs == 0 {
					return false
				}
				cpus += s.Nodes[i].PoolCPUs
			}
		}
		for _, a := range r.Needs {
			s, left := align.Find(v.Summary().Rows, a.Resource), a.N
			if s == nil || !slices.ContainsFunc(o.Entry.Amounts,
				func(m align.Amount) bool { return m.Resource == a.Resource }) {
				continue // takes no part
			}
			for i, free := range s.Free {
				if mask&(1<<i) != 0 {
					left -= free
				}
			}
			if left > 0 {
				return false
			}
		}
		return int64(cpus) >= (need+999)/1000 && promises.promisable(uint(mask), r.RequestMilli)
	}
	if !holds(uint64(o.Nodes)) {
		t.Fatalf("NUMA nodes %b do not hold the pod: %+v", o.Nodes, s.Nodes)
	}
	for mask := uint64(1); mask < 1<<len(s.Nodes); mask++ {
		if bits.OnesCount64(mask) < o.Nodes.Len() && holds(mask) {
			t.Fatalf("NUMA nodes %b would do, got %b", mask, o.Nodes)
		}
	}
}

// TestAskingForWhatIsThereRemovesTheCode is the second half of W2, for asking: who asks for what the reason says is
// there is not refused with that code again.
func TestAskingForWhatIsThereRemovesTheCode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v, r := drawView(t), drawRequest(t)
		r = r.On(v.Facts())
		reason := place.Fits(v, r)
		switch reason.Code {
		case why.InsufficientExclusiveCPU, why.SharedPoolFloor, why.SharedPoolCommitted, why.TopologyPolicy:
		default:
			return
		}
		effect, _ := place.EffectOn(v, r)
		// which allows less to who asks less
		if r.CPUs == 0 || reason.Resource != why.CPU || reason.Free == 0 || effect.Topology == hint.Restricted {
			return
		}
		less := *r
		less.CPUs = int(reason.Free)
		if again := place.Fits(v, &less); again.Code == reason.Code && again.Resource == reason.Resource &&
			again.Where == reason.Where && again.Extra == reason.Extra {
			t.Fatalf("asked for %d of %+v, refused with %+v", less.CPUs, reason, again)
		}
	})
}

// TestEqualSignaturesGetEqualAnswers draws two requests that differ in all that a signature may leave out.
func TestEqualSignaturesGetEqualAnswers(t *testing.T) {
	t.Parallel()
	same := 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawRequest(t), drawRequest(t)
		if rapid.Bool().Draw(t, "related") {
			like := *a
			like.UID, like.Name, like.Default = b.UID, b.Name+"-2", b.Default
			like.Preferred = b.Preferred
			like.Topology, like.LimitMilli = b.Topology, b.LimitMilli
			b = &like
		}
		if a.Signature() != b.Signature() {
			return
		}
		same++
		v := drawView(t)
		if x, y := place.Fits(v, a), place.Fits(v, b); x != y {
			t.Fatalf("signature %q: %+v and %+v", a.Signature(), x, y)
		}
		x, _ := place.Try(v, a)
		y, _ := place.Try(v, b)
		if x.CPUs != y.CPUs || x.Nodes != y.Nodes {
			t.Fatalf("signature %q: %+v and %+v", a.Signature(), x, y)
		}
		u := place.Usage{MilliCPU: 3, AllocatableMilliCPU: 7, Memory: 1, AllocatableMemory: 2}
		if x, y := place.Score(v, a, u, 0), place.Score(v, b, u, 0); x != y {
			t.Fatalf("signature %q: scores %d and %d", a.Signature(), x, y)
		}
		if a.Concerns() != b.Concerns() {
			t.Fatalf("signature %q: concerns %v and %v", a.Signature(), a.Concerns(), b.Concerns())
		}
	})
	if same < 50 {
		t.Errorf("only %d cases had equal signatures: the generator is too wide", same)
	}
}

// TestConcernsNamesWhoIsTreatedSpecially holds what the scheduler leaves out: pods that concern no node, and pods that
// concern only nodes with a topology policy or a static kubelet on nodes without.
func TestConcernsNamesWhoIsTreatedSpecially(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v, r := drawView(t), drawRequest(t)
		f := v.Facts()
		everywhere := r.CPUs > 0 || r.ConstrainedBurst || r.Topology >= hint.Restricted
		here := everywhere || r.OnPolicyNodes != nil || f.Topology >= hint.Restricted || r.Kubelet != nil &&
			f.Model.Config.CPU.Static
		if r.Concerns() && here {
			return
		}
		offer, reason := place.Try(v, r)
		if !reason.OK() || offer.Entry.NUMAIDs != nil || offer.Entry.CPUList != "" || offer.Nodes != 0 {
			t.Fatalf("a pod that does not concern the node gets %+v, %+v", offer, reason)
		}
	})
}

// TestPromisesToLSPodsAreKept fills a machine pod by pod, removes some, lets other writers put and take what they like,
// and has a maximum flow from pods to pools decide every step: a pod is confined to NUMA nodes, and exclusive CPUs
// leave the pools, exactly when pods get as much of their promises as before, and the new pod all of its own.
func TestPromisesToLSPodsAreKept(t *testing.T) {
	t.Parallel()
	confined, exclusive, refused, spanning, indebted := 0, 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f := drawView(t).Facts()
		f.Model, f.Given = kubelet.Facts{}, nil
		account := ledger.New(*f)
		var uids []string
		for i := range rapid.IntRange(1, 12).Draw(t, "pods") {
			if len(uids) > 0 && rapid.IntRange(0, 4).Draw(t, "remove") == 0 {
				account.Remove(rapid.SampledFrom(uids).Draw(t, "victim"))
			}
			if rapid.IntRange(0, 15).Draw(t, "other writer") == 0 {
				e := ledger.Entry{
					UID: "other-" + strconv.Itoa(i), Class: qos.LS, Role: qos.SharedPool,
					MilliCPU: int64(rapid.IntRange(0, 20_000).Draw(t, "milli")),
					NUMAIDs:  rapid.SliceOfN(rapid.IntRange(0, f.Machine.NumNUMA()-1), 1, 4).Draw(t, "NUMA nodes"),
				}
				account.Put(e)
				uids = append(uids, e.UID)
			}
			r := drawRequest(t)
			r.UID = "pod-" + strconv.Itoa(i)
			before := account.View()
			o := poolOracle(before)
			offer, reason := place.Try(before, r)
			if o.served < o.promised() {
				indebted++
			}
			switch asked := r.On(f); {
			case asked.CPUs == 0 && !asked.Role.Binds():
				if code, _ := o.pool(asked); code != reason.Code {
					t.Fatalf("got %+v, want %v: %+v on %+v", reason, code, asked, o.pact)
				}
				confined++
			case reason.Code == why.SharedPoolCommitted:
				if taken := o.gives(asked); taken != nil {
					t.Fatalf("refused with %+v, and %v CPUs may leave: %+v", reason, taken, o.pact)
				}
				refused++
			}
			if !reason.OK() {
				continue
			}
			testkit.Check(t, account.Commit(offer))
			uids = append(uids, r.UID)
			after := account.View()
			if got, want := poolOracle(after).served, o.served+offer.Entry.MilliCPU; got != want {
				t.Fatalf("pods get %d milli-CPU of what they were promised, want %d", got, want)
			}
			if !offer.CPUs.IsEmpty() {
				exclusive++
				if len(before.Summary().Limits) > 0 {
					spanning++
				}
			}
		}
		entries := entriesOf(account.View())
		if again := ledger.New(*f, rapid.Permutation(entries).Draw(t,
			"order")...).View(); !again.Equal(account.View()) {
			t.Fatalf("rebuilt %+v, live %+v", again.Summary(), account.View().Summary())
		}
	})
	t.Logf(
		"%d pods of the shared pool, %d exclusive, %d of them beside promises of several NUMA nodes, %d refused for "+
			"promises, %d steps with too much promised",
		confined, exclusive, spanning, refused, indebted)
	if confined == 0 || exclusive == 0 || refused == 0 || spanning == 0 || indebted == 0 {
		t.Error("the generator is too narrow")
	}
}

// TestExclusiveCPUsAreHeldOnce is L1: whatever is placed, taken back and removed, no two pods hold one CPU, and what is
// newly held is in no reservation and not pinned by the kubelet.
func TestExclusiveCPUsAreHeldOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := *drawView(t).Facts()
		account := ledger.New(f)
		var offers []ledger.Offer
		for i := range rapid.IntRange(1, 12).Draw(t, "pods") {
			if len(offers) > 0 && rapid.IntRange(0, 4).Draw(t, "give back") == 0 {
				o := rapid.SampledFrom(offers).Draw(t, "victim")
				if rapid.Bool().Draw(t, "revert") {
					account.Revert(o)
				} else {
					account.Remove(o.Entry.UID)
				}
			}
			r := drawRequest(t)
			r.UID = "pod-" + strconv.Itoa(100+i)
			offer, reason := place.Try(account.View(), r)
			if !reason.OK() {
				continue
			}
			testkit.Check(t, account.Commit(offer))
			offers = append(offers, offer)
			if rapid.Bool().Draw(t, "confirm") {
				account.Put(offer.Entry)
			}
			v := account.View()
			held := f.NodeReserved.Union(f.System).Union(v.KubeletStatic())
			if isolated := offer.CPUs.Intersect(f.Isolated); isolated != offer.CPUs && !isolated.IsEmpty() {
				t.Fatalf("%+v got CPUs %s, of which %s are isolated", r, offer.CPUs, isolated)
			}
			if f.Model.Config.CPU.Static {
				held = held.Union(f.Model.Config.CPU.Reserved)
			}
			for e := range v.Entries() {
				cpus := v.CPUsOf(e.UID)
				if cpus.Overlaps(&held) {
					t.Fatalf("pod %s has CPUs %s, of which %s are held already", e.UID, cpus, cpus.Intersect(held))
				}
				held = held.Union(cpus)
			}
		}
	})
}

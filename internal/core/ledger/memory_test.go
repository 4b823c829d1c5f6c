package ledger_test

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
)

// drawMemory draws amounts on NUMA nodes that may not be there, some of nothing, some twice, in any order.
func drawMemory(t *rapid.T, most int) []align.Amount {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) align.Amount {
		return align.Amount{
			NUMAID:   rapid.IntRange(0, 6).Draw(t, "NUMA id"),
			Resource: rapid.SampledFrom([]why.Resource{"memory", "hugepages-8", "hugepages-2Ki"}).Draw(t, "resource"),
			N:        rapid.SampledFrom([]int64{-1, 0, 7, 8, 100, 4096, 5000}).Draw(t, "bytes"),
		}
	}), 0, most).Draw(t, "memory")
}

// checkMemory recomputes what is free of each type, node by node and pod by pod.
func checkMemory(t *rapid.T, v *ledger.View, md *model) {
	m := v.Machine()
	page := map[why.Resource]int64{"memory": 1, "hugepages-8": 8, "hugepages-2Ki": 2048}
	amount := func(list []align.Amount, id int, kind why.Resource) int64 {
		sum := int64(0)
		for _, a := range list {
			if a.NUMAID == id && a.Resource == kind && a.N > 0 {
				sum += a.N
			}
		}
		return sum
	}
	named := map[why.Resource]bool{}
	for _, n := range m.CPUNodes() {
		for kind := range page {
			named[kind] = named[kind] || amount(md.facts.Amounts, m.NUMAID(n), kind) > 0
		}
	}
	var want []align.Row
	for _, kind := range []why.Resource{"memory", "hugepages-2Ki", "hugepages-8"} {
		if !named[kind] {
			continue
		}
		s := align.Row{Resource: kind, Page: page[kind]}
		var all []int64
		for _, n := range m.CPUNodes() {
			has := amount(md.facts.Amounts, m.NUMAID(n), kind) / page[kind] * page[kind]
			held := int64(0)
			for _, e := range md.entries {
				if e.CPUList != "" && e.Role.Binds() || e.Role == qos.SharedPool && len(e.NUMAIDs) > 0 {
					held += amount(e.Amounts, m.NUMAID(n), kind)
				}
			}
			all = append(all, has)
			s.Free = append(s.Free, max(has-held, 0)/page[kind]*page[kind])
		}
		slices.Sort(all)
		slices.Reverse(all)
		sum := int64(0)
		for _, bytes := range all {
			sum += bytes
			s.Capacity = append(s.Capacity, sum)
		}
		want = append(want, s)
	}
	if diff := cmp.Diff(want, v.Summary().Rows); diff != "" {
		t.Fatalf("memory (-want +got):\n%s", diff)
	}
}

func withMemory(e ledger.Entry, memory ...align.Amount) ledger.Entry {
	e.Amounts = memory
	return e
}

func gib(numa int, n int64) align.Amount {
	return align.Amount{NUMAID: numa, Resource: "memory", N: n << 30}
}

func TestMemoryIsHeldOnNUMANodes(t *testing.T) {
	t.Parallel()
	f := ledger.Facts{Machine: worked(t), Amounts: []align.Amount{gib(0, 64), gib(1, 64), gib(2, 32), gib(3, 32)}}
	l := ledger.New(f)
	free := func() []int64 { return align.Find(l.View().Summary().Rows, "memory").Free }

	offer := offerOf(l, withMemory(lsr("a", "0-1"), gib(0, 40), gib(1, 8)))
	testkit.Check(t, l.Commit(offer))
	if diff := cmp.Diff([]int64{24 << 30, 56 << 30, 32 << 30, 32 << 30}, free()); diff != "" {
		t.Errorf("after a commit (-want +got):\n%s", diff)
	}
	before := l.View()
	if err := l.Commit(offerOf(l, withMemory(lsr("b", "2"), gib(0, 25)))); !errors.Is(err, ledger.ErrTaken) ||
		l.View() != before {
		t.Errorf("memory that is taken: got %v, want ErrTaken and no change", err)
	}
	l.Put(withMemory(lsr("a", "0-1"), gib(2, 30)))
	if diff := cmp.Diff([]int64{64 << 30, 64 << 30, 2 << 30, 32 << 30}, free()); diff != "" {
		t.Errorf("after an update with other memory (-want +got):\n%s", diff)
	}
	f.Amounts = []align.Amount{gib(0, 64), gib(1, 64), gib(2, 16)}
	l.SetFacts(f)
	if diff := cmp.Diff([]int64{64 << 30, 64 << 30, 0, 0}, free()); diff != "" {
		t.Errorf("after a machine has lost memory (-want +got):\n%s", diff)
	}
	l.Remove("a")
	if diff := cmp.Diff([]int64{64 << 30, 64 << 30, 16 << 30, 0}, free()); diff != "" {
		t.Errorf("after the pod has gone (-want +got):\n%s", diff)
	}
}

func TestMemoryOnUnknownNUMANodesIsReported(t *testing.T) {
	t.Parallel()
	v := ledger.New(ledger.Facts{Machine: worked(t), Amounts: []align.Amount{gib(0, 64)}},
		withMemory(lsr("a", "0-1"), gib(9, 1), gib(0, 1), gib(7, 1)),
		withMemory(confined("b", 1000, 1, 7), gib(7, 1))).View()
	want := []ledger.Problem{
		{UID: "a", Kind: ledger.UnknownNUMA, CPUs: "7,9"},
		{UID: "b", Kind: ledger.UnknownNUMA, CPUs: "7"},
	}
	if diff := cmp.Diff(want, v.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if got := align.Find(v.Summary().Rows, "memory").Free[0]; got != 63<<30 {
		t.Errorf("NUMA node 0 has %d bytes free, want 63Gi", got)
	}
}

// TestAbsurdAmountsOfMemoryDoNotOverflow: annotations and zones are written by others.
func TestAbsurdAmountsOfMemoryDoNotOverflow(t *testing.T) {
	t.Parallel()
	huge := func(numa int) align.Amount { return align.Amount{NUMAID: numa, Resource: "memory", N: math.MaxInt64} }
	f := ledger.Facts{Machine: worked(t), Amounts: []align.Amount{huge(0), huge(1), huge(2), huge(3)}}
	for i := range 20 {
		f.Amounts = append(f.Amounts, align.Amount{Resource: why.Resource("hugepages-" + strconv.Itoa(i)), N: 1})
	}
	v := ledger.New(f, withMemory(lsr("a", "0-1"), huge(0), huge(0), huge(1))).View()
	s := v.Summary()
	if len(s.Rows) != align.MaxRows || s.Rows[0].Resource != "memory" {
		t.Errorf("%d types, the first %q; want %d and memory", len(s.Rows), s.Rows[0].Resource, align.MaxRows)
	}
	if got := s.Rows[0]; got.Free[0] != 0 || got.Free[1] != 0 || got.Free[2] <= 0 ||
		got.Capacity[3] <= got.Capacity[2] {
		t.Errorf("free %v, capacity %v", got.Free, got.Capacity)
	}
}

// TestPodsThatHoldMoreThanANUMANodeHasAreReported: exactly the NUMA nodes and resources of which more is held than
// there is, each once, with both amounts; and none of it is free. A resize that no webhook saw comes to that.
func TestPodsThatHoldMoreThanANUMANodeHasAreReported(t *testing.T) {
	t.Parallel()
	machine, found := worked(t), 0
	rapid.Check(t, func(t *rapid.T) {
		f := ledger.Facts{Machine: machine, Amounts: drawMemory(t, 6)}
		var entries []ledger.Entry
		for i := range rapid.IntRange(1, 4).Draw(t, "pods") {
			uid := strconv.Itoa(i)
			entries = append(entries, withMemory(lsr(uid, uid), drawMemory(t, 3)...))
		}
		v := ledger.New(f, entries...).View()
		type place struct {
			numa     int32
			resource why.Resource
		}
		got := map[place][2]int64{}
		for _, p := range v.Problems() {
			if p.Kind == ledger.Overcommitted {
				got[place{p.Debt.Where.Index, p.Debt.Resource}] = [2]int64{p.Debt.Asked, p.Debt.Free}
			}
		}
		want := map[place][2]int64{}
		has := ledger.New(f).View().Summary().Rows
		for i := range has {
			for node, free := range has[i].Free {
				id, held := v.Machine().NUMAID(topo.NUMA(node)), int64(0)
				for _, e := range entries {
					for _, a := range e.Amounts {
						if a.NUMAID == id && a.Resource == has[i].Resource {
							held += max(a.N, 0)
						}
					}
				}
				if held > free {
					want[place{int32(id), has[i].Resource}] = [2]int64{held, free}
					if left := v.Summary().Rows[i].Free[node]; left != 0 {
						t.Errorf("NUMA node %d has %d of %s free", id, left, has[i].Resource)
					}
				}
			}
		}
		if found += len(want); !maps.Equal(got, want) {
			t.Errorf("reported %v, want %v", got, want)
		}
	})
	if found == 0 {
		t.Error("no NUMA node with a debt")
	}
}

// TestADebtNamesThePodsThatHoldIt: memory, and CPUs of the shared pool that pods are confined to.
func TestADebtNamesThePodsThatHoldIt(t *testing.T) {
	t.Parallel()
	f := ledger.Facts{Machine: worked(t), Amounts: []align.Amount{gib(0, 64), gib(1, 64)}}
	cpus := 1000 * int64(ledger.New(f).View().Summary().Nodes[0].PoolCPUs)
	v := ledger.New(f, withMemory(confined("a", 1000, 0), gib(0, 20)), withMemory(confined("b", cpus, 0), gib(0, 50)),
		withMemory(confined("c", 1000, 1), gib(1, 64)), confined("d", 2*cpus, 0, 1)).View()
	numa := why.Where{Scope: why.NUMA}
	want := []ledger.Debt{
		{Reason: why.Reason{
			Code: why.InsufficientMemory, Resource: why.Memory, Unit: why.Bytes, Asked: 70 << 30, Free: 64 << 30,
			Where: numa,
		}, Holders: []string{"b", "a"}},
		{Reason: why.Reason{
			Code: why.SharedPoolTooSmall, Resource: why.CPU, Unit: why.MilliCPU, Asked: cpus + 1000, Free: cpus,
			Where: numa,
		}, Holders: []string{"b", "a"}},
	}
	if diff := cmp.Diff(want, v.Debts()); diff != "" {
		t.Errorf("debts (-want +got):\n%s", diff)
	}
}

// TestAReservationIsNotOwedBesideItsUser: what the user has of its shared CPUs and memory counts once.
func TestAReservationIsNotOwedBesideItsUser(t *testing.T) {
	t.Parallel()
	f := ledger.Facts{Machine: worked(t), Amounts: []align.Amount{gib(0, 64)}}
	cpus := 1000 * int64(ledger.New(f).View().Summary().Nodes[0].PoolCPUs)
	reservation := reserve(withMemory(confined("r", cpus, 0), gib(0, 60)), false)
	user := within(withMemory(confined("user", cpus-1000, 0), gib(0, 50)), "r")
	if debts := ledger.New(f, reservation, user).View().Debts(); len(debts) > 0 {
		t.Errorf("a reservation and its user: %+v", debts)
	}
	other := withMemory(confined("other", 1000, 0), gib(0, 10))
	if debts := ledger.New(f, reservation, user, other).View().Debts(); len(debts) != 2 {
		t.Errorf("beside a third pod, which has more than is left: %+v, want memory and CPUs", debts)
	}
}

// TestAResizeIsRefusedExactlyWhereItGrowsBeyondWhatOthersLeave compares with sums over all pods.
func TestAResizeIsRefusedExactlyWhereItGrowsBeyondWhatOthersLeave(t *testing.T) {
	t.Parallel()
	machine, answers := worked(t), map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		f := ledger.Facts{Machine: machine, Amounts: drawMemory(t, 6)}
		pods := make([]ledger.Entry, rapid.IntRange(1, 4).Draw(t, "pods"))
		for i := range pods {
			uid := strconv.Itoa(i)
			pods[i] = withMemory(confined(uid, rapid.Int64Range(0, 3000).Draw(t, "CPU"), i%2), drawMemory(t, 3)...)
		}
		v, rows := ledger.New(f, pods...).View(), ledger.New(f).View().Summary().Rows
		next := withMemory(confined("0", rapid.Int64Range(0, 9000).Draw(t, "new CPU"), 0), drawMemory(t, 3)...)
		sum := func(list []align.Amount, id int, resource why.Resource) (n int64) {
			for _, a := range list {
				if a.NUMAID == id && a.Resource == resource {
					n += max(a.N, 0)
				}
			}
			return n
		}
		want := false
		for i := range rows {
			for node := range rows[i].Free {
				id := machine.NUMAID(topo.NUMA(node))
				left := rows[i].Free[node]
				for _, e := range pods[1:] {
					left -= sum(e.Amounts, id, rows[i].Resource)
				}
				left = max(left, 0) / rows[i].Page * rows[i].Page
				n := sum(next.Amounts, id, rows[i].Resource)
				want = want || n > sum(pods[0].Amounts, id, rows[i].Resource) && n > left
			}
		}
		pool := 1000 * int64(v.Summary().Nodes[0].PoolCPUs)
		for i, e := range pods {
			if i > 0 && i%2 == 0 {
				pool -= e.MilliCPU
			}
		}
		want = want || next.MilliCPU > pods[0].MilliCPU && next.MilliCPU > max(pool, 0)
		got := v.Resize(next)
		if got.OK() == want || !got.OK() && got.Asked <= got.Free {
			t.Errorf("%+v becomes %+v: %+v, want refused: %t", pods[0], next, got, want)
		}
		answers[want]++
	})
	if answers[true] == 0 || answers[false] == 0 {
		t.Errorf("%d resizes refused, %d admitted", answers[true], answers[false])
	}
}

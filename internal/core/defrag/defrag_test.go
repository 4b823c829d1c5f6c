package defrag_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/defrag"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// accounts is a Cluster over ledgers.
type accounts struct {
	views  map[string]*ledger.View
	names  []string
	asked  map[string]*place.Request // of the movable pods, by UID
	demand *place.Request
	want   int
	calls  int // of Works
}

func request(uid string, cpus int) *place.Request {
	r := &place.Request{
		UID: uid, Namespace: "ns", Name: uid, Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUs: cpus,
		Required: place.WantFullPCPUs, Default: cpualloc.FullPCPUs,
	}
	r.Seal()
	return r
}

// put places a pod on a node, if it fits.
func put(views map[string]*ledger.View, node string, r *place.Request) bool {
	offer, reason := place.Try(views[node], r)
	if reason.OK() {
		views[node] = views[node].With(offer.Entry)
	}
	return reason.OK()
}

func (a *accounts) fill(views map[string]*ledger.View, node string, want int) (n int) {
	for n < want {
		next := *a.demand
		next.UID = fmt.Sprintf("demand-%s-%d", node, n)
		if !put(views, node, &next) {
			break
		}
		n++
	}
	return n
}

func (a *accounts) Capacity(node string, gone []string, want int) (int, bool, error) {
	v := a.views[node]
	for _, uid := range gone {
		v = v.Without(uid)
	}
	return a.fill(map[string]*ledger.View{node: v}, node, want), false, nil
}

func (*accounts) Linked(string, string) bool { return false }

func (a *accounts) Targets(uid string) (out, _ []string, _ error) {
	for _, node := range a.names {
		if _, own := a.views[node].Entry(uid); !own && put(maps.Clone(a.views), node, a.asked[uid]) {
			out = append(out, node)
		}
	}
	return out, nil, nil
}

func (a *accounts) Works(moves []defrag.Move) (bool, error) {
	a.calls++
	views := maps.Clone(a.views)
	for _, m := range moves {
		next := *a.asked[m.UID]
		next.UID += "-next"
		if m.Target == m.Node || !put(views, m.Target, &next) {
			return false, nil
		}
	}
	for _, m := range moves {
		views[m.Node] = views[m.Node].Without(m.UID)
	}
	placed := 0
	for _, node := range a.names {
		placed += a.fill(views, node, a.want-placed)
	}
	return placed == a.want, nil
}

// random makes nodes of one or two NUMA nodes whose topology policy keeps a pod on one, with pods on them.
func random(t *testing.T, r *rand.Rand, nodes, want int) (*accounts, []defrag.Pod) {
	t.Helper()
	a := &accounts{views: map[string]*ledger.View{}, asked: map[string]*place.Request{}, want: want}
	policies := []hint.Policy{hint.None, hint.SingleNUMANode}
	var pods []defrag.Pod
	for i := range nodes {
		node := fmt.Sprintf("n%d", i)
		a.names = append(a.names, node)
		m := grid.Machine{Sockets: 1, Nodes: 2, Cores: 3, Threads: 2}.Build(t)
		a.views[node] = ledger.New(ledger.Facts{Machine: m, Topology: policies[r.IntN(2)]}).View()
		for j := range 2 + r.IntN(4) {
			uid := fmt.Sprintf("%s-p%d", node, j)
			asked := request(uid, 2+2*r.IntN(2))
			if !put(a.views, node, asked) || r.IntN(6) == 0 {
				continue // a pod that may not move
			}
			a.asked[uid] = asked
			pods = append(pods, defrag.Pod{
				UID: uid, Node: node, Cost: int64(r.IntN(3)), Priority: int32(r.IntN(2)),
			})
		}
	}
	a.demand = request("demand", 4+2*r.IntN(3))
	return a, pods
}

// key orders sets as the package promises, without its code.
func key(moves []defrag.Pod) string {
	cost := int64(0)
	var priorities, uids []string
	for _, p := range moves {
		cost += p.Cost
		priorities, uids = append(priorities, fmt.Sprint(p.Priority)), append(uids, p.UID)
	}
	slices.Sort(uids)
	slices.Sort(priorities)
	slices.Reverse(priorities)
	return fmt.Sprintf("%02d %09d %s %s", len(moves), cost, strings.Join(priorities, ","), strings.Join(uids, ","))
}

// smallest tries every set of at most most pods with every assignment of targets.
func (a *accounts) smallest(pods []defrag.Pod, most int) (best string, found bool) {
	var chosen []defrag.Pod
	var choose func(from int)
	choose = func(from int) {
		if k := key(chosen); (!found || k < best) && a.anyTargets(chosen) {
			best, found = k, true
		}
		for i := from; i < len(pods) && len(chosen) < most; i++ {
			chosen = append(chosen, pods[i])
			choose(i + 1)
			chosen = chosen[:len(chosen)-1]
		}
	}
	choose(0)
	return best, found
}

func (a *accounts) anyTargets(pods []defrag.Pod) bool {
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, func(p, q defrag.Pod) int { return strings.Compare(p.UID, q.UID) })
	moves := make([]defrag.Move, len(sorted))
	var assign func(i int) bool
	assign = func(i int) bool {
		if i == len(sorted) {
			works, _ := a.Works(moves)
			return works
		}
		return slices.ContainsFunc(a.names, func(target string) bool {
			moves[i] = defrag.Move{Pod: sorted[i], Target: target}
			return assign(i + 1)
		})
	}
	return assign(0)
}

func TestTheSmallestSetOfMovesIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		want, moves, nodes int
		exact              bool // sets of more than two are the smallest, too
	}{
		"one pod, two moves":       {1, 2, 4, true},
		"one pod, three moves":     {1, 3, 3, true},
		"two members, two moves":   {2, 2, 3, true},
		"three members, two moves": {3, 2, 3, true},
		"two members, three moves": {2, 3, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(37, uint64(len(name))))
			bySize := map[int]int{}
			for range 400 {
				a, pods := random(t, r, tt.nodes, tt.want)
				limits := defrag.Limits{Moves: tt.moves, Sets: 100_000, Targets: 100_000}
				got, err := defrag.Search(a, a.names, pods, tt.want, limits)
				testkit.Check(t, err)
				moved := []defrag.Pod{}
				for _, m := range got.Moves {
					moved = append(moved, m.Pod)
				}
				if works, _ := a.Works(got.Moves); got.Found && !works {
					t.Fatalf("the moves %v do not work", got.Moves)
				}
				best, found := a.smallest(pods, tt.moves)
				switch {
				case tt.exact && (got.Found != found || !got.Proven):
					t.Fatalf("found %v (proven %v), brute force %v: %s", got.Found, got.Proven, found, best)
				case got.Found && !found, found && !got.Found && got.Proven:
					t.Fatalf("found %v (proven %v), brute force %v: %s", got.Found, got.Proven, found, best)
				case found && got.Found && (tt.exact || got.Proven) && key(moved) != best:
					t.Fatalf("found %s, the smallest is %s", key(moved), best)
				}
				if !got.Found {
					bySize[-1]++
				} else {
					bySize[len(moved)]++
				}
			}
			for size := -1; size <= tt.moves; size++ {
				if bySize[size] < 4 && (size != tt.moves || tt.moves < 3) {
					t.Errorf("only %d cases of size %d (-1: none): the test proves little", bySize[size], size)
				}
			}
			t.Logf("cases by size: %v", bySize)
		})
	}
}

func TestABoundIsReported(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		a, pods := random(t, rand.New(rand.NewPCG(5, seed)), 3, 1)
		full := defrag.Limits{Moves: 3, Sets: 100_000, Targets: 100_000}
		got, err := defrag.Search(a, a.names, pods, 1, full)
		testkit.Check(t, err)
		if !got.Found || len(got.Moves) != 3 {
			continue
		}
		full.Sets = 0
		bounded, err := defrag.Search(a, a.names, pods, 1, full)
		testkit.Check(t, err)
		if bounded.Proven || !bounded.Bounded {
			t.Errorf("a search that was cut short claims proof: %+v", bounded)
		}
		return
	}
	t.Error("no case needs three moves")
}

// TestSmallSetsDoNotCountAgainstTheBound: on clusters with many pods a search for three moves ended without proof
// before it had looked at the first set of three.
func TestSmallSetsDoNotCountAgainstTheBound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		a, pods := random(t, rand.New(rand.NewPCG(5, seed)), 3, 1)
		full := defrag.Limits{Moves: 3, Sets: 100_000, Targets: 100_000}
		got, err := defrag.Search(a, a.names, pods, 1, full)
		testkit.Check(t, err)
		if !got.Found || len(got.Moves) != 3 {
			continue
		}
		n, pairs := len(pods), 0
		for i, p := range pods {
			for _, q := range pods[i+1:] {
				if p.Node == q.Node {
					pairs++
				}
			}
		}
		var same defrag.Result
		for full.Sets = 0; full.Sets == 0 || same.Bounded; full.Sets++ {
			if same, err = defrag.Search(a, a.names, pods, 1, full); err != nil {
				t.Fatal(err)
			}
		}
		if full.Sets > n+pairs {
			continue
		}
		if diff := cmp.Diff(got, same); diff != "" {
			t.Errorf("with a bound of %d sets (-without +with):\n%s", full.Sets, diff)
		}
		return
	}
	t.Error("no case needs three moves and has more sets of one and two pods than larger ones")
}

// failing is a Cluster that cannot answer.
type failing struct{ *accounts }

var errAway = errors.New("the account is away")

func (failing) Targets(string) (fit, ruled []string, _ error) { return nil, nil, errAway }

func TestAnErrorOfTheClusterEndsTheSearch(t *testing.T) {
	t.Parallel()
	a := &accounts{
		views: map[string]*ledger.View{}, names: []string{"n0"}, demand: request("demand", 10), want: 1,
		asked: map[string]*place.Request{"p": request("p", 4)},
	}
	m := grid.Machine{Sockets: 1, Nodes: 2, Cores: 3, Threads: 2}.Build(t)
	a.views["n0"] = ledger.New(ledger.Facts{Machine: m}).View()
	put(a.views, "n0", a.asked["p"])
	pods := []defrag.Pod{{UID: "p", Node: "n0"}}
	limits := defrag.Limits{Moves: 2, Sets: 10, Targets: 10}
	if got, err := defrag.Search(failing{a}, a.names, pods, 1, limits); !errors.Is(err, errAway) || got.Proven {
		t.Errorf("got %+v, error %v, want %v without proof", got, err, errAway)
	}
	got, err := defrag.Search(a, a.names, pods, 1, limits)
	if diff := cmp.Diff(defrag.Result{Proven: true, Sets: 1}, got); err != nil || diff != "" {
		t.Errorf("got error %v, result (-want +got):\n%s", err, diff)
	}
}

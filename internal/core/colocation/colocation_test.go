package colocation

import (
	"flag"
	"math/big"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/qos"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

type pair = amount.Pair

// cases is how many random nodes each property meets, unless -rapid.checks says otherwise.
const cases = 2000

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(cases)); err != nil {
		panic(err)
	}
	m.Run()
}

// defaults is the strategy of a cluster that sets nothing.
func defaults() Strategy {
	return Strategy{
		Rules: [amount.Resources]Rule{
			{ReclaimPercent: 60, BatchPercent: 100, MidPercent: 100},
			{ReclaimPercent: 65, BatchPercent: 100, MidPercent: 100},
		},
		Degrade: 15 * time.Minute, Update: 5 * time.Minute, DiffPermille: 100,
	}
}

func cpu(milli int64) pair { return pair{amount.CPU: milli} }

func TestBatchCPU(t *testing.T) {
	t.Parallel()
	service := Pod{Class: qos.LS, Band: qos.Prod, Request: cpu(40_000), Use: cpu(30_000), Reported: true, Started: true}
	with := func(change func(*Pod)) []Pod {
		p := service
		change(&p)
		return []Pod{p}
	}
	tests := map[string]struct {
		strategy func(*Strategy)
		node     func(*Node)
		want     int64
	}{
		"100 CPUs of which services use 30 and the system 7 leave 23": {want: 23_000},
		"under the greater of use and request, services count 40": {
			strategy: func(s *Strategy) { s.Rules[amount.CPU].Policy = MaxUseRequest }, want: 13_000,
		},
		"under requests, the system counts what is reserved": {
			strategy: func(s *Strategy) { s.Rules[amount.CPU].Policy = Request }, want: 15_000,
		},
		"the threshold of batch amounts is a ceiling": {
			strategy: func(s *Strategy) { s.Rules[amount.CPU].BatchPercent = 10 }, want: 10_000,
		},
		"what is reserved counts where the system uses less": {
			node: func(n *Node) { n.Reserved = cpu(12_000) }, want: 18_000,
		},
		"the CPUs of an LSE pod are never reclaimed": {
			node: func(n *Node) { n.Pods = with(func(p *Pod) { p.Class = qos.LSE }) }, want: 13_000,
		},
		"a pod that is newer than the report counts with its request": {
			node: func(n *Node) {
				n.Use = cpu(7_000)
				n.Pods = with(func(p *Pod) { p.Use, p.Reported, p.Started = pair{}, false, false })
			},
			want: 13_000,
		},
		"a pod that is newer than the report counts with its request under the greater of both too": {
			strategy: func(s *Strategy) { s.Rules[amount.CPU].Policy = MaxUseRequest },
			node: func(n *Node) {
				n.Use = cpu(7_000)
				n.Pods = with(func(p *Pod) { p.Use, p.Reported, p.Started = pair{}, false, false })
			},
			want: 13_000,
		},
		"a pod that is gone counts with its last use": {
			node: func(n *Node) {
				n.Pods = with(func(p *Pod) { p.Request, p.Gone, p.Started = pair{}, true, false })
			},
			want: 23_000,
		},
		"a mid pod counts": {
			node: func(n *Node) { n.Pods = with(func(p *Pod) { p.Band = qos.Mid }) }, want: 23_000,
		},
		"what batch and free pods use is still to be had": {
			node: func(n *Node) {
				n.Use = cpu(97_000)
				n.Pods = append(n.Pods, Pod{Class: qos.BE, Band: qos.Batch, Use: cpu(50_000), Reported: true},
					Pod{Class: qos.BE, Band: qos.Free, Use: cpu(10_000), Reported: true})
			},
			want: 23_000,
		},
		"an application of the host counts as the system does": {
			node: func(n *Node) { n.HostUse, n.HighHostUse, n.Use = cpu(4_000), cpu(4_000), cpu(41_000) }, want: 19_000,
		},
		"a batch application of the host is still to be had": {
			node: func(n *Node) { n.HostUse, n.Use = cpu(4_000), cpu(41_000) }, want: 23_000,
		},
		"what another scheduler has given away is taken off": {
			node: func(n *Node) { n.ThirdParty = cpu(20_000) }, want: 3_000,
		},
		"a pod that runs without a row uses what the system seems to use": {
			node: func(n *Node) { n.Pods = with(func(p *Pod) { p.Use, p.Reported = pair{}, false }) }, want: 0,
		},
		"what is reserved is not in what such a pod uses": {
			node: func(n *Node) {
				n.Use = cpu(7_000)
				n.Pods = with(func(p *Pod) { p.Request, p.Use, p.Reported = cpu(1_000), pair{}, false })
			},
			want: 60_000 - 7_000 - 5_000 - 1_000,
		},
		"an LSE pod that is gone counts with its last use": {
			node: func(n *Node) {
				n.Pods = with(func(p *Pod) { p.Class, p.Request, p.Gone, p.Started = qos.LSE, pair{}, true, false })
			},
			want: 23_000,
		},
		"an LSE pod that is gone counts with its last use under the greater of both too": {
			strategy: func(s *Strategy) { s.Rules[amount.CPU].Policy = MaxUseRequest },
			node: func(n *Node) {
				n.Pods = with(func(p *Pod) { p.Class, p.Request, p.Gone, p.Started = qos.LSE, pair{}, true, false })
			},
			want: 23_000,
		},
		"a pod that is gone counts with its last use under requests": {
			strategy: func(s *Strategy) { s.Rules[amount.CPU].Policy = Request },
			node: func(n *Node) {
				n.Pods = with(func(p *Pod) { p.Request, p.Gone, p.Started = pair{}, true, false })
			},
			want: 25_000,
		},
		"what an ended batch pod used within the time of the report is not the system's": {
			node: func(n *Node) { n.Use, n.System, n.HasSystem = cpu(65_600), cpu(7_000), true }, want: 23_000,
		},
		"a young batch pod, of whose row the node's use has a part, does not hide the system": {
			node: func(n *Node) {
				n.Use, n.System, n.HasSystem = cpu(37_500), cpu(7_000), true
				n.Pods = append(n.Pods, Pod{Band: qos.Batch, Use: cpu(5_000), Reported: true, Started: true})
			},
			want: 23_000,
		},
		"a pod without a row is not in the use of the system that is reported": {
			node: func(n *Node) {
				n.System, n.HasSystem = cpu(7_000), true
				n.Pods = with(func(p *Pod) { p.Request, p.Use, p.Reported = cpu(1_000), pair{}, false })
			},
			want: 60_000 - 37_000 - 5_000 - 1_000,
		},
		"a system that is reported to use more than the rest counts beside a pod without a row": {
			node: func(n *Node) {
				n.Use, n.System, n.HasSystem = cpu(7_000), cpu(9_000), true
				n.Pods = with(func(p *Pod) { p.Request, p.Use, p.Reported = cpu(1_000), pair{}, false })
			},
			want: 60_000 - 9_000 - 5_000 - 1_000,
		},
		"an application of the host is not in the use of the system that is reported": {
			node: func(n *Node) {
				n.HostUse, n.HighHostUse, n.Use = cpu(4_000), cpu(3_000), cpu(41_000)
				n.System, n.HasSystem = cpu(7_000), true
			},
			want: 20_000,
		},
		"a share above the whole does not grant what others use": {
			strategy: func(s *Strategy) { s.Rules[amount.CPU].ReclaimPercent = 150 }, want: 63_000,
		},
		"a share above the whole of what is requested": {
			strategy: func(s *Strategy) {
				s.Rules[amount.CPU].Policy, s.Rules[amount.CPU].ReclaimPercent = Request, 105
			},
			want: 60_000,
		},
		"another scheduler has given away more than there is": {
			node: func(n *Node) { n.ThirdParty = cpu(90_000) }, want: 0,
		},
		"a busy node has none": {
			node: func(n *Node) { n.Pods[0].Use, n.Use = cpu(90_000), cpu(97_000) }, want: 0,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := defaults()
			n := Node{
				Capacity: cpu(100_000), Allocatable: cpu(100_000), Reserved: cpu(5_000), Use: cpu(37_000),
				Pods: []Pod{service},
			}
			if tt.strategy != nil {
				tt.strategy(&s)
			}
			if tt.node != nil {
				tt.node(&n)
			}
			if got := s.Compute(&n)[amount.CPU]; got.Batch != tt.want {
				t.Errorf("batch CPU = %d of %+v, want %d", got.Batch, got, tt.want)
			}
		})
	}
}

func TestMidCPU(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		strategy func(*Strategy)
		node     func(*Node)
		want     int64
	}{
		"what prod pods are predicted not to use": {want: 20_000},
		"no more than the node has idle":          {node: func(n *Node) { n.Use = cpu(95_000) }, want: 5_000},
		"an ended pod leaves idle what it used": {
			node: func(n *Node) { n.Use, n.System, n.HasSystem = cpu(95_000), cpu(7_000), true }, want: 20_000,
		},
		"a young pod takes what it uses": {
			node: func(n *Node) {
				n.System, n.HasSystem = cpu(7_000), true
				n.Pods = append(n.Pods, Pod{Band: qos.Batch, Use: cpu(58_000), Reported: true, Started: true})
			},
			want: 5_000,
		},
		"an application of the host takes what it uses": {
			node: func(n *Node) { n.System, n.HasSystem, n.HostUse = cpu(7_000), true, cpu(58_000) }, want: 5_000,
		},
		"nothing without a prediction": {node: func(n *Node) { n.ProdReclaimable = pair{} }, want: 0},
		"no more than a share of the allocatable": {
			strategy: func(s *Strategy) { s.Rules[amount.CPU].MidPercent = 10 }, want: 9_000,
		},
		"and a share of what nothing requested": {
			strategy: func(s *Strategy) { s.MidUnallocatedPercent = 50 }, want: 46_500,
		},
		"a fixed share of the capacity": {
			strategy: func(s *Strategy) { s.MidStatic, s.Rules[amount.CPU].StaticPercent = true, 30 }, want: 30_000,
		},
		"a fixed share, within that of the allocatable": {
			strategy: func(s *Strategy) {
				s.MidStatic, s.Rules[amount.CPU] = true, Rule{StaticPercent: 30, MidPercent: 20}
			},
			want: 18_000,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := defaults()
			n := Node{
				Capacity: cpu(100_000), Allocatable: cpu(90_000), Reserved: cpu(5_000), Use: cpu(37_000),
				ProdReclaimable: cpu(20_000),
				Pods: []Pod{
					{Band: qos.Prod, Request: cpu(40_000), Use: cpu(30_000), Reported: true, Started: true},
					{Band: qos.Mid, Request: cpu(10_000), Reported: true, Started: true},
				},
			}
			if tt.strategy != nil {
				tt.strategy(&s)
			}
			if tt.node != nil {
				tt.node(&n)
			}
			if got := s.Compute(&n)[amount.CPU].Mid; got != tt.want {
				t.Errorf("mid CPU = %d, want %d", got, tt.want)
			}
		})
	}
}

// table is the table of the three policies, each summed on its own, in exact fractions.
func table(s *Strategy, n *Node, r amount.Resource) int64 {
	rule, whole := s.Rules[r], big.NewRat(n.Capacity[r], 1)
	part := func(percent int64) *big.Rat { return new(big.Rat).Mul(whole, big.NewRat(percent, 100)) }
	var rows, uses, requests, greater, high int64
	lost := false
	for _, p := range n.Pods {
		rows += p.Use[r]
		if p.Band == qos.Batch || p.Band == qos.Free {
			continue
		}
		high += p.Use[r]
		use, request := p.Use[r], p.Request[r]
		switch {
		case p.Gone:
			request = use
		case !p.Reported:
			use, lost = request, lost || p.Started
		}
		if r == amount.CPU && p.Class == qos.LSE && !p.Gone {
			use = request
		}
		uses, requests = uses+use, requests+request
		if r == amount.CPU && p.Class == qos.LSE && !p.Gone {
			greater += request
		} else {
			greater += max(use, request)
		}
	}
	system := max(n.Use[r]-rows-n.HostUse[r], 0)
	if n.HasSystem && !lost {
		system = n.System[r]
	} else if n.HasSystem {
		system = max(system, n.System[r])
	}
	system += n.HighHostUse[r]
	both := max(system, n.Reserved[r])
	if lost {
		both = system + n.Reserved[r]
	}
	taken := map[Policy]int64{
		Use: both + uses, Request: n.Reserved[r] + requests, MaxUseRequest: both + greater,
	}[rule.Policy]
	left := new(big.Rat).Sub(part(rule.ReclaimPercent), big.NewRat(taken, 1))
	for _, bound := range []*big.Rat{part(rule.BatchPercent), big.NewRat(max(n.Capacity[r]-system-high, 0), 1)} {
		if left.Cmp(bound) > 0 {
			left = bound
		}
	}
	floor := new(big.Int).Div(left.Num(), left.Denom()).Int64() // rounds down, also below zero
	return max(floor, 0)
}

func drawNode(t *rapid.T) Node {
	amounts := func(most int64, name string) pair {
		return pair{rapid.Int64Range(0, most).Draw(t, name), rapid.Int64Range(0, most<<20).Draw(t, name)}
	}
	n := Node{
		Capacity: amounts(2000, "capacity"), Reserved: amounts(300, "reserved"), HostUse: amounts(50, "hosts"),
		ProdReclaimable: amounts(500, "reclaimable"),
	}
	n.Allocatable = n.Capacity
	n.Use = amounts(100, "system")
	if n.System, n.HasSystem = n.Use, rapid.Bool().Draw(t, "reports the system"); !n.HasSystem {
		n.System = pair{}
	}
	for r := range amount.Resources {
		if n.HasSystem {
			n.Use[r] += rapid.Int64Range(0, 200).Draw(t, "ended")
		}
		n.HighHostUse[r] = rapid.Int64Range(0, n.HostUse[r]).Draw(t, "high hosts")
		n.Use[r] += n.HostUse[r]
	}
	for range rapid.IntRange(0, 5).Draw(t, "pods") {
		p := Pod{
			Class: qos.Class(rapid.IntRange(0, int(qos.System)).Draw(t, "class")),
			Band:  qos.Band(rapid.IntRange(0, int(qos.Free)).Draw(t, "band")),
			Use:   amounts(300, "use"), Reported: true,
		}
		for r := range amount.Resources {
			n.Use[r] += p.Use[r]
		}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			p.Gone = true
		case 1:
			p.Request, p.Reported, p.Use = amounts(300, "request"), false, pair{}
			p.Started = rapid.Bool().Draw(t, "started")
		default:
			p.Request, p.Started = amounts(300, "request"), true
		}
		n.Pods = append(n.Pods, p)
	}
	return n
}

func drawStrategy(t *rapid.T) Strategy {
	s := defaults()
	percent, reclaim := rapid.Int64Range(0, 100), rapid.Int64Range(0, 200)
	s.MidUnallocatedPercent = percent.Draw(t, "unallocated")
	s.MidStatic = rapid.Bool().Draw(t, "static")
	for r := range amount.Resources {
		s.Rules[r] = Rule{
			Policy: Policy(rapid.IntRange(0, 2).Draw(t, "policy")), ReclaimPercent: reclaim.Draw(t, "reclaim"),
			BatchPercent: percent.Draw(t, "batch"), MidPercent: percent.Draw(t, "mid"),
			StaticPercent: percent.Draw(t, "static"),
		}
	}
	return s
}

func TestComputeIsTheTable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, n := drawStrategy(t), drawNode(t)
		for r, a := range s.Compute(&n) {
			if want := table(&s, &n, amount.Resource(r)); a.Batch != want {
				t.Fatalf("batch of resource %d = %d, want %d\nof %+v\nunder %+v", r, a.Batch, want, n, s.Rules[r])
			}
		}
	})
}

func TestM1BatchPodsHighPodsAndTheSystemFitTheNode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, n := drawStrategy(t), drawNode(t)
		for r, a := range s.Compute(&n) {
			var high, rows int64
			for _, p := range n.Pods {
				rows += p.Use[r]
				if p.High() {
					high += p.Use[r]
				}
			}
			system := max(n.Use[r]-rows-n.HostUse[r], 0)
			if n.HasSystem {
				system = n.System[r]
			}
			system += n.HighHostUse[r]
			if a.Batch < 0 || a.Mid < 0 || a.Batch > 0 && a.Batch+high+system > a.Capacity {
				t.Fatalf("resource %d: batch %d + high %d + system %d of %d", r, a.Batch, high, system, a.Capacity)
			}
		}
	})
}

// TestStartsAndEndsHideNothing follows a node over starts and ends of pods. Its agent reports averages over a minute:
// of the node and the system over all of it, of a pod over the part in which it ran. Whatever began and ended within
// the minute, batch pods are granted what the services and the system that run at the end leave; without the use of the
// system, they are granted what the averages leave.
func TestStartsAndEndsHideNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const window = 60 // seconds
		const capacity = 100_000
		n := Node{Capacity: cpu(capacity), Allocatable: cpu(capacity), HasSystem: true}
		n.System = cpu(rapid.Int64Range(0, 20_000).Draw(t, "system"))
		left := int64(60_000) - n.System[amount.CPU] // of the capacity that pods may use
		total := n.System[amount.CPU] * window
		for range rapid.IntRange(0, 6).Draw(t, "pods") {
			p := Pod{
				Band: []qos.Band{qos.Prod, qos.Batch}[rapid.IntRange(0, 1).Draw(t, "band")],
				Use:  cpu(rapid.Int64Range(0, 8_000).Draw(t, "use")), Reported: true, Started: true,
			}
			began := rapid.IntRange(-window, window-1).Draw(t, "began")
			ended := rapid.IntRange(began+1, 3*window).Draw(t, "ended")
			total += p.Use[amount.CPU] * int64(max(min(ended, window)-max(began, 0), 0))
			if ended <= window {
				continue
			}
			if n.Pods = append(n.Pods, p); p.High() {
				left -= p.Use[amount.CPU]
			}
		}
		n.Use = cpu(total / window)
		s := defaults()
		if got := s.Compute(&n)[amount.CPU]; got.Batch != max(left, 0) {
			t.Fatalf("batch = %d, want %d\nof %+v: %+v", got.Batch, max(left, 0), n, got)
		}
		n.System, n.HasSystem = pair{}, false
		if got, want := s.Compute(&n)[amount.CPU].Batch, table(&s, &n, amount.CPU); got != want {
			t.Fatalf("batch without the use of the system = %d, want %d\nof %+v", got, want, n)
		}
	})
}

func TestM3LostRowsNeverGrantMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, n := drawStrategy(t), drawNode(t)
		before := s.Compute(&n)
		lost := n
		lost.Pods = slices.Clone(n.Pods)
		for i := range lost.Pods {
			if p := &lost.Pods[i]; p.Reported && !p.Gone && p.Started && rapid.Bool().Draw(t, "lost") {
				p.Reported, p.Use = false, pair{}
			}
		}
		for r, a := range s.Compute(&lost) {
			if a.Batch > before[r].Batch {
				t.Fatalf("resource %d: batch grows from %d to %d\nof %+v\nwithout %+v",
					r, before[r].Batch, a.Batch, n, lost.Pods)
			}
		}
		slices.Reverse(lost.Pods)
		again := s.Compute(&lost)
		slices.Reverse(lost.Pods)
		if again != s.Compute(&lost) {
			t.Fatal("the order of the pods matters")
		}
	})
}

func TestM3AnOldReportGrantsNothing(t *testing.T) {
	t.Parallel()
	s, now := defaults(), time.Unix(1_000_000, 0)
	for age, want := range map[time.Duration]bool{
		0: true, 15 * time.Minute: true, 15*time.Minute + 1: false, -15*time.Minute - 1: false, -time.Second: true,
	} {
		if got := s.Fresh(now.Add(-age), now); got != want {
			t.Errorf("a report of %v ago is fresh: %v, want %v", age, got, want)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	at := func(batch int64, ago time.Duration) Shown { return Shown{Grant{Batch: cpu(batch)}, now.Add(-ago)} }
	tests := map[string]struct {
		want, bound int64
		shown       Shown
		next        int64
		write       bool
		again       time.Duration
	}{
		"the first amount is a tenth of the capacity": {want: 23_000, next: 10_000, write: true, again: time.Minute},
		"a first amount that is less is whole":        {want: 7_000, next: 7_000, write: true},
		"none is shown as none":                       {want: 0, next: 0, write: true},
		"it grows by a tenth of the capacity in a minute": {
			want: 23_000, shown: at(10_000, time.Minute), next: 20_000, write: true, again: time.Minute,
		},
		"it does not grow by more after an hour": {
			want: 50_000, shown: at(10_000, time.Hour), next: 20_000, write: true, again: time.Minute,
		},
		"it grows in proportion to the time": {
			want: 50_000, shown: at(10_000, 30*time.Second), next: 15_000, write: true, again: time.Minute,
		},
		"growth that is small waits": {
			want: 50_000, shown: at(10_000, 3*time.Second), next: 10_500, again: 57 * time.Second,
		},
		"it shrinks at once": {want: 5_000, shown: at(20_000, 0), next: 5_000, write: true},
		"a small loss waits while the node has room": {
			want: 19_000, shown: at(20_000, time.Minute), next: 19_000, again: 4 * time.Minute,
		},
		"a small loss does not wait where the node has no room": {
			want: 19_000, bound: 19_500, shown: at(20_000, 0), next: 19_000, write: true,
		},
		"a small change is written after five minutes": {
			want: 19_000, shown: at(20_000, 5*time.Minute), next: 19_000, write: true,
		},
		"what does not change is never written": {want: 20_000, shown: at(20_000, time.Hour), next: 20_000},
		"a clock that went back grows nothing": {
			want: 50_000, shown: at(10_000, -time.Hour), next: 10_000, again: time.Minute,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := defaults()
			if tt.bound == 0 {
				tt.bound = 100_000
			}
			accounts := Accounts{amount.CPU: {Capacity: 100_000, Batch: tt.want, Bound: tt.bound}}
			g, write, again := s.Next(accounts, tt.shown, now)
			if g.Batch[amount.CPU] != tt.next || write != tt.write || again != tt.again {
				t.Errorf("Next = %d, write %v, again %v; want %d, %v, %v",
					g.Batch[amount.CPU], write, again, tt.next, tt.write, tt.again)
			}
		})
	}
}

func TestAmountsGrowSlowlyWithinTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, now := drawStrategy(t), time.Unix(1_000_000, 0)
		shown := Shown{}
		type point struct {
			at    time.Time
			batch int64
		}
		var history []point
		capacity := rapid.Int64Range(1, 100_000).Draw(t, "capacity")
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			bound := rapid.Int64Range(0, capacity).Draw(t, "bound")
			a := Account{Capacity: capacity, Bound: bound, Batch: rapid.Int64Range(0, bound).Draw(t, "batch")}
			g, write, _ := s.Next(Accounts{amount.CPU: a}, shown, now)
			if write {
				shown = Shown{g, now}
			}
			if shown.Batch[amount.CPU] > bound {
				t.Fatalf("the Node shows %d, and the bound is %d", shown.Batch[amount.CPU], bound)
			}
			for _, p := range history {
				// What was saved up within one minute, and what came since.
				since := int64(now.Sub(p.at) + time.Minute)
				if shown.Batch[amount.CPU]-p.batch > capacity/growth*since/int64(time.Minute) {
					t.Fatalf("%d grew to %d of %d in %v", p.batch, shown.Batch[amount.CPU], capacity, now.Sub(p.at))
				}
			}
			history = append(history, point{now, shown.Batch[amount.CPU]})
		}
	})
}

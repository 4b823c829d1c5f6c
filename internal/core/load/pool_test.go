package load

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
)

func TestDetector(t *testing.T) {
	t.Parallel()
	c := Condition{Abnormal: 5, Normal: 3, Timeout: time.Hour}
	for name, d := range map[string]struct {
		condition Condition
		// rounds has a letter for each minute: h and l for a new report that is high or low, r for the last one again,
		// R for a reset, f for an hour without reports.
		rounds string
		want   bool
	}{
		"five high reports are not an anomaly":    {c, "hhhhh", false},
		"six are one":                             {c, "hhhhhh", true},
		"a report that is read twice counts once": {c, "hrrrrrr", false},
		"a low report begins the count again":     {c, "hhhhhlhhhhh", false},
		"three low reports do not end an anomaly": {c, "hhhhhhlll", true},
		"four do":                                   {c, "hhhhhhllll", false},
		"a high report begins that count again":     {c, "hhhhhhlllhlll", true},
		"a timeout ends it":                         {Condition{5, 3, time.Minute}, "hhhhhhh", false},
		"until the timeout it lasts":                {Condition{5, 3, 2 * time.Minute}, "hhhhhhh", true},
		"after a timeout as many reports count":     {Condition{5, 3, time.Minute}, "hhhhhhhhhhhh", true},
		"a moved pod begins the count again":        {c, "hhhhhhRhhhhh", false},
		"and again":                                 {c, "hhhhhhRhhhhhh", true},
		"the last report does not count after that": {c, "hhhhhRrrrrrr", false},
		"a node without reports is forgotten":       {c, "hhhhhfh", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var detector Detector
			now, made, got := start, start, false
			for _, round := range d.rounds {
				switch now = now.Add(time.Minute); round {
				case 'h', 'l', 'r':
					if round != 'r' {
						made = now
					}
					got = detector.Mark("n", d.condition, round != 'l', made, now)
				case 'R':
					detector.Reset("n")
					detector.Reset("unknown")
				case 'f':
					now = now.Add(time.Hour)
					detector.Forget(time.Hour, now)
				}
			}
			if got != d.want {
				t.Errorf("after %s: in an anomaly %v, want %v", d.rounds, got, d.want)
			}
		})
	}
}

// members have 1000 of each resource.
func pool(all, prod Band, uses ...int64) *Pool {
	p := &Pool{Bands: [kinds]Band{all, prod}, Weights: [amount.Resources]int64{1, 1}}
	for _, use := range uses {
		p.Members = append(p.Members, Member{
			Allocatable: pair{1000, 1000}, Use: [kinds]pair{{use, 0}, {use, 0}},
		})
	}
	return p
}

func high(p *Pool, kind Kind) (high []int) {
	for i := range p.Members {
		if p.IsHigh(i, kind) {
			high = append(high, i)
		}
	}
	return high
}

func TestWhichNodesAreLowAndHigh(t *testing.T) {
	t.Parallel()
	cpu := Band{Low: Shares{4500, 0}, High: Shares{7500, 0}}
	both := Band{Low: Shares{4500, 5500}, High: Shares{7500, 8000}}
	change := func(p *Pool, f func(*Pool)) *Pool {
		f(p)
		return p
	}
	for name, c := range map[string]struct {
		pool      *Pool
		low, high []int
	}{
		"at a threshold a node is neither": {pool(cpu, Band{}, 449, 450, 750, 751), []int{0}, []int{3}},
		"low by all, high by any resource": {
			change(pool(both, Band{}, 100, 100, 100), func(p *Pool) {
				p.Members[1].Use[All][amount.Memory], p.Members[2].Use[All][amount.Memory] = 550, 801
			}), []int{0}, []int{2},
		},
		"a closed node is not low": {
			change(pool(cpu, Band{}, 100), func(p *Pool) { p.Members[0].Closed = true }), nil, nil,
		},
		"a node without the resource is neither": {
			change(pool(cpu, Band{}, 900), func(p *Pool) { p.Members[0].Allocatable = pair{} }), nil, nil,
		},
		"a band of nothing has neither": {pool(Band{}, Band{}, 0, 1000), nil, nil},
		"distances from the mean of 50 %": {
			change(pool(Band{Low: Shares{1000, 0}, High: Shares{1000, 0}}, Band{}, 390, 400, 610, 600),
				(*Pool).Deviate),
			[]int{0},
			[]int{2},
		},
		"a distance ends at 0 and 100 %": {
			change(pool(Band{Low: Shares{9000, 0}, High: Shares{9000, 0}}, Band{}, 0, 1000, 1001),
				(*Pool).Deviate),
			nil,
			[]int{2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			low, high := c.pool.Low(All), high(c.pool, All)
			if !slices.Equal(low, c.low) || !slices.Equal(high, c.high) {
				t.Errorf("low %v and high %v, want %v and %v", low, high, c.low, c.high)
			}
		})
	}
}

func TestRelieve(t *testing.T) {
	t.Parallel()
	cpu := Band{Low: Shares{4000, 0}, High: Shares{8000, 0}}
	prod := Band{Low: Shares{2000, 0}, High: Shares{5000, 0}}
	type move [3]int
	for name, c := range map[string]struct {
		all, prod Band
		uses      []int64
		pods      [][]PodUse
		kind      Kind
		prodUse   int64 // of the second node, where it is not that of all
		refuse    func(move) bool
		want      []move // source, pod, target
	}{
		"one pod is enough": {
			all: cpu, uses: []int64{900, 100}, pods: [][]PodUse{{{Use: pair{100, 0}}, {Use: pair{100, 0}}}},
			want: []move{{0, 0, 1}},
		},
		"the most used node first, to the least used one": {
			all: cpu, uses: []int64{850, 950, 300, 200},
			pods: [][]PodUse{{{Use: pair{200, 0}}}, {{Use: pair{200, 0}}}},
			want: []move{{1, 0, 3}, {0, 0, 2}},
		},
		"a target stays below the high threshold": {
			all: cpu, uses: []int64{1000, 390}, pods: [][]PodUse{{{Use: pair{410, 0}}, {Use: pair{409, 0}}}},
			want: []move{{0, 1, 1}},
		},
		"the headroom is used up": {
			all: cpu, uses: []int64{2000, 300},
			pods: [][]PodUse{{{Use: pair{300, 0}}, {Use: pair{300, 0}}, {Use: pair{199, 0}}}},
			want: []move{{0, 0, 1}, {0, 2, 1}},
		},
		"a pod that lowers the use by less than 5 percent stays, and the next one moves": {
			all: cpu, uses: []int64{900, 100}, pods: [][]PodUse{{{Use: pair{49, 0}}, {Use: pair{50, 0}}}},
			want: []move{{0, 1, 1}},
		},
		"a pod whose target would be used almost as much stays": {
			all: cpu, uses: []int64{810, 390}, pods: [][]PodUse{{{Use: pair{400, 0}}, {Use: pair{370, 0}}}},
			want: []move{{0, 1, 1}},
		},
		"a pod that uses none of the resource stays": {
			all: cpu, uses: []int64{900, 0}, pods: [][]PodUse{{{Use: pair{0, 500}}}},
		},
		"a refused pod stays, and the next one moves": {
			all: cpu, uses: []int64{900, 100}, pods: [][]PodUse{{{Use: pair{100, 0}}, {Use: pair{150, 0}}}},
			refuse: func(m move) bool { return m[1] == 0 }, want: []move{{0, 1, 1}},
		},
		"for production pods only these move, and fit by the use of all": {
			all: cpu, prod: prod, kind: Prod, uses: []int64{600, 100},
			pods: [][]PodUse{{
				{Use: pair{100, 0}}, {Use: pair{410, 0}, Prod: true}, {Use: pair{150, 0}, Prod: true},
			}},
			want: []move{{0, 2, 1}},
		},
		"a pod that is not of production may join more of production than may be high": {
			all: cpu, prod: prod, uses: []int64{900, 390}, pods: [][]PodUse{{{Use: pair{100, 0}}}},
			prodUse: 600, want: []move{{0, 0, 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pool(c.all, c.prod, c.uses...)
			for i, pods := range c.pods {
				p.Members[i].Pods = pods
			}
			if c.prodUse > 0 {
				p.Members[1].Use[Prod] = pair{c.prodUse, 0}
			}
			var got []move
			p.Relieve(c.kind, high(p, c.kind), p.Low(c.kind), func(source, pod int, targets []int) (int, bool) {
				m := move{source, pod, targets[0]}
				if c.refuse != nil && c.refuse(m) {
					return 0, false
				}
				got = append(got, m)
				return targets[0], true
			})
			if !slices.Equal(got, c.want) {
				t.Errorf("moved %v, want %v", got, c.want)
			}
		})
	}
}

// A move is checked by counting everything again: pods leave high nodes in order for low ones below each high
// threshold, none leaves twice or for less than 5 percent, and none that could is left behind.
func TestRelieveIsWhatCountingEachMoveAgainFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			checkRelieve(t)
		}
	})
}

func checkRelieve(t *rapid.T) {
	number := func(name string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(t, name) }
	band := func(most int64) (b Band) {
		for r := range amount.Resources {
			b.High[r] = number("high", 1000, most)
			b.Low[r] = number("low", b.High[r]/2, b.High[r])
		}
		return b
	}
	p := &Pool{Bands: [kinds]Band{band(whole), band(whole / 2)}, Weights: [amount.Resources]int64{1, 1}}
	for range number("nodes", 2, 4) {
		m := Member{Allocatable: pair{number("cpu", 20, 50), number("memory", 20, 50)}}
		for range number("pods", 0, 6) {
			pod := PodUse{
				Use: pair{number("cpu", 0, 12), number("memory", 0, 12)}, Prod: rapid.Bool().Draw(t, "prod"),
			}
			m.Pods = append(m.Pods, pod)
			m.add(pod)
		}
		p.Members = append(p.Members, m)
	}
	// An account of its own: where each pod is.
	on := map[[2]int]int{}
	for i, m := range p.Members {
		for j := range m.Pods {
			on[[2]int{i, j}] = i
		}
	}
	percent := func(node int, kind Kind, r amount.Resource) (use, all int64) {
		for pod, at := range on {
			if u := p.Members[pod[0]].Pods[pod[1]]; at == node && (kind == All || u.Prod) {
				use += u.Use[r]
			}
		}
		return use, p.Members[node].Allocatable[r]
	}
	// above compares exactly: use / allocatable with share / 10,000, rounded down to an amount.
	above := func(node int, kind Kind, r amount.Resource, equal int64) bool {
		use, all := percent(node, kind, r)
		return use+equal > p.Bands[kind].High[r]*all/whole
	}
	// larger returns the larger use of two nodes, in parts of 10,000.
	larger := func(a, b int, kind Kind, r amount.Resource) int64 {
		useA, allA := percent(a, kind, r)
		useB, allB := percent(b, kind, r)
		return max(useA*whole/allA, useB*whole/allB)
	}
	fits := func(pod [2]int, node int, kind Kind) bool {
		source := pod[0]
		if on[pod] != source || kind == Prod && !p.Members[source].Pods[pod[1]].Prod {
			return false
		}
		high, before := [amount.Resources]bool{}, [amount.Resources]int64{}
		for r := range amount.Resources {
			high[r], before[r] = above(source, kind, r, 0), larger(source, node, kind, r)
		}
		on[pod] = node
		defer func() { on[pod] = source }()
		if !slices.ContainsFunc(amount.Both(), func(r amount.Resource) bool {
			return high[r] && larger(source, node, kind, r) <= before[r]-500
		}) {
			return false
		}
		for r := range amount.Resources {
			if above(node, All, r, 1) || p.Members[pod[0]].Pods[pod[1]].Prod && above(node, Prod, r, 1) {
				return false
			}
		}
		return true
	}
	refused := map[[2]int]bool{}
	for kind := range kinds {
		low, sources := p.Low(kind), high(p, kind)
		for _, i := range low {
			if slices.Contains(sources, i) {
				t.Fatalf("node %d is low and high", i)
			}
		}
		p.Relieve(kind, sources, low, func(source, j int, targets []int) (int, bool) {
			pod := [2]int{source, j}
			if on[pod] != source || !slices.Contains(sources, source) {
				t.Fatalf("pod %v leaves a node that is not high", pod)
			}
			for _, i := range low {
				if want := fits(pod, i, kind); want != slices.Contains(targets, i) {
					t.Fatalf("pod %v: the targets of %v are %v, node %d fits: %v", pod, low, targets, i, want)
				}
			}
			if rapid.IntRange(0, 4).Draw(t, "refuse") == 0 {
				refused[pod] = true
				return 0, false
			}
			on[pod] = rapid.SampledFrom(targets).Draw(t, "target")
			return on[pod], true
		})
		for pod, at := range on {
			if at == pod[0] && slices.Contains(sources, at) && !refused[pod] &&
				slices.ContainsFunc(low, func(i int) bool { return fits(pod, i, kind) }) {
				t.Fatalf("pod %v stays, though it helps and fits", pod)
			}
		}
	}
	for i, m := range p.Members {
		for r := range amount.Resources {
			for kind := range kinds {
				if use, _ := percent(i, kind, r); m.Use[kind][r] != use {
					t.Fatalf("node %d uses %v, want %d of %s", i, m.Use[kind], use, r)
				}
			}
		}
	}
}

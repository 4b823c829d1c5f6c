package quota_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
)

const cpu = "cpu"

// plant adds quotas that a text describes, as `name min/max w=weight keeps fixed [request] used=n { children }`, where
// all but the name and min/max may be left out. Every amount is multiplied by unit.
func plant(t testing.TB, f *quota.Forest, unit int64, text string) {
	t.Helper()
	number := func(s string) amount.List {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("%q of %q: %v", s, text, err)
		}
		return amount.List{cpu: n * unit}
	}
	var parents []string
	var spec quota.Spec
	sums := map[quota.Measure]amount.List{}
	flush := func() {
		if spec.Name != "" {
			f.Set(spec)
			for m, n := range sums {
				f.Add(f.Find(spec.Name), m, f.Vector(n))
			}
		}
		spec = quota.Spec{}
		clear(sums)
	}
	for _, word := range strings.Fields(text) {
		switch {
		case word == "{":
			spec.IsParent = true
			parents = append(parents, spec.Name)
			flush()
		case word == "}":
			flush()
			parents = parents[:len(parents)-1]
		case word == "keeps":
			spec.KeepsMin = true
		case word == "fixed":
			spec.FixedMin = true
		case strings.HasPrefix(word, "w="):
			spec.Weight = number(word[2:])
		case strings.HasPrefix(word, "used="):
			sums[quota.Used] = number(word[5:])
		case strings.HasPrefix(word, "["):
			sums[quota.Request] = number(strings.Trim(word, "[]"))
		case strings.Contains(word, "/"):
			least, most, _ := strings.Cut(word, "/")
			spec.Min, spec.Max = number(least), number(most)
		default:
			flush()
			spec.Name = word
			if len(parents) > 0 {
				spec.Parent = parents[len(parents)-1]
			}
		}
	}
	flush()
}

// amounts returns amounts of cpu by quota, in the words of `A=5 B=20`.
func amounts(t testing.TB, unit int64, text string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatalf("%q of %q: %v", value, text, err)
		}
		out[name] = n * unit
	}
	return out
}

func runtimes(f *quota.Forest, names map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for name := range names {
		out[name], _ = f.Runtime(f.Find(name), f.Dimension(cpu))
	}
	return out
}

const (
	seedTree    = "A 10/40 [5]  B 15/60 [20]  C 20/50 [40]  D 15/80 [70]"
	seedLiteral = "A 10/40 [5]  B 15/60 [20]  C 20/50 [30]  D 15/80 [70]"
	treeT1      = `PA 20/100 { A1 10/10 [100]  A2 10/10 [100] }   PB 80/100 { B1 20/40 [100]  B2 40/70 [100] }`
	treeT2      = `eng 120/200 {
	                   search 60/120 { train 20/100 [90]  serve 30/60 [20] }
	                   ads 40/100 { etl 40/100 [10] }
	               }
	               ops 40/100 { batch 40/100 [100] }`
	treeW11 = `donor 3/100 w=1 [0]
	           borrower-00 8/100 w=1 [100] borrower-01 8/100 w=1 [100] borrower-02 8/100 w=1 [100]
	           borrower-03 8/100 w=1 [100] borrower-04 8/100 w=1 [100] borrower-05 8/100 w=1 [100]
	           borrower-06 8/100 w=1 [100] borrower-07 8/100 w=1 [100] borrower-08 7/100 w=1 [100]
	           borrower-09 7/100 w=1 [100]`
)

func TestWorkedTables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tree  string
		total int64
		unit  int64
		want  string // in single units
	}{
		"W1: seed 003 as printed":                {seedTree, 100, 1, "A=5 B=20 C=35 D=40"},
		"W1-lit: the request that the seed says": {seedLiteral, 100, 1, "A=5 B=20 C=30 D=45"},
		"W1-m: in milli-CPU":                     {seedTree, 100, 1000, "A=5000 B=20000 C=35385 D=39615"},
		"W1-lit-m: in milli-CPU":                 {seedLiteral, 100, 1000, "A=5000 B=20000 C=30000 D=45000"},
		"W3-50: less than the mins":              {seedTree, 50, 1, "A=5 B=14 C=18 D=13"},
		"W3-50 in milli-CPU":                     {seedTree, 50, 1000, "A=5000 B=13553 C=17544 D=13903"},
		"W3-30: much less than the mins":         {seedTree, 30, 1, "A=5 B=8 C=10 D=7"},
		"W4: weight 0 never borrows": {
			strings.Replace(seedTree, "D 15/80", "D 15/80 w=0", 1), 100, 1, "A=5 B=20 C=40 D=15",
		},
		"W4-all: no quota may borrow": {
			"A 10/40 [5]  B 15/60 w=0 [20]  C 20/50 w=0 [40]  D 15/80 w=0 [70]", 100, 1, "A=5 B=15 C=20 D=15",
		},
		"W6: more than all requests": {seedTree, 300, 1, "A=5 B=20 C=40 D=70"},
		"W7: no requests":            {"A 10/40  B 15/60  C 20/50  D 15/80", 100, 1, "A=0 B=0 C=0 D=0"},
		"W7 with one that does not lend": {
			"A 10/40  B 15/60 keeps  C 20/50  D 15/80", 100, 1, "A=0 B=15 C=0 D=0",
		},
		"W8: one unit, first name":           {"a 0/1 [1]  b 0/1 [1]", 1, 1, "a=1 b=0"},
		"W8: one unit, who uses it keeps it": {"a 0/1 [1]  b 0/1 [1] used=1", 1, 1, "a=0 b=1"},
		"W9: a ten-fold tie": {
			`q00 0/8 [8] q01 0/8 [8] q02 0/8 [8] q03 0/8 [8] q04 0/8 [8]
			 q05 0/8 [8] q06 0/8 [8] q07 0/8 [8] q08 0/8 [8] q09 0/8 [8]`, 3, 1,
			"q00=1 q01=1 q02=1 q03=0 q04=0 q05=0 q06=0 q07=0 q08=0 q09=0",
		},
		"W11: 81 GPUs": {
			treeW11, 81, 1, `donor=0 borrower-00=9 borrower-01=9 borrower-02=9 borrower-03=8 borrower-04=8
			borrower-05=8 borrower-06=8 borrower-07=8 borrower-08=7 borrower-09=7`,
		},
		"T1":              {treeT1, 100, 1, "PA=20 PB=80 A1=10 A2=10 B1=27 B2=53"},
		"T1 in milli-CPU": {treeT1, 100, 1000, "PA=20000 PB=80000 A1=10000 A2=10000 B1=27273 B2=52727"},
		"T2": {
			treeT2, 200, 1, "eng=120 search=110 train=90 serve=20 ads=10 etl=10 ops=80 batch=80",
		},
		"T5 at 10:00": {"A 50/100 [100]  B 50/100", 100, 1, "A=100 B=0"},
		"T5 at 11:00": {"A 50/100 [100] used=100  B 50/100 [100]", 100, 1, "A=50 B=50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := quota.New(quota.Config{ScaleMin: true})
			f.SetNodes(amount.List{cpu: c.total * c.unit})
			plant(t, f, c.unit, c.tree)
			want := amounts(t, 1, c.want)
			if diff := cmp.Diff(want, runtimes(f, want)); diff != "" {
				t.Errorf("runtimes of %s, total %d (-want +got):\n%s", c.tree, c.total, diff)
			}
			if problems := f.Problems(); len(problems) > 0 {
				t.Errorf("problems of a valid tree: %v", problems)
			}
		})
	}
}

func TestParentsRequestWhatTheirChildrenPass(t *testing.T) {
	t.Parallel()
	f := quota.New(quota.Config{ScaleMin: true})
	plant(t, f, 1, treeT1)
	for name, want := range map[string]int64{"PA": 20, "PB": 110, quota.Root: 120} {
		if got := f.Find(name).Amount(quota.Request, f.Dimension(cpu)); got != want {
			t.Errorf("request of %s: got %d, want %d", name, got, want)
		}
	}
}

// TestTraceShowsTheRoundsOfTheSeed: 45 units are lent as 14, 12 and 19, and the 9 that come back as 3 and 6.
//
// Q24: users cannot find out where a runtime comes from.
func TestTraceShowsTheRoundsOfTheSeed(t *testing.T) {
	t.Parallel()
	type traces map[string]quota.Trace
	for name, c := range map[string]struct {
		tree string
		want traces
	}{
		"W1": {seedTree, traces{
			"A": {Total: 100, EffectiveMin: 10, Limited: 5, Base: 5, Pool: 45, Rounds: []quota.Round{}},
			"B": {
				Total: 100, EffectiveMin: 15, Limited: 20, Base: 15, Pool: 45,
				Rounds: []quota.Round{{45, 190, 14, 9}},
			},
			"C": {
				Total: 100, EffectiveMin: 20, Limited: 40, Base: 20, Pool: 45,
				Rounds: []quota.Round{{45, 190, 12, 0}, {9, 130, 3, 0}},
			},
			"D": {
				Total: 100, EffectiveMin: 15, Limited: 70, Base: 15, Pool: 45,
				Rounds: []quota.Round{{45, 190, 19, 0}, {9, 130, 6, 0}},
			},
		}},
		"W1-lit": {seedLiteral, traces{
			"C": {
				Total: 100, EffectiveMin: 20, Limited: 30, Base: 20, Pool: 45,
				Rounds: []quota.Round{{45, 190, 12, 2}},
			},
			"D": {
				Total: 100, EffectiveMin: 15, Limited: 70, Base: 15, Pool: 45,
				Rounds: []quota.Round{{45, 190, 19, 0}, {11, 80, 11, 0}},
			},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := quota.New(quota.Config{ScaleMin: true})
			f.SetNodes(amount.List{cpu: 100})
			plant(t, f, 1, c.tree)
			got := traces{}
			for name := range c.want {
				got[name], _ = f.Trace(f.Find(name), f.Dimension(cpu))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("trace (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExactSharesAreNotRounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tree  string
		total int64
		want  map[string]string // exact share, slack, goal
	}{
		"two rounds leave a unit of slack": {seedTree, 100, map[string]string{
			"A": "5 1 6", "B": "20 1 21", "C": "460/13 1 37", "D": "515/13 1 41",
		}},
		"scaled mins round once more": {seedTree, 50, map[string]string{
			"A": "5 1 6", "B": "515/38 1 15", "C": "1000/57 1 19", "D": "1585/114 1 15",
		}},
		"T5 takes back exactly 50": {"A 50/100 [100] used=100  B 50/100 [100]", 100, map[string]string{
			"A": "50 0 50", "B": "50 0 50",
		}},
		"T1": {treeT1, 100, map[string]string{
			"PA": "20 0 20", "A1": "10 0 10", "B1": "300/11 0 28", "B2": "580/11 0 53",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := quota.New(quota.Config{ScaleMin: true})
			f.SetNodes(amount.List{cpu: c.total})
			plant(t, f, 1, c.tree)
			s, d := f.Shares(), f.Dimension(cpu)
			got := maps.Clone(c.want)
			for name := range got {
				q := f.Find(name)
				exact, _ := s.Exact(q, d)
				got[name] = fmt.Sprintf("%s %d %d", exact.RatString(), s.Slack(q, d), s.Goal(q, d))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("share, slack, goal (-want +got):\n%s", diff)
			}
		})
	}
}

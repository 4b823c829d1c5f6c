package suppress_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/suppress"
)

func TestExcess(t *testing.T) {
	t.Parallel()
	b := suppress.Bounds{FromPercent: 70, ToPercent: 60}
	tests := map[string]struct {
		used, capacity int64
		bounds         suppress.Bounds
		want           int64
	}{
		"below the threshold": {699, 1000, b, 0},
		"at the threshold":    {700, 1000, b, 100},
		"above all":           {1000, 1000, b, 400},
		"without a threshold nothing is too much":       {1000, 1000, suppress.Bounds{ToPercent: 60}, 0},
		"the lower percent is 0: all goes":              {700, 1000, suppress.Bounds{FromPercent: 70}, 700},
		"bad: the lower percent is above the threshold": {800, 1000, suppress.Bounds{70, 90}, 100},
		"bad: a negative lower percent is 0":            {700, 1000, suppress.Bounds{70, -3}, 700},
		"bad: a negative threshold is none":             {700, 1000, suppress.Bounds{-70, -72}, 0},
		"bad: a threshold of 101 is 100":                {1000, 1000, suppress.Bounds{101, 99}, 10},
		"bad: a node without memory":                    {700, 0, b, 0},
		"bad: a negative capacity":                      {700, -1000, b, 0},
		"bad: a negative use":                           {-700, 1000, b, 0},
		"bad: the largest amounts": {
			math.MaxInt64, math.MaxInt64, suppress.Bounds{100, 100}, 0,
		},
		"bad: the largest use of a small node is too much": {math.MaxInt64, 1000, b, math.MaxInt64 - 600},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := suppress.Excess(test.used, test.capacity, test.bounds); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestPressureEvictsEarly(t *testing.T) {
	t.Parallel()
	b := suppress.Bounds{FromPercent: 90, ToPercent: 80}
	for name, test := range map[string]struct {
		bounds  suppress.Bounds
		waiting int64
		want    suppress.Bounds
		early   bool
	}{
		"no task waits":                         {b, 0, b, false},
		"tasks wait in a little less than 10 %": {b, 999, b, false},
		"tasks wait in 10 %":                    {b, 1000, suppress.Bounds{80, 80}, true},
		"the lower bound is below 70 %":         {suppress.Bounds{90, 50}, 1000, suppress.Bounds{70, 50}, true},
		"the threshold is 71 %":                 {suppress.Bounds{71, 60}, 5000, suppress.Bounds{70, 60}, true},
		"the threshold is 70 %":                 {suppress.Bounds{70, 60}, 5000, suppress.Bounds{70, 60}, false},
		"no threshold is set":                   {suppress.Bounds{}, 10000, suppress.Bounds{}, false},
		"bad: a negative part":                  {b, -1, b, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, early := test.bounds.Early(test.waiting); got != test.want || early != test.early {
				t.Errorf("got %v, %t, want %v, %t", got, early, test.want, test.early)
			}
		})
	}
}

func TestPodsThatWantNoMoreAreNotShort(t *testing.T) {
	t.Parallel()
	b := suppress.Bounds{FromPercent: 20, ToPercent: 40}
	for name, test := range map[string]struct{ allowed, used, share, want int64 }{
		"they use all that they may":            {100, 100, 90, 750},
		"they use the share of it":              {100, 90, 90, 750},
		"they use a little less":                {100, 89, 90, 0},
		"they may use nothing, and use nothing": {0, 0, 90, 1000},
		"they may use as much as they need":     {200, 200, 90, 0},
		"bad: what they may use is negative":    {-100, 0, 90, 1000},
		"bad: a share of 101 is 100":            {100, 100, 101, 750},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := suppress.Short(1000, test.allowed, test.used, test.share, b); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestUnmet(t *testing.T) {
	t.Parallel()
	b := suppress.Bounds{FromPercent: 20, ToPercent: 40}
	tests := map[string]struct {
		requested, allowed int64
		bounds             suppress.Bounds
		want               int64
	}{
		"satisfied to the lower percent":             {10_000, 2000, b, 0},
		"below it":                                   {10_000, 1999, b, 10_000 - 4997},
		"pods may use nothing: all goes":             {10_000, 0, b, 10_000},
		"without a lower percent all are satisfied":  {10_000, 0, suppress.Bounds{ToPercent: 40}, 0},
		"without requests nothing is missing":        {0, 0, b, 0},
		"bad: the upper percent is below the lower":  {10_000, 1000, suppress.Bounds{20, 10}, 5000},
		"bad: a negative percent is none":            {10_000, 0, suppress.Bounds{-20, -10}, 0},
		"bad: an upper percent of 200 is 100":        {10_000, 1000, suppress.Bounds{20, 200}, 9000},
		"bad: a negative allowance is none":          {10_000, -5, b, 10_000},
		"bad: a negative request":                    {-10_000, 0, b, 0},
		"bad: the largest request does not overflow": {math.MaxInt64, 0, b, math.MaxInt64},
		"bad: a large request with a large allowance": {
			math.MaxInt64, math.MaxInt64 / 10, suppress.Bounds{20, 100}, math.MaxInt64 - math.MaxInt64/10,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := suppress.Unmet(test.requested, test.allowed, test.bounds); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestWhatIsNotSatisfiedIsSatisfiedAfterwards: without Unmet of the requests the rest is satisfied, and with one unit
// more it is not.
func TestWhatIsNotSatisfiedIsSatisfiedAfterwards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := suppress.Bounds{FromPercent: rapid.Int64Range(1, 100).Draw(t, "from")}
		b.ToPercent = rapid.Int64Range(b.FromPercent, 100).Draw(t, "to")
		requested := rapid.Int64Range(1, 100_000).Draw(t, "requested")
		allowed := rapid.Int64Range(0, 100_000).Draw(t, "allowed")
		unmet := suppress.Unmet(requested, allowed, b)
		if unmet == 0 {
			if allowed < requested*b.FromPercent/100 && allowed*100 < requested*b.ToPercent {
				t.Fatalf("%d of %d is below %d %%, and nothing goes", allowed, requested, b.FromPercent)
			}
			return
		}
		satisfied := func(rest int64) bool { return allowed*100 >= rest*b.ToPercent }
		if rest := requested - unmet; !satisfied(rest) || satisfied(rest+1) {
			t.Fatalf("%d of %d allowed, %+v: %d goes; the rest of %d", allowed, requested, b, unmet, rest)
		}
	})
}

func names(pods []suppress.Pod) string {
	var uids []string
	for _, p := range pods {
		uids = append(uids, p.UID)
	}
	return strings.Join(uids, " ")
}

func TestVictims(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pods []suppress.Pod
		need int64
		want string
	}{
		"the lowest eviction priority goes first, whatever the other priorities": {
			[]suppress.Pod{
				{UID: "b", Priority: 5000, SubPriority: -1, Used: 9, Frees: 9},
				{UID: "a", EvictionPriority: -5, Priority: 5500, Used: 1, Frees: 1},
				{UID: "c", EvictionPriority: 1, Frees: 9},
			}, 2, "a b",
		},
		"then the lowest priority, whatever it uses": {
			[]suppress.Pod{
				{UID: "b", Priority: 5500, Used: 9, Frees: 9}, {UID: "a", Priority: 5000, Used: 1, Frees: 1},
			}, 1, "a",
		},
		"then the lowest sub-priority": {
			[]suppress.Pod{{UID: "b", SubPriority: 1, Frees: 9}, {UID: "a", SubPriority: -1, Frees: 1}}, 1, "a",
		},
		"then the one that uses most of its request": {
			[]suppress.Pod{
				{UID: "b", Used: 90, Requested: 100, Frees: 90}, {UID: "a", Used: 20, Requested: 10, Frees: 20},
			}, 1, "a",
		},
		"one that requests nothing is above all requests": {
			[]suppress.Pod{{UID: "b", Used: 1 << 60, Requested: 1, Frees: 9}, {UID: "a", Used: 1, Frees: 1}}, 1, "a",
		},
		"of two without requests the one that uses more": {
			[]suppress.Pod{{UID: "a", Used: 1, Frees: 1}, {UID: "b", Used: 2, Frees: 2}}, 1, "b",
		},
		"as many as are needed": {
			[]suppress.Pod{
				{UID: "c", Priority: 3, Frees: 5}, {UID: "a", Priority: 1, Frees: 5}, {UID: "b", Priority: 2, Frees: 5},
			}, 6, "a b",
		},
		"all, where all are not enough":  {[]suppress.Pod{{UID: "a", Frees: 5}, {UID: "b", Frees: 5}}, 100, "a b"},
		"a pod that frees nothing stays": {[]suppress.Pod{{UID: "a"}, {UID: "b", Priority: 9, Frees: 1}}, 1, "b"},
		"a pod that leaves counts": {
			[]suppress.Pod{{UID: "a", Frees: 5, IsLeaving: true}, {UID: "b", Frees: 5}},
			5, "",
		},
		"what a pod that leaves lacks": {
			[]suppress.Pod{{UID: "a", Frees: 5, IsLeaving: true}, {UID: "b", Frees: 5}},
			6, "b",
		},
		"nothing is needed":                 {[]suppress.Pod{{UID: "a", Frees: 5}}, 0, ""},
		"no pods":                           {nil, 5, ""},
		"bad: a negative need":              {[]suppress.Pod{{UID: "a", Frees: 5}}, -5, ""},
		"bad: a pod that frees less than 0": {[]suppress.Pod{{UID: "a", Frees: -5}}, 5, ""},
		"bad: one that leaves and adds": {
			[]suppress.Pod{{UID: "a", Frees: -5, IsLeaving: true}, {UID: "b", Frees: 5}},
			5, "b",
		},
		"bad: amounts below 0 order as 0": {
			[]suppress.Pod{{UID: "a", Used: -9, Frees: 1}, {UID: "b", Used: 1, Frees: 1}},
			1, "b",
		},
		"bad: the largest amounts have order": {
			[]suppress.Pod{
				{UID: "b", Used: math.MaxInt64 - 1, Requested: math.MaxInt64, Frees: 1},
				{UID: "a", Used: math.MaxInt64, Requested: math.MaxInt64, Frees: 1},
			},
			1, "a",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := names(suppress.Victims(test.pods, test.need)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestVictimsAreThoseOfBruteForce compares with all sets of pods: the victims are the smallest set that frees enough
// and has, with each pod, all that go before it.
func TestVictimsAreThoseOfBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.Int64Range(0, 4)
		pods := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) suppress.Pod {
			p := suppress.Pod{
				EvictionPriority: rapid.Int32Range(-1, 0).Draw(t, "eviction priority"),
				Priority:         rapid.Int32Range(0, 1).Draw(t, "priority"),
				SubPriority:      rapid.Int32Range(0, 1).Draw(t, "sub"),
				Used:             small.Draw(t, "used"), Requested: small.Draw(t, "requested"),
				IsLeaving: rapid.Bool().Draw(t, "leaves"),
			}
			p.Frees = p.Used
			return p
		}), 0, 7).Draw(t, "pods")
		for i := range pods {
			pods[i].UID = fmt.Sprint(i)
		}
		need := rapid.Int64Range(-2, 15).Draw(t, "need")
		got := suppress.Victims(slices.Clone(pods), need)
		shuffled := rapid.Permutation(pods).Draw(t, "shuffled")
		if again := suppress.Victims(shuffled, need); !slices.Equal(got, again) {
			t.Fatalf("%v, and in another order of the pods %v", got, again)
		}
		if want := bruteForce(pods, need); names(got) != want {
			t.Fatalf("of %+v for %d: got %s, want %s", pods, need, names(got), want)
		}
	})
}

func bruteForce(pods []suppress.Pod, need int64) string {
	ratio := func(p suppress.Pod) *big.Rat {
		if p.Requested == 0 {
			return big.NewRat(min(p.Used, 1)*1_000_000, 1)
		}
		return big.NewRat(p.Used, p.Requested)
	}
	before := func(a, b suppress.Pod) int {
		return cmp.Or(cmp.Compare(a.EvictionPriority, b.EvictionPriority), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.SubPriority, b.SubPriority), ratio(b).Cmp(ratio(a)), cmp.Compare(b.Used, a.Used),
			cmp.Compare(a.UID, b.UID))
	}
	var able []suppress.Pod
	for _, p := range pods {
		switch {
		case p.IsLeaving:
			need -= p.Frees
		case p.Frees > 0:
			able = append(able, p)
		}
	}
	best, all := -1, 1<<len(able)-1
	for set := range all + 1 {
		freed, closed := int64(0), true
		for i, p := range able {
			if set>>i&1 == 0 {
				continue
			}
			freed += p.Frees
			for j, q := range able {
				closed = closed && (set>>j&1 == 1 || before(p, q) < 0)
			}
		}
		if closed && freed >= need && (best < 0 || freed < freedBy(able, best)) {
			best = set
		}
	}
	if best < 0 {
		best = all // not enough: all go
	}
	var chosen []suppress.Pod
	for i, p := range able {
		if best>>i&1 == 1 {
			chosen = append(chosen, p)
		}
	}
	slices.SortFunc(chosen, before)
	return names(chosen)
}

func freedBy(pods []suppress.Pod, set int) (sum int64) {
	for i, p := range pods {
		sum += p.Frees * int64(set>>i&1)
	}
	return sum
}

func TestLasting(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		at   []int // seconds; negative: it is not so in second -n
		want bool
	}{
		"as long as the window":                 {[]int{10, 15, 20}, true},
		"shorter":                               {[]int{10, 15, 19}, false},
		"not so in between":                     {[]int{10, -15, 20}, false},
		"not so now":                            {[]int{10, 15, -20}, false},
		"once":                                  {[]int{20}, false},
		"a gap in the measurements begins anew": {[]int{10, 21}, false},
		"and then it lasts":                     {[]int{10, 21, 26, 31}, true},
		"bad: a clock that goes back begins anew": {[]int{110, 115, 20}, false},
		"bad: and forward again":                  {[]int{10, 5, 15}, true},
		"bad: a clock that jumps far ahead":       {[]int{10, 15, 100_000}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l suppress.Lasting
			got := false
			for _, second := range test.at {
				got = l.For(10*time.Second, time.Unix(int64(max(second, -second)), 0), second > 0)
			}
			if got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

package isolate_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/isolate"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func ids(list string) []int {
	out, err := cpuset.ParseIDs(list)
	if err != nil {
		panic(err)
	}
	return out
}

// machine has 8 CPUs on 2 NUMA nodes.
func machine(online, quiet, isolated string) *isolate.Steering {
	return &isolate.Steering{
		Online: ids(online), Quiet: ids(quiet), BootIsolated: ids(isolated),
		Nodes: map[int][]int{0: ids("0-3"), 1: ids("4-7")},
	}
}

func TestWhereInterruptsFire(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steering           *isolate.Steering
		original           string
		node               int
		want, wantsBanned  string
		banned             string
		housekeepingIsNone bool
	}{
		"all but the quiet CPUs":                {machine("0-7", "2-3", ""), "0-7", -1, "0-1,4-7", "2-3", "", false},
		"all are quiet: those of the NUMA node": {machine("0-7", "2-3", ""), "2-3", 0, "0-1", "2-3", "", false},
		"all are quiet: no NUMA node is known":  {machine("0-7", "2-3", ""), "2-3", -1, "0-1,4-7", "2-3", "", false},
		"all are quiet: an unknown NUMA node":   {machine("0-7", "2-3", ""), "3", 9, "0-1,4-7", "2-3", "", false},
		"the whole NUMA node is quiet":          {machine("0-7", "0-3", ""), "2-3", 0, "4-7", "0-3", "", false},
		"none is quiet":                         {machine("0-7", "2-3", ""), "4-7", 0, "4-7", "2-3", "", false},
		"the rest is offline":                   {machine("0-4", "2-3", ""), "2-3,6", 1, "4", "2-3", "", false},
		"the rest of the node is isolated":      {machine("0-7", "2-3", "0-1"), "2-3", 0, "4-7", "2-3", "", false},
		"isolated CPUs that it had remain":      {machine("0-7", "2-3", "0-1"), "0-3", 0, "0-1", "2-3", "", false},
		"no CPU is left":                        {machine("0-3", "0-3", ""), "0-7", 0, "0-7", "", "", true},
		"the isolated ones would be left alone": {machine("0-3", "0-1", "2-3"), "0-3", 0, "0-3", "", "", true},
		"a mask without CPUs":                   {machine("0-7", "2-3", ""), "", 0, "", "2-3", "", false},
		"an admin's ban remains":                {machine("0-7", "2-3", ""), "0", 0, "0", "2-3,7", "7", false},
		"only offline CPUs, none of them quiet": {machine("0-3", "2-3", ""), "6", 1, "6", "2-3", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := cpuset.FormatIDs(c.steering.Affinity(ids(c.original), c.node)); got != c.want {
				t.Errorf("an interrupt that had %q has %q, want %q", c.original, got, c.want)
			}
			if got := cpuset.FormatIDs(c.steering.Banned(ids(c.banned))); got != c.wantsBanned {
				t.Errorf("bans %q are %q, want %q", c.banned, got, c.wantsBanned)
			}
			if none := len(c.steering.Housekeeping()) == 0; none != c.housekeepingIsNone {
				t.Errorf("no housekeeping CPU: %v, want %v", none, c.housekeepingIsNone)
			}
		})
	}
}

func TestMasks(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"": "0", "0": "1", "0-1,4-7": "f3", "0-31": "ffffffff", "32": "1,00000000", "0-39": "ff,ffffffff",
		"1023": "80000000" + string(slices.Repeat([]byte(",00000000"), 31)),
	} {
		if got := isolate.FormatMask(ids(list)); got != want {
			t.Errorf("CPUs %q are %q, want %q", list, got, want)
		}
	}
}

// TestNoInterruptRemains draws machines: as long as a CPU is left, an interrupt fires on no quiet CPU and on an online
// one; without quiet CPUs it has what it had.
func TestNoInterruptRemains(t *testing.T) {
	t.Parallel()
	cpus := rapid.Custom(func(t *rapid.T) []int {
		drawn := rapid.SliceOfNDistinct(rapid.IntRange(0, 11), 0, 12, rapid.ID[int]).Draw(t, "cpus")
		slices.Sort(drawn)
		return drawn
	})
	rapid.Check(t, func(t *rapid.T) {
		s := isolate.Steering{
			Online: cpus.Draw(t, "online"), Quiet: cpus.Draw(t, "quiet"), BootIsolated: cpus.Draw(t, "isolated"),
			Nodes: map[int][]int{0: ids("0-5"), 1: ids("6-11")},
		}
		original := cpus.Draw(t, "original")
		got := s.Affinity(original, rapid.IntRange(-1, 2).Draw(t, "node"))
		touched := slices.ContainsFunc(original, func(c int) bool { return slices.Contains(s.Quiet, c) })
		if !touched || len(s.Housekeeping()) == 0 {
			if diff := cmp.Diff(original, got); diff != "" {
				t.Fatalf("nothing was to change (-had +has):\n%s", diff)
			}
			return
		}
		if slices.ContainsFunc(got, func(c int) bool { return slices.Contains(s.Quiet, c) }) {
			t.Fatalf("it fires on %v, of which %v are quiet", got, s.Quiet)
		}
		if !slices.ContainsFunc(got, func(c int) bool { return slices.Contains(s.Online, c) }) {
			t.Fatalf("it fires on %v, none of which is online (%v)", got, s.Online)
		}
	})
}

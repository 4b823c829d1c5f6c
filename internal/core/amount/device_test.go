package amount_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// deviceNames are all names under which a quota can limit GPUs, RDMA and FPGAs.
var deviceNames = []string{
	"amd.com/gpu", "dcu.com/gpu", "koordinator.sh/fpga", "koordinator.sh/gpu", "koordinator.sh/gpu-core",
	"koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/rdma", "kubernetes.io/fpga",
	"kubernetes.io/gpu", "kubernetes.io/gpu-core", "kubernetes.io/gpu-memory", "kubernetes.io/gpu-memory-ratio",
	"kubernetes.io/rdma", "nvidia.com/gpu",
}

func TestDevicesCountUnderEveryName(t *testing.T) {
	const gib = 1 << 30
	names := []string{
		"koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio",
		"nvidia.com/gpu",
	}
	type counts [5]int64 // under names
	for _, c := range []struct {
		name    string
		amounts amount.List
		asked   counts
		offered counts
	}{
		{"nothing", amount.List{"cpu": 1000}, counts{}, counts{}},
		{"2 whole", amount.List{"nvidia.com/gpu": 2}, counts{200, 200, 0, 200, 2}, counts{200, 200, 0, 200, 2}},
		{"2 of AMD", amount.List{"amd.com/gpu": 2}, counts{200, 200, 0, 200, 0}, counts{200, 200, 0, 200, 0}},
		{"half of one", amount.List{"koordinator.sh/gpu": 50}, counts{50, 50, 0, 50, 1}, counts{50, 50, 0, 50, 0}},
		{
			"alias of a half",
			amount.List{"kubernetes.io/gpu": 50},
			counts{50, 50, 0, 50, 1},
			counts{50, 50, 0, 50, 0},
		},
		{
			"core and ratio",
			amount.List{"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 60},
			counts{60, 50, 0, 60, 1},
			counts{50, 50, 0, 60, 0},
		},
		{
			"core and bytes",
			amount.List{"koordinator.sh/gpu-core": 60, "koordinator.sh/gpu-memory": 4 * gib},
			counts{100, 60, 4 * gib, 100, 1},
			counts{0, 60, 4 * gib, 0, 0},
		},
		{
			"bytes alone",
			amount.List{"kubernetes.io/gpu-memory": 4 * gib},
			counts{100, 0, 4 * gib, 100, 1},
			counts{0, 0, 4 * gib, 0, 0},
		},
		{
			"spread over two",
			amount.List{
				"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": 4 * gib,
			},
			counts{200, 100, 4 * gib, 200, 2},
			counts{0, 100, 4 * gib, 0, 0},
		},
		{
			"a whole one and a share",
			amount.List{"nvidia.com/gpu": 1, "koordinator.sh/gpu": 30},
			counts{130, 130, 0, 130, 2},
			counts{30, 30, 0, 30, 1},
		},
		{
			"a node of Koordinator",
			amount.List{
				"koordinator.sh/gpu-core": 400, "koordinator.sh/gpu-memory": 32 * gib,
				"koordinator.sh/gpu-memory-ratio": 400,
			},
			counts{400, 400, 32 * gib, 400, 4},
			counts{400, 400, 32 * gib, 400, 4},
		},
		{
			"both on a node",
			amount.List{
				"nvidia.com/gpu": 3, "koordinator.sh/gpu-core": 400, "koordinator.sh/gpu-memory-ratio": 400,
			},
			counts{700, 700, 0, 700, 7},
			counts{400, 400, 0, 400, 3},
		},
		{
			"absurd",
			amount.List{"nvidia.com/gpu": math.MaxInt64, "koordinator.sh/gpu": -5},
			counts{
				math.MaxInt64 / 1000 * 100, math.MaxInt64 / 1000 * 100, 0, math.MaxInt64 / 1000 * 100, math.MaxInt64,
			},
			counts{
				math.MaxInt64 / 1000 * 100, math.MaxInt64 / 1000 * 100, 0, math.MaxInt64 / 1000 * 100, math.MaxInt64,
			},
		},
	} {
		before := maps.Clone(c.amounts)
		asked, offered := c.amounts.Asked(names), c.amounts.Offered(names)
		for i, name := range names {
			if asked[name] != c.asked[i] || offered[name] != c.offered[i] {
				t.Errorf("%s: %s: asked %d, offered %d, want %d and %d", c.name, name, asked[name], offered[name],
					c.asked[i], c.offered[i])
			}
		}
		if !maps.Equal(before, c.amounts) {
			t.Errorf("%s: the amounts themselves changed to %v", c.name, c.amounts)
		}
		for _, amounts := range []amount.List{asked, offered} {
			for name := range amounts {
				if _, stated := c.amounts[name]; !stated && !slices.Contains(names, name) {
					t.Errorf("%s: %s is added though no quota names it", c.name, name)
				}
			}
		}
	}
}

func TestIsDevice(t *testing.T) {
	for _, name := range []string{"cpu", "memory", "example.com/gpu", "koordinator.sh/gpu.shared"} {
		if amount.IsDevice(name) {
			t.Errorf("%s has other names", name)
		}
	}
	for _, name := range deviceNames {
		if !amount.IsDevice(name) {
			t.Errorf("%s has no other name", name)
		}
	}
	if a := (amount.List{"nvidia.com/gpu": 1}); len(a.Asked(nil)) != 1 || len(a.Offered(nil)) != 1 {
		t.Error("amounts change though no quota names a device")
	}
}

// TestALimitUnderOneNameHoldsPodsThatUseAnother gives GPUs one by one to pods with names of their own, beside the
// nodes that the GPUs are on.
func TestALimitUnderOneNameHoldsPodsThatUseAnother(t *testing.T) {
	names := []string{
		"koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "kubernetes.io/gpu",
		"kubernetes.io/gpu-core", "kubernetes.io/gpu-memory-ratio", "nvidia.com/gpu",
	}
	spellings := func(whole int64) []amount.List {
		return []amount.List{
			{"nvidia.com/gpu": whole},
			{"koordinator.sh/gpu": 100 * whole},
			{"kubernetes.io/gpu": 100 * whole},
			{"koordinator.sh/gpu-core": 100 * whole, "koordinator.sh/gpu-memory-ratio": 100 * whole},
			{"kubernetes.io/gpu-core": 100 * whole, "koordinator.sh/gpu-memory-ratio": 100 * whole},
			{
				"koordinator.sh/gpu-core": 100 * whole, "koordinator.sh/gpu-memory": 80 << 30 * whole,
				"koordinator.sh/gpu.shared": whole,
			},
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		asked, offered := amount.List{}, amount.List{}
		var given int64
		for range rapid.IntRange(1, 5).Draw(t, "nodes") {
			has := rapid.Int64Range(1, 8).Draw(t, "GPUs")
			spelling := rapid.IntRange(0, len(spellings(1))-2).Draw(t, "node's names") // a node says no gpu.shared
			for name, n := range spellings(has)[spelling].Offered(names) {
				offered[name] += n
			}
			for left := has; left > 0; {
				takes := rapid.Int64Range(1, left).Draw(t, "takes")
				left -= takes
				given += takes
				pod := rapid.SampledFrom(spellings(takes)).Draw(t, "pod")
				for name, n := range pod.Asked(names) {
					asked[name] += n
				}
			}
		}
		for _, name := range names {
			unit := int64(100)
			if name == "nvidia.com/gpu" {
				unit = 1
			}
			if asked[name] != unit*given || offered[name] != unit*given {
				t.Fatalf("%s: %d asked, %d offered by nodes with %d GPUs that are all taken", name, asked[name],
					offered[name], given)
			}
		}
	})
}

package colocation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
)

func TestBatchAmountsOfNUMANodes(t *testing.T) {
	t.Parallel()
	zone := func(capacity, use int64) Zone { return Zone{Capacity: cpu(capacity), Use: cpu(use)} }
	for name, c := range map[string]struct {
		granted, batchUse int64
		zones             []Zone
		want              []int64
	}{
		"idle NUMA nodes get equal parts": {8000, 0, []Zone{zone(16000, 0), zone(16000, 0)}, []int64{4000, 4000}},
		"a busy one gets what others leave it": {
			8000, 0, []Zone{zone(16000, 12000), zone(16000, 4000)}, []int64{2000, 6000},
		},
		"what batch pods use is theirs": {
			8000, 8000, []Zone{zone(16000, 16000), zone(16000, 8000)}, []int64{2000, 6000},
		},
		"one that is full gets nothing": {8000, 0, []Zone{zone(16000, 16000), zone(16000, 0)}, []int64{0, 8000}},
		"no one gets more than there is": {
			30000, 0, []Zone{zone(16000, 6000), zone(16000, 16000)}, []int64{10000, 0},
		},
		"one without CPUs gets nothing":    {8000, 100, []Zone{zone(0, 0), zone(16000, 0)}, []int64{0, 8000}},
		"what cannot be divided goes last": {7, 0, []Zone{zone(10, 0), zone(10, 0)}, []int64{3, 4}},
		"nothing is granted":               {0, 0, []Zone{zone(10, 0), zone(10, 0)}, []int64{0, 0}},
		"a node without NUMA nodes":        {8, 0, nil, []int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := []int64{}
			for _, part := range Spread(cpu(c.granted), cpu(c.batchUse), c.zones) {
				got = append(got, part[amount.CPU])
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPartsOfNUMANodesAreNeverMoreThanIsGrantedOrFree: the parts are as much as is granted wherever others leave that
// much, and none is more than others leave there.
func TestPartsOfNUMANodesAreNeverMoreThanIsGrantedOrFree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.Int64Range(0, 1<<50)
		amounts := func(name string) pair { return pair{drawn.Draw(t, name), drawn.Draw(t, name)} }
		zones := make([]Zone, rapid.IntRange(0, 8).Draw(t, "zones"))
		for i := range zones {
			zones[i] = Zone{amounts("capacity"), amounts("use")}
		}
		granted := amounts("granted")
		for r := range amount.Resources {
			var sum, room int64
			for i, part := range Spread(granted, pair{}, zones) {
				free := max(zones[i].Capacity[r]-zones[i].Use[r], 0)
				if part[r] < 0 || part[r] > free {
					t.Fatalf("a part of %d of resource %d, others leave %d", part[r], r, free)
				}
				sum, room = sum+part[r], room+free
			}
			if sum != min(granted[r], room) {
				t.Fatalf("%d of resource %d in all, want the lesser of %d granted and %d free", sum, r, granted[r],
					room)
			}
		}
	})
}

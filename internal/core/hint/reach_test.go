package hint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/core/topo"
)

func TestBothWaysOfFoldingReachTheSameMasks(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 9; n++ {
		for range 200 {
			lists := make([][]uint32, 2)
			for i := range lists {
				keep := random.Uint32()
				for m := 1; m < 1<<n; m++ {
					if random.Uint32() <= keep && random.IntN(4) > 0 {
						lists[i] = append(lists[i], uint32(m))
					}
				}
			}
			reached := map[uint32]bool{}
			for _, a := range lists[0] {
				for _, b := range lists[1] {
					reached[a&b] = true
				}
			}
			delete(reached, 0)
			for name, meet := range map[string]func(*fold){"pairs": (*fold).meetPairs, "vectors": (*fold).meetVectors} {
				f := fold{
					active: topo.FirstNodes(n), seen: make([]uint32, 1<<n), masks: slices.Clone(lists[0]),
					list: slices.Clone(lists[1]),
				}
				meet(&f)
				if got := fmt.Sprint(sorted(f.masks)); got != fmt.Sprint(keys(reached)) {
					t.Fatalf("%s of %v and %v: got %v, want %v", name, lists[0], lists[1], got, keys(reached))
				}
				if slices.Max(f.seen) != 0 {
					t.Fatalf("%s leaves marks", name)
				}
			}
		}
	}
}

func sorted(masks []uint32) []uint32 { return slices.Sorted(slices.Values(masks)) }

func keys(set map[uint32]bool) []uint32 {
	var masks []uint32
	for m := range set {
		masks = append(masks, m)
	}
	return sorted(masks)
}

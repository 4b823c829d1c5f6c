package defrag_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/defrag"
	"github.com/tenon-project/tenon/internal/testkit"
)

// bins are nodes with equal room. What is free of one in vain is the rest of a division by three.
type bins struct {
	names []string
	size  map[string]int64 // of pods
	on    map[string]string
	room  int64
	asked int
	fails int // the number of the question that is not answered
}

var errLate = errors.New("late")

func (b *bins) lost(on map[string]string) (sum int64) {
	for _, name := range b.names {
		free := b.free(name, on)
		sum += free % 3
	}
	return sum
}

func (b *bins) free(node string, on map[string]string) int64 {
	free := b.room
	for pod, at := range on {
		if at == node {
			free -= b.size[pod]
		}
	}
	return free
}

func (b *bins) Targets(uid string) (targets []string, _ error) {
	for _, name := range b.names {
		if name != b.on[uid] {
			targets = append(targets, name)
		}
	}
	return targets, nil
}

func (b *bins) Try(made []defrag.Move, m defrag.Move) (int64, bool, error) {
	if b.asked++; b.asked == b.fails {
		return 0, false, errLate
	}
	on := map[string]string{}
	for pod, node := range b.on {
		on[pod] = node
	}
	for _, done := range made {
		on[done.UID] = done.Target
	}
	if b.free(m.Target, on) < b.size[m.UID] {
		return 0, false, nil
	}
	before := b.lost(on)
	on[m.UID] = m.Target
	return before - b.lost(on), true, nil
}

func newBins(r *rand.Rand) (*bins, []defrag.Pod) {
	b := &bins{names: []string{"n0", "n1", "n2"}, size: map[string]int64{}, on: map[string]string{}, room: 10}
	var pods []defrag.Pod
	for i := range 2 + r.IntN(5) {
		uid := fmt.Sprintf("p%d", i)
		node := b.names[r.IntN(len(b.names))]
		size := 1 + r.Int64N(4)
		if b.free(node, b.on) < size {
			continue
		}
		b.size[uid], b.on[uid] = size, node
		pods = append(pods, defrag.Pod{UID: uid, Node: node, Cost: r.Int64N(2), Priority: r.Int32N(2)})
	}
	return b, pods
}

// TestEachMoveLowersTheFragmentationTheMost compares each step with all moves that are left.
func TestEachMoveLowersTheFragmentationTheMost(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(38, 1))
	lengths := map[int]int{}
	for range 2000 {
		b, pods := newBins(r)
		least := 1 + r.Int64N(2)
		got, err := defrag.Improve(b, pods, 3, least)
		testkit.Check(t, err)
		lengths[len(got)]++
		var made []defrag.Move
		for i := range 3 {
			var all []defrag.Step
			for _, p := range pods {
				if slices.ContainsFunc(made, func(m defrag.Move) bool { return m.UID == p.UID }) {
					continue
				}
				for _, target := range b.names {
					m := defrag.Move{Pod: p, Target: target}
					if fall, works, _ := b.Try(made, m); target != p.Node && works && fall >= least {
						all = append(all, defrag.Step{Move: m, Fall: fall})
					}
				}
			}
			slices.SortFunc(all, func(x, y defrag.Step) int {
				return cmp.Or(cmp.Compare(y.Fall, x.Fall), cmp.Compare(x.Cost, y.Cost),
					cmp.Compare(x.Priority, y.Priority),
					strings.Compare(x.UID, y.UID), strings.Compare(x.Target, y.Target))
			})
			if len(all) == 0 {
				if len(got) != i {
					t.Fatalf("%d moves were found, the last one that helps is number %d", len(got), i)
				}
				break
			}
			if diff := gocmp.Diff(all[0], got[i]); diff != "" {
				t.Fatalf("move %d (-want +got):\n%s", i, diff)
			}
			made = append(made, got[i].Move)
		}
	}
	if lengths[0] < 50 || lengths[1] < 50 || lengths[2] < 8 {
		t.Errorf("moves of the cases: %v", lengths)
	}
}

func TestASearchThatEndsEarlyReturnsWhatItHasFound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		b, pods := newBins(rand.New(rand.NewPCG(38, seed)))
		whole, err := defrag.Improve(b, pods, 2, 1)
		testkit.Check(t, err)
		for last := b.asked; b.fails < last; {
			b.fails, b.asked = b.fails+1, 0
			got, err := defrag.Improve(b, pods, 2, 1)
			if !errors.Is(err, errLate) || len(got) > len(whole) {
				t.Fatalf("question %d of %d fails: got %v, error %v", b.fails, last, got, err)
			}
			for i, s := range got {
				var made []defrag.Move
				for _, before := range got[:i] {
					made = append(made, before.Move)
				}
				b.asked = b.fails
				if fall, works, _ := b.Try(made, s.Move); !works || fall != s.Fall || fall < 1 {
					t.Fatalf("move %d: the fall is %d, works %v, want %d", i, fall, works, s.Fall)
				}
			}
		}
	}
}

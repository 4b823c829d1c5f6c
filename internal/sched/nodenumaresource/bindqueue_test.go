package nodenumaresource

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestBindingsOfANodeGoInOrder: whatever the order in which they arrive, those of one node are sent in the order of the
// queue.
func TestBindingsOfANodeGoInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all bindQueues
		var mu sync.Mutex
		gone := map[string][]int{}
		var running sync.WaitGroup
		for i := range 50 {
			all.add(fmt.Sprintf("n%d", i%2), types.UID(fmt.Sprint(i)))
		}
		for i := range 50 {
			node, uid := fmt.Sprintf("n%d", i%2), types.UID(fmt.Sprint(i))
			running.Go(func() {
				time.Sleep(time.Duration(97*i%50) * time.Millisecond) //nolint:forbidigo // the clock is the bubble's
				all.wait(t.Context(), node, uid)
				mu.Lock()
				gone[node] = append(gone[node], i)
				mu.Unlock()
				time.Sleep(time.Millisecond) //nolint:forbidigo // the write
				all.leave(node, uid)
			})
		}
		running.Wait()
		for node, order := range gone {
			if len(order) != 25 || !slices.IsSorted(order) {
				t.Errorf("%s: bound in the order %v, want that of the queue", node, order)
			}
		}
		if len(all.byNode) != 0 {
			t.Errorf("queues are left: %v", all.byNode)
		}
	})
}

func TestNoPodWaitsLongForABlockedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all bindQueues
		for _, uid := range []types.UID{"stuck", "given-up", "next", "last"} {
			all.add("n", uid)
		}
		all.leave("n", "given-up") // unreserved
		begin := time.Now()
		all.wait(t.Context(), "n", "next")
		if waited := time.Since(begin); waited != maxBindWait {
			t.Errorf("waited %v for a pod that does not move, want %v", waited, maxBindWait)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		all.wait(ctx, "n", "last")
		all.wait(t.Context(), "n", "stranger")
		all.wait(t.Context(), "elsewhere", "stranger")
		all.leave("elsewhere", "stranger")
		if waited := time.Since(begin); waited != maxBindWait {
			t.Errorf("waited %v more without a reason", waited-maxBindWait)
		}
		all.leave("n", "stuck")
		all.leave("n", "stuck")
		all.wait(t.Context(), "n", "next")
		if waited := time.Since(begin); waited != maxBindWait {
			t.Errorf("the head of the queue waited %v", waited-maxBindWait)
		}
	})
}

// What was predicted for a pod counts as long as exactly those before it are bound before it.
func TestAPredictionIsStaleWhenTheOrderIsAnother(t *testing.T) {
	t.Parallel()
	newQueues := func() *bindQueues {
		var all bindQueues
		for _, uid := range []types.UID{"a", "b", "c", "d"} {
			all.add("n", uid)
		}
		all.add("elsewhere", "e")
		return &all
	}
	tests := map[string]struct {
		happens func(*bindQueues)
		stale   []types.UID
	}{
		"all are bound in order": {func(all *bindQueues) {
			all.begin("n", "a")
			all.leave("n", "a")
			all.begin("n", "b")
			all.leave("n", "b")
		}, nil},
		"one gives up: those behind it": {
			func(all *bindQueues) { all.giveUp("n", "b") },
			[]types.UID{"c", "d"},
		},
		"the last one gives up": {func(all *bindQueues) { all.giveUp("n", "d") }, nil},
		"one gives up that left the queue: all": {
			func(all *bindQueues) { all.leave("n", "a"); all.giveUp("n", "a") },
			[]types.UID{"b", "c", "d"},
		},
		"one overtakes others that wait: all": {
			func(all *bindQueues) { all.begin("n", "c") },
			[]types.UID{"a", "b", "c", "d"},
		},
		"one comes after another that is not done yet": {
			func(all *bindQueues) { all.begin("n", "a"); all.begin("n", "b") },
			nil,
		},
		"one comes while another is stale": {func(all *bindQueues) {
			all.leave("n", "d")
			all.giveUp("n", "b")
			all.add("n", "d")
		}, []types.UID{"c", "d"}},
		"one comes when none is stale any more": {func(all *bindQueues) {
			all.giveUp("n", "c")
			all.leave("n", "d")
			all.add("n", "d")
		}, nil},
		"a stranger": {func(all *bindQueues) {
			all.begin("n", "x")
			all.leave("n", "x")
			all.begin("nowhere", "a")
			all.giveUp("nowhere", "a")
		}, nil},
	}
	for name, tt := range tests {
		all := newQueues()
		tt.happens(all)
		var stale []types.UID
		for _, uid := range []types.UID{"a", "b", "c", "d"} {
			if all.isStale("n", uid) {
				stale = append(stale, uid)
			}
		}
		if !slices.Equal(stale, tt.stale) {
			t.Errorf("%s: stale are %v, want %v", name, stale, tt.stale)
		}
		if all.isStale("elsewhere", "e") || all.isStale("n", "e") || all.isStale("nowhere", "a") {
			t.Errorf("%s: another node's pod is stale", name)
		}
	}
	all := newQueues()
	all.begin("n", "a")
	if got := all.waiting("n"); !slices.Equal(got, []types.UID{"b", "c", "d"}) || all.waiting("nowhere") != nil {
		t.Errorf("waiting are %v, want those whose Binding is not on the way", got)
	}
}

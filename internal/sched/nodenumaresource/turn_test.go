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

// TestBindingsOfANodeGoInOrder: whatever the order in which they come, those of one node go in the order of their turns.
func TestBindingsOfANodeGoInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		var mu sync.Mutex
		gone := map[string][]int{}
		var running sync.WaitGroup
		for i := range 50 {
			all.take(fmt.Sprintf("n%d", i%2), types.UID(fmt.Sprint(i)))
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
				t.Errorf("%s: bound in the order %v, want that of the turns", node, order)
			}
		}
		if len(all.byNode) != 0 {
			t.Errorf("lines are left: %v", all.byNode)
		}
	})
}

func TestNobodyWaitsForAPodThatDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		for _, uid := range []types.UID{"stuck", "given-up", "next", "last"} {
			all.take("n", uid)
		}
		all.leave("n", "given-up") // unreserved
		begin := time.Now()
		all.wait(t.Context(), "n", "next")
		if waited := time.Since(begin); waited != turnPatience {
			t.Errorf("waited %v for a pod that does not move, want %v", waited, turnPatience)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		all.wait(ctx, "n", "last")
		all.wait(t.Context(), "n", "stranger")
		all.wait(t.Context(), "elsewhere", "stranger")
		all.leave("elsewhere", "stranger")
		if waited := time.Since(begin); waited != turnPatience {
			t.Errorf("waited %v more without a reason", waited-turnPatience)
		}
		all.leave("n", "stuck")
		all.leave("n", "stuck")
		all.wait(t.Context(), "n", "next")
		if waited := time.Since(begin); waited != turnPatience {
			t.Errorf("the first in the line waited %v", waited-turnPatience)
		}
	})
}

// What was predicted for a pod counts as long as exactly those before it are bound before it.
func TestAPredictionIsStaleWhenTheOrderIsAnother(t *testing.T) {
	t.Parallel()
	line := func() *turns {
		var all turns
		for _, uid := range []types.UID{"a", "b", "c", "d"} {
			all.take("n", uid)
		}
		all.take("elsewhere", "e")
		return &all
	}
	tests := map[string]struct {
		happens func(*turns)
		stale   []types.UID
	}{
		"all are bound in order": {func(all *turns) {
			all.begin("n", "a")
			all.leave("n", "a")
			all.begin("n", "b")
			all.leave("n", "b")
		}, nil},
		"one gives up: those behind it":                {func(all *turns) { all.giveUp("n", "b") }, []types.UID{"c", "d"}},
		"the last one gives up":                        {func(all *turns) { all.giveUp("n", "d") }, nil},
		"one gives up that left the line: all":         {func(all *turns) { all.leave("n", "a"); all.giveUp("n", "a") }, []types.UID{"b", "c", "d"}},
		"one overtakes others that wait: all":          {func(all *turns) { all.begin("n", "c") }, []types.UID{"a", "b", "c", "d"}},
		"one comes after another that is not done yet": {func(all *turns) { all.begin("n", "a"); all.begin("n", "b") }, nil},
		"one comes while another is stale": {func(all *turns) {
			all.leave("n", "d")
			all.giveUp("n", "b")
			all.take("n", "d")
		}, []types.UID{"c", "d"}},
		"one comes when none is stale any more": {func(all *turns) {
			all.giveUp("n", "c")
			all.leave("n", "d")
			all.take("n", "d")
		}, nil},
		"a stranger": {func(all *turns) {
			all.begin("n", "x")
			all.leave("n", "x")
			all.begin("nowhere", "a")
			all.giveUp("nowhere", "a")
		}, nil},
	}
	for name, tt := range tests {
		all := line()
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
	all := line()
	all.begin("n", "a")
	if got := all.waiting("n"); !slices.Equal(got, []types.UID{"b", "c", "d"}) || all.waiting("nowhere") != nil {
		t.Errorf("waiting are %v, want those whose Binding is not on the way", got)
	}
}

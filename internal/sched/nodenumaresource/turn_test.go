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

package follow

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
		var all Order
		var mu sync.Mutex
		gone := map[string][]int{}
		var running sync.WaitGroup
		for i := range 50 {
			all.Add(fmt.Sprintf("n%d", i%2), types.UID(fmt.Sprint(i)))
		}
		for i := range 50 {
			node, uid := fmt.Sprintf("n%d", i%2), types.UID(fmt.Sprint(i))
			running.Go(func() {
				time.Sleep(time.Duration(97*i%50) * time.Millisecond) //nolint:forbidigo // the clock is the bubble's
				all.Wait(t.Context(), node, uid)
				mu.Lock()
				gone[node] = append(gone[node], i)
				mu.Unlock()
				time.Sleep(time.Millisecond) //nolint:forbidigo // the write
				all.Leave(node, uid)
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

// TestABindingThatTakesLongIsNotOvertaken: of two Bindings to one node the API server may carry out the second one
// first, and then the kubelet meets the pods in that order.
func TestABindingThatTakesLongIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Order
		uids := []types.UID{"stuck", "slow", "next", "last"}
		for _, uid := range uids {
			all.Add("n", uid)
		}
		var mu sync.Mutex
		var order []types.UID
		flying := 0
		var running sync.WaitGroup
		for _, uid := range uids {
			running.Go(func() {
				if uid == "stuck" { // it waits for a permit
					time.Sleep(4 * maxBindWait) //nolint:forbidigo // the clock is the bubble's
				}
				stale := all.Wait(t.Context(), "n", uid)
				mu.Lock()
				order = append(order, uid)
				if flying++; flying > 1 || !stale {
					t.Errorf("%s is sent beside %d others, its prediction is stale: %v", uid, flying-1, stale)
				}
				mu.Unlock()
				time.Sleep(3 * maxBindWait) //nolint:forbidigo // the write
				mu.Lock()
				flying--
				mu.Unlock()
				all.Leave("n", uid)
			})
		}
		running.Wait()
		if len(order) != len(uids) {
			t.Errorf("sent %v", order)
		}
	})
}

func TestNoPodWaitsLongForABlockedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Order
		for _, uid := range []types.UID{"stuck", "given-up", "next", "last"} {
			all.Add("n", uid)
		}
		all.Leave("n", "given-up") // unreserved
		begin := time.Now()
		all.Wait(t.Context(), "n", "next")
		if waited := time.Since(begin); waited != maxBindWait {
			t.Errorf("waited %v for a pod that does not move, want %v", waited, maxBindWait)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		all.Wait(ctx, "n", "last")
		all.Wait(t.Context(), "n", "outsider")
		all.Wait(t.Context(), "elsewhere", "outsider")
		all.Leave("elsewhere", "outsider")
		if waited := time.Since(begin); waited != maxBindWait {
			t.Errorf("waited %v more without a reason", waited-maxBindWait)
		}
		all.Leave("n", "stuck")
		all.Leave("n", "stuck")
		all.Wait(t.Context(), "n", "next")
		if waited := time.Since(begin); waited != maxBindWait {
			t.Errorf("the head of the queue waited %v", waited-maxBindWait)
		}
	})
}

// What was predicted for a pod counts as long as exactly those before it are bound before it.
func TestAPredictionIsStaleWhenTheOrderIsAnother(t *testing.T) {
	t.Parallel()
	newQueues := func() *Order {
		var all Order
		for _, uid := range []types.UID{"a", "b", "c", "d"} {
			all.Add("n", uid)
		}
		all.Add("elsewhere", "e")
		return &all
	}
	tests := map[string]struct {
		happens func(*Order)
		stale   []types.UID
	}{
		"all are bound in order": {func(all *Order) {
			all.begin("n", "a", false)
			all.Leave("n", "a")
			all.begin("n", "b", false)
			all.Leave("n", "b")
		}, nil},
		"one gives up: those behind it": {
			func(all *Order) { all.GiveUp("n", "b") },
			[]types.UID{"c", "d"},
		},
		"the last one gives up": {func(all *Order) { all.GiveUp("n", "d") }, nil},
		"one gives up that left the queue: all": {
			func(all *Order) { all.Leave("n", "a"); all.GiveUp("n", "a") },
			[]types.UID{"b", "c", "d"},
		},
		"one overtakes others that wait: all": {
			func(all *Order) { all.begin("n", "c", true) },
			[]types.UID{"a", "b", "c", "d"},
		},
		"one comes after another that is not done yet, and waits": {
			func(all *Order) { all.begin("n", "a", false); all.begin("n", "b", true) },
			nil,
		},
		"one comes while another is stale": {func(all *Order) {
			all.Leave("n", "d")
			all.GiveUp("n", "b")
			all.Add("n", "d")
		}, []types.UID{"c", "d"}},
		"one comes when none is stale any more": {func(all *Order) {
			all.GiveUp("n", "c")
			all.Leave("n", "d")
			all.Add("n", "d")
		}, nil},
		"a outsider": {func(all *Order) {
			all.begin("n", "x", true)
			all.Leave("n", "x")
			all.begin("nowhere", "a", true)
			all.GiveUp("nowhere", "a")
		}, nil},
	}
	for name, tt := range tests {
		all := newQueues()
		tt.happens(all)
		var stale []types.UID
		for _, uid := range []types.UID{"a", "b", "c", "d"} {
			if all.IsStale("n", uid) {
				stale = append(stale, uid)
			}
		}
		if !slices.Equal(stale, tt.stale) {
			t.Errorf("%s: stale are %v, want %v", name, stale, tt.stale)
		}
		if all.IsStale("elsewhere", "e") || all.IsStale("n", "e") || all.IsStale("nowhere", "a") {
			t.Errorf("%s: another node's pod is stale", name)
		}
	}
	all := newQueues()
	all.begin("n", "a", false)
	if got := all.waiting("n"); !slices.Equal(got, []types.UID{"b", "c", "d"}) || all.waiting("nowhere") != nil {
		t.Errorf("waiting are %v, want those whose Binding is not on the way", got)
	}
}

package hooks

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
)

// longestCycle is longer than anything that a scheduling cycle waits for and that cures itself.
const longestCycle = 5 * time.Minute

// NextPod takes a pod from the scheduling queue.
type NextPod = podqueue.Next

// Gate holds pods back in the queue until Open is closed, and while enough Bindings are on their way.
type Gate struct {
	// Open is closed when all accounts are complete. Bindings are those that are on their way.
	Open     <-chan struct{}
	Bindings *Bindings
	// Leading is set before each pod: only the leader takes any.
	Leading *atomic.Bool

	// cycle is when the running scheduling cycle began, in nanoseconds since the epoch; 0 between cycles.
	cycle atomic.Int64
}

// Wrap returns next behind the gate, until ctx ends.
func (g *Gate) Wrap(ctx context.Context, next NextPod) NextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		// The cycle before has ended. Waiting at the gate is not part of any cycle.
		g.cycle.Store(0)
		g.Leading.Store(true)
		select {
		case <-g.Open:
		case <-ctx.Done():
		}
		g.Bindings.Wait(ctx)
		pod, err := next(logger)
		g.cycle.Store(time.Now().UnixNano())
		return pod, err
	}
}

// Check fails when one scheduling cycle has run for too long.
func (g *Gate) Check(now time.Time) error {
	began := g.cycle.Load()
	if took := now.Sub(time.Unix(0, began)); began != 0 && took > longestCycle {
		return fmt.Errorf("a scheduling cycle has been running for %s", took.Round(time.Second))
	}
	return nil
}

package hooks

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func newGate(open <-chan struct{}) *Gate {
	return &Gate{Open: open, Bindings: NewBindings(), Leading: &atomic.Bool{}}
}

func TestNothingIsDecidedBeforeAllIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		asked := make(chan struct{}, 1)
		next := newGate(open).Wrap(t.Context(), func(klog.Logger) (*framework.QueuedPodInfo, error) {
			asked <- struct{}{}
			return nil, nil
		})
		go func() { _, _ = next(klog.Background()) }()
		synctest.Wait()
		if len(asked) != 0 {
			t.Fatal("a pod was taken before the accounts were known")
		}
		close(open)
		synctest.Wait()
		if len(asked) != 1 {
			t.Error("no pod was taken after the accounts were known")
		}
	})
}

func TestACycleThatNeverEndsFailsTheCheck(t *testing.T) {
	g := newGate(nil)
	now := time.Unix(1e9, 0)
	if err := g.Check(now); err != nil {
		t.Errorf("between cycles: %v", err)
	}
	g.cycle.Store(now.Add(-time.Minute).UnixNano())
	if err := g.Check(now); err != nil {
		t.Errorf("after a minute: %v", err)
	}
	g.cycle.Store(now.Add(-6 * time.Minute).UnixNano())
	if err := g.Check(now); err == nil {
		t.Error("after six minutes the process must be restarted")
	}
}

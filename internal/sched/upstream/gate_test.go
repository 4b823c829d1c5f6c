package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func newGate(open <-chan struct{}) *Gate {
	return &Gate{Open: open, Bindings: NewBindings(), Leading: func() {}}
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

// slowBinder is a framework whose Bindings end when they are released.
type slowBinder struct {
	framework.Framework
	released chan struct{}
}

func (f *slowBinder) RunBindPlugins(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	<-f.released
	return nil
}

func TestNoPodIsTakenWhileTheBindingsOnTheirWayAreTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowBinder{released: make(chan struct{})}
		open := make(chan struct{})
		close(open)
		g := newGate(open)
		profile := &Profile{Framework: slow, Bindings: g.Bindings}
		taken := 0
		next := g.Wrap(t.Context(), func(klog.Logger) (*framework.QueuedPodInfo, error) {
			taken++
			return nil, nil
		})
		for range BindingsInFlight {
			go profile.RunBindPlugins(t.Context(), nil, nil, "n")
		}
		synctest.Wait()
		go func() { _, _ = next(klog.Background()) }()
		synctest.Wait()
		if taken != 0 {
			t.Fatal("a pod was taken with all Bindings on their way")
		}
		slow.released <- struct{}{}
		synctest.Wait()
		if taken != 1 {
			t.Errorf("got %d pods, want one for the Binding that ended", taken)
		}
		close(slow.released)
	})
}

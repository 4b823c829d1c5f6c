package upstream

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// countingBinder looks at the Bindings on their way while it binds.
type countingBinder struct {
	framework.Framework
	bindings *Bindings
	most     int64
}

func (f *countingBinder) RunBindPlugins(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	f.most = f.bindings.count.Load()
	return nil
}

func TestABindingCountsUntilItEnds(t *testing.T) {
	t.Parallel()
	bindings := NewBindings()
	f := &countingBinder{bindings: bindings}
	p := &Profile{Framework: f, Bindings: bindings}
	for range 2 {
		p.RunBindPlugins(t.Context(), nil, nil, "n")
	}
	if n := bindings.count.Load(); n != 0 || f.most != 1 {
		t.Errorf("got %d Bindings on their way at the end and %d while one is, want 0 and 1", n, f.most)
	}
}

func TestWaitForABindingEndsWithTheContext(t *testing.T) {
	bindings := NewBindings()
	bindings.count.Store(BindingsInFlight)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	bindings.Wait(ctx)
}

package app

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/upstream"
)

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
		bindings := upstream.NewBindings()
		slow := &slowBinder{released: make(chan struct{})}
		profile := &upstream.Profile{Framework: slow, Bindings: bindings}
		s := newGated()
		s.store.MarkSynced()
		taken := 0
		next := s.gate(t.Context(), bindings, func(klog.Logger) (*framework.QueuedPodInfo, error) {
			taken++
			return nil, nil
		})
		for range upstream.BindingsInFlight {
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

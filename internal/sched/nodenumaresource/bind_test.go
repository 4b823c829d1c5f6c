package nodenumaresource

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

var pods = corev1.Resource("pods")

// A Binding whose answer is lost may have been written, or may still be. Until that is known the pod keeps its CPUs.
func TestABindingWhoseAnswerIsLostKeepsItsCPUs(t *testing.T) {
	lost := apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	tests := map[string]struct {
		answer error
		// The Binding is written after arrives, if that is not negative; reads fail until away has passed.
		arrives, away time.Duration
		wantBound     bool
		wantAfter     time.Duration
	}{
		"written, connection reset": {answer: syscall.ECONNRESET, wantBound: true},
		"written, etcd timed out":   {answer: lost, wantBound: true},
		"written late": {
			answer: lost, arrives: 3 * time.Second, wantBound: true,
			wantAfter: 3 * time.Second,
		},
		"written, API server away": {
			answer: apierrors.NewServiceUnavailable("shutting down"), away: time.Minute, wantBound: true,
			wantAfter: time.Minute,
		},
		"never written":                  {answer: lost, arrives: -1, wantAfter: 10 * time.Second},
		"never written, API server away": {answer: lost, arrives: -1, away: time.Minute, wantAfter: time.Minute},
		"refused": {
			answer:  apierrors.NewConflict(pods, "p", errors.New("assigned")),
			arrives: -1,
		},
		"connection refused": {answer: syscall.ECONNREFUSED, arrives: -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, pod := newFixture(t, ""), lsr("p", 4) // the framework's goroutines start outside of the bubble
			cs := f.reserve(t, pod, f.addNode("n", machine(t, "amd64", 1, 4, 2)))
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				f.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, tt.answer
				})
				f.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					written, passed := pod.DeepCopy(), time.Since(begin)
					if tt.arrives >= 0 && passed >= tt.arrives {
						written.Spec.NodeName = "n"
					}
					if passed < tt.away {
						return true, nil, syscall.ECONNREFUSED
					}
					return true, written, nil
				})
				s := f.Bind(t.Context(), cs, pod, "n")
				if took := time.Since(begin); s.IsSuccess() != tt.wantBound || took != tt.wantAfter {
					t.Errorf("Bind: %v after %v, want success %t after %v", s, took, tt.wantBound, tt.wantAfter)
				}
				if _, held := f.store.View("n").Entry("p"); !held {
					t.Error("the reservation is gone before Unreserve")
				}
			})
		})
	}
}

// Where another binder binds, Unreserve reads the pod once before it gives up what PreBind has recorded.
func TestAPodThatAnotherBinderHasBoundAfterAllKeepsItsCPUs(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"n", ""} {
		f := newFixture(t, "", "DefaultBinder", Name)
		n := f.addNode("n", machine(t, "amd64", 1, 4, 2))
		pod := lsr("p", 4)
		cs := f.reserve(t, pod, n)
		if s := f.PreBind(t.Context(), cs, pod, "n"); !s.IsSuccess() {
			t.Fatal(s.Message())
		}
		f.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			written := pod.DeepCopy()
			written.Spec.NodeName = node
			return true, written, nil
		})
		f.Unreserve(t.Context(), cs, pod, "n")
		if _, held := f.store.View("n").Entry("p"); held != (node == "n") {
			t.Errorf("the pod is bound to %q, and its reservation is there: %t", node, held)
		}
	}
}

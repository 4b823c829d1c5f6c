package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

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
	f.most = f.bindings.alone.Load()
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
	if n := bindings.alone.Load(); n != 0 || f.most != 1 {
		t.Errorf("got %d Bindings on their way at the end and %d while one is, want 0 and 1", n, f.most)
	}
}

// transport counts the requests under way, and ends them when told.
type transport struct {
	running atomic.Int64
	end     chan struct{}
}

func (t *transport) RoundTrip(*http.Request) (*http.Response, error) {
	t.running.Add(1)
	<-t.end
	t.running.Add(-1)
	return &http.Response{}, nil
}

// A gang of 1,000 members is bound at once; the API server takes 100 requests on one connection, and other pods need
// some of them.
func TestBindingsOfALargeGangShareAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &transport{end: make(chan struct{})}
		client := NewBindings().Limit(server)
		request := func(ctx context.Context, method, path string) error {
			r, err := http.NewRequestWithContext(ctx, method, "https://server"+path, nil)
			if err != nil {
				return err
			}
			response, err := client.RoundTrip(r)
			if response != nil && response.Body != nil {
				err = errors.Join(err, response.Body.Close())
			}
			return err
		}
		const binding = "/api/v1/namespaces/n/pods/p/binding"
		bind := func(ctx context.Context, pods, want int) {
			for range pods {
				go func() {
					if err := request(ctx, http.MethodPost, binding); err != nil {
						t.Error(err)
					}
				}()
			}
			synctest.Wait()
			if n := int(server.running.Load()); n != want {
				t.Errorf("got %d requests at a time, want %d", n, want)
			}
		}
		bind(context.WithValue(t.Context(), bindsTogether{}, true), 1000, togetherInFlight)
		bind(t.Context(), 1000, togetherInFlight+BindingsInFlight)
		others, cancel := context.WithCancel(t.Context())
		go func() { _ = request(others, http.MethodGet, "/api/v1/pods") }()
		synctest.Wait()
		if n := server.running.Load(); n != togetherInFlight+BindingsInFlight+1 {
			t.Errorf("got %d requests with one that binds no pod", n)
		}
		cancel()
		if err := request(others, http.MethodPost, binding); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v for a request that has ended while it waited", err)
		}
		close(server.end)
		synctest.Wait()
		if n := server.running.Load(); n != 0 {
			t.Errorf("%d requests remain", n)
		}
	})
}

func TestWaitForABindingEndsWithTheContext(t *testing.T) {
	bindings := NewBindings()
	bindings.alone.Store(BindingsInFlight)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	bindings.Wait(ctx)
}

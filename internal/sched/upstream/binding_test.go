package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/lru"
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

// transport counts the requests under way, and ends them when end is closed.
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

// TestBindingsOfALargeGangShareAConnection: a gang of 1,000 members is bound at once, and the API server takes 100
// requests
// on one connection.
func TestBindingsOfALargeGangShareAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &transport{end: make(chan struct{})}
		client := LimitBindings(server)
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
		for range 1000 {
			go func() {
				if err := request(t.Context(), http.MethodPost, binding); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if n := server.running.Load(); n != BindingsInFlight {
			t.Errorf("got %d requests at a time, want %d", n, BindingsInFlight)
		}
		others, cancel := context.WithCancel(t.Context())
		go func() { _ = request(others, http.MethodGet, "/api/v1/pods") }()
		synctest.Wait()
		if n := server.running.Load(); n != BindingsInFlight+1 {
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

// slowServer takes a while for each request, as many as come.
type slowServer struct{}

const slowServerTakes = 10 * time.Millisecond

func (slowServer) RoundTrip(*http.Request) (*http.Response, error) {
	<-time.After(slowServerTakes)
	return &http.Response{Body: http.NoBody}, nil
}

// TestMembersAreBoundAsFastAsOtherPods: while such pods are bound all the time, a gang is bound in the time that the
// API
// server needs for it.
func TestMembersAreBoundAsFastAsOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others, members = 1000, 200
		client := LimitBindings(slowServer{})
		var plain, gang sync.WaitGroup
		bind := func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://server/pods/p/binding", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if answer, err := client.RoundTrip(r); err != nil || answer.Body.Close() != nil {
				t.Error(err)
			}
		}
		for i := range others { // 1,000 a second
			plain.Go(func() {
				<-time.After(time.Duration(i) * time.Millisecond)
				bind()
			})
		}
		<-time.After(100 * time.Millisecond)
		began := time.Now()
		for range members {
			gang.Go(bind)
		}
		gang.Wait()
		if took := time.Since(began); took > 4*slowServerTakes {
			t.Errorf("%d members were bound in %s, want %d at a time", members, took, BindingsInFlight)
		}
		plain.Wait()
	})
}

// pickyServer refuses Bindings to some nodes.
type pickyServer struct {
	framework.Framework
	refused map[string]error
}

func (f *pickyServer) RunBindPlugins(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, node string) *fwk.Status {
	if err := f.refused[node]; err != nil {
		return fwk.AsStatus(fmt.Errorf("running Bind plugin %q: %w", "DefaultBinder", err))
	}
	return nil
}

func (*pickyServer) ProfileName() string { return "picky" }

func (f *pickyServer) RunFilterPluginsWithNominatedPods(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo,
) *fwk.Status {
	return nil
}

// TestANodeToWhichABindingIsRefusedDoesNotWinEveryCycle: the first node that takes a pod is the best one, for each pod.
//
// F22: a rejected bind wins every cycle.
func TestANodeToWhichABindingIsRefusedDoesNotWinEveryCycle(t *testing.T) {
	t.Parallel()
	pods := corev1.Resource("pods/binding")
	forbidden := apierrors.NewForbidden(pods, "p", errors.New("webhook: not on this node"))
	for name, c := range map[string]struct {
		refused map[string]error
		want    string // nodes in the order of attempts, until one is bound, six at most
	}{
		"one node":  {map[string]error{"a": forbidden}, "a b"},
		"two nodes": {map[string]error{"a": forbidden, "b": forbidden}, "a b c"},
		"all nodes: again from the first": {
			map[string]error{"a": forbidden, "b": forbidden, "c": forbidden}, "a b c a b c",
		},
		"the server has too much to do": {
			map[string]error{"a": apierrors.NewTooManyRequests("later", 1)}, "a a a a a a",
		},
		"the pod has changed meanwhile": {
			map[string]error{"a": apierrors.NewConflict(pods, "p", errors.New("another version"))}, "a a a a a a",
		},
		"no answer": {map[string]error{"a": errors.New("connection lost")}, "a a a a a a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rejections := NewRejections()
			p := &Profile{
				Framework: &pickyServer{refused: c.refused}, Rejections: rejections, rankings: lru.New(1),
			}
			schedule := rejections.Schedule(func(ctx context.Context, f framework.Framework, state fwk.CycleState,
				pod *framework.QueuedPodInfo,
			) (scheduler.ScheduleResult, error) {
				p.GetNodeHint(ctx, pod.Pod, nil, state, 0)
				for _, name := range []string{"a", "b", "c"} {
					n := framework.NewNodeInfo()
					n.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
					if f.RunFilterPluginsWithNominatedPods(ctx, state, pod.Pod, n).IsSuccess() {
						return scheduler.ScheduleResult{SuggestedHost: name}, nil
					}
				}
				return scheduler.ScheduleResult{}, &framework.FitError{Pod: pod.Pod}
			})
			try := func(uid types.UID) string {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
				info, err := framework.NewPodInfo(pod)
				if err != nil {
					t.Fatal(err)
				}
				result, err := schedule(t.Context(), p, nil, &framework.QueuedPodInfo{PodInfo: info})
				if err != nil {
					t.Fatal(err)
				}
				return result.SuggestedHost
			}
			var tried []string
			for range 6 {
				node := try("p")
				tried = append(tried, node)
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}}
				if p.RunBindPlugins(t.Context(), nil, pod, node).IsSuccess() {
					break
				}
			}
			if got := strings.Join(tried, " "); got != c.want {
				t.Errorf("tried %s, want %s", got, c.want)
			}
			if node := try("q"); node != "a" {
				t.Errorf("another pod gets %s, want a", node)
			}
			if len(rejections.of("p")) > 0 && c.refused["c"] == nil {
				t.Error("the pod is bound, and rejections of it are remembered")
			}
		})
	}
}

func TestWaitForABindingEndsWithTheContext(t *testing.T) {
	bindings := NewBindings()
	bindings.alone.Store(BindingsInFlight)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	bindings.Wait(ctx)
}

// refusingBinder refuses so many times to bind.
type refusingBinder struct {
	framework.Framework
	client       kubernetes.Interface
	tries, until int
}

func (f *refusingBinder) ClientSet() kubernetes.Interface { return f.client }

func (f *refusingBinder) RunBindPlugins(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	if f.tries++; f.tries > f.until {
		return nil
	}
	return fwk.AsStatus(errors.New("not now"))
}

// membership is a gang of everything, or of nothing.
type membership struct {
	Together
	all bool
}

func (m membership) IsMember(*corev1.Pod) bool { return m.all }

// TestAMemberOfAGangIsBoundAgain on its node, while no other scheduler has bound it and it exists.
func TestAMemberOfAGangIsBoundAgain(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	on := func(node string) *corev1.Pod {
		p := pod.DeepCopy()
		p.Spec.NodeName = node
		return p
	}
	again := pod.DeepCopy()
	again.UID = "another"
	for name, c := range map[string]struct {
		is     *corev1.Pod // in the API server; nil where it is gone
		member bool
		until  int // it is refused
		tries  int
		took   time.Duration
		bound  bool
	}{
		"at once":                       {pod, true, 0, 1, 0, true},
		"a pod without a gang":          {pod, false, 1, 1, 0, false},
		"after one refusal":             {pod, true, 1, 2, 100 * time.Millisecond, true},
		"after three refusals":          {pod, true, 3, 4, 2100 * time.Millisecond, true},
		"never":                         {pod, true, 9, 4, 2100 * time.Millisecond, false},
		"the answer was lost":           {on("n"), true, 1, 1, 0, true},
		"it is bound to another node":   {on("o"), true, 1, 1, 0, false},
		"it is gone":                    {nil, true, 1, 1, 0, false},
		"another one is under its name": {again, true, 1, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if c.is != nil {
				client = fake.NewClientset(c.is)
			}
			synctest.Test(t, func(t *testing.T) {
				f := &refusingBinder{client: client, until: c.until}
				p := &Profile{Framework: f, Together: membership{all: c.member}}
				start := time.Now()
				status := p.RunBindPlugins(t.Context(), nil, pod, "n")
				if took := time.Since(start); status.IsSuccess() != c.bound || f.tries != c.tries || took != c.took {
					t.Errorf("%v after %d tries in %v, want bound %t after %d in %v", status, f.tries, took, c.bound,
						c.tries, c.took)
				}
			})
		})
	}
}

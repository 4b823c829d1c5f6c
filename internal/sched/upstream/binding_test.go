package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
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

	"github.com/tenon-project/tenon/internal/core/gang"
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

// TestAPodThatWasBoundAMomentAgoKeepsTheOthersWaiting: another may be on its way.
func TestAPodThatWasBoundAMomentAgoKeepsTheOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBindings()
		says := func(want bool) {
			t.Helper()
			if b.Busy() != want {
				t.Errorf("it is %t that a pod of no gang is bound, or was a moment ago", !want)
			}
		}
		says(false)
		_, end := b.begin(t.Context(), "gang")
		says(false)
		end()
		_, end = b.begin(t.Context(), "")
		<-time.After(time.Minute)
		says(true)
		end()
		<-time.After(time.Second - 1)
		says(true)
		<-time.After(1)
		says(false)
	})
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

// A gang of 1,000 members is bound at once; the API server takes 100 requests on one connection, and other pods need
// some of them.
func TestBindingsOfALargeGangShareAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &transport{end: make(chan struct{})}
		bindings := NewBindings()
		client := bindings.Limit(server)
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
		bind := func(of func(context.Context) context.Context, pods, want int) {
			for range pods {
				go func() {
					if err := request(of(t.Context()), http.MethodPost, binding); err != nil {
						t.Error(err)
					}
				}()
			}
			synctest.Wait()
			if n := int(server.running.Load()); n != want {
				t.Errorf("got %d requests at a time, want %d", n, want)
			}
		}
		member := func(context.Context) context.Context {
			ctx, _ := bindings.begin(t.Context(), "gang")
			return ctx
		}
		alone := func(ctx context.Context) context.Context { return ctx }
		bind(member, 1000, gang.TogetherInFlight)
		bind(alone, 1000, gang.TogetherInFlight+BindingsInFlight)
		others, cancel := context.WithCancel(t.Context())
		go func() { _ = request(others, http.MethodGet, "/api/v1/pods") }()
		synctest.Wait()
		if n := server.running.Load(); n != gang.TogetherInFlight+BindingsInFlight+1 {
			t.Errorf("got %d requests with one that binds no pod", n)
		}
		_, end := bindings.begin(t.Context(), "")
		bind(member, 1000, gang.TogetherInFlight+BindingsInFlight+2)
		end()
		bind(member, 1, gang.TogetherInFlight+BindingsInFlight+2) // another may be on its way
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

// slowServer takes a while for each request, and counts those under way and those done.
type slowServer struct{ running, most, done atomic.Int64 }

const slowServerTakes = 10 * time.Millisecond

func (s *slowServer) RoundTrip(*http.Request) (*http.Response, error) {
	is := s.running.Add(1)
	for most := s.most.Load(); most < is && !s.most.CompareAndSwap(most, is); most = s.most.Load() {
		continue
	}
	<-time.After(slowServerTakes)
	s.running.Add(-1)
	s.done.Add(1)
	return &http.Response{Body: http.NoBody}, nil
}

// Members of gangs leave the API server to Bindings of pods that start alone while there are any: they are bound one at
// a time, with rests. None waits for ever.
func TestMembersLeaveTheServerToOthers(t *testing.T) {
	for name, c := range map[string]struct {
		busy           bool
		gangs, members int
		after          time.Duration
		done, most     int64 // by then, and under way at a time
	}{
		"others are bound": {true, 1, 200, time.Second, 25, 1},
		"no others":        {false, 1, 64, slowServerTakes, 64, gang.TogetherInFlight},
		// 25 a second, then 400 more behind five seconds
		"others are bound for long":  {true, 1, 1000, 8 * time.Second, 1000, 1 + gang.LateInFlight},
		"gang behind gang":           {true, 5, 50, 8 * time.Second, 200, 1},
		"gang behind gang, for long": {true, 50, 50, 35 * time.Second, 2500, 1 + gang.LateInFlight},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, bindings := &slowServer{}, NewBindings()
				client := bindings.Limit(server)
				if c.busy {
					bindings.begin(t.Context(), "")
				}
				for i := range c.gangs * c.members {
					go func() {
						<-time.After(time.Duration(i/c.members) * time.Millisecond) // gang by gang
						ctx, end := bindings.begin(t.Context(), fmt.Sprint(i/c.members))
						defer end()
						r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://server/pods/p/binding", nil)
						if err != nil {
							t.Error(err)
							return
						}
						if answer, err := client.RoundTrip(r); err != nil || answer.Body.Close() != nil {
							t.Error(err)
						}
					}()
				}
				<-time.After(c.after)
				synctest.Wait()
				if done, most := server.done.Load(), server.most.Load(); done != c.done || most > c.most {
					t.Errorf("%d members are bound after %v, %d at a time, want %d and %d", done, c.after, most, c.done,
						c.most)
				}
				<-time.After(time.Minute) // for the rest
				synctest.Wait()
				all := int64(c.gangs * c.members)
				if done := server.done.Load(); done != all || len(bindings.goes) > 0 {
					t.Errorf("%d of %d members are bound, %d wait for ever", done, all, len(bindings.goes))
				}
			})
		})
	}
}

// TestMembersThatWaitGoWhenNoOthersAreBound: all at once, and not one by one as they began.
func TestMembersThatWaitGoWhenNoOthersAreBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, bindings := &slowServer{}, NewBindings()
		client := bindings.Limit(server)
		_, end := bindings.begin(t.Context(), "")
		canceled, cancel := context.WithCancel(t.Context())
		bind := func(ctx context.Context) error {
			ctx, end := bindings.begin(ctx, "gang")
			defer end()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://server/pods/p/binding", nil)
			if err != nil {
				return err
			}
			answer, err := client.RoundTrip(r)
			if err != nil {
				return err
			}
			return answer.Body.Close()
		}
		for range 101 {
			go func() {
				if err := bind(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		go func() { // who waits no more takes the place of no other
			if err := bind(canceled); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
		synctest.Wait()
		cancel()
		<-time.After(slowServerTakes)
		end()
		<-time.After(time.Second + 2*slowServerTakes)
		synctest.Wait()
		if done := server.done.Load(); done != 101 {
			t.Errorf("%d of 101 members are bound", done)
		}
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

func (m membership) GangOf(*corev1.Pod) string {
	if m.all {
		return "gang"
	}
	return ""
}

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

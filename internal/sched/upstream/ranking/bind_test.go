package ranking

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/testkit"
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
		slow := &slowBinder{released: make(chan struct{})}
		open := make(chan struct{})
		close(open)
		g := &hooks.Gate{Open: open, Bindings: hooks.NewBindings(), Leading: &atomic.Bool{}}
		profile := &Profile{Framework: slow, Config: Config{Bindings: g.Bindings}}
		taken := 0
		next := g.Wrap(t.Context(), func(klog.Logger) (*framework.QueuedPodInfo, error) {
			taken++
			return nil, nil
		})
		for range hooks.BindingsInFlight {
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
				Framework: &pickyServer{refused: c.refused}, Config: Config{Rejections: rejections},
				caches: caches{rankings: lru.New(1)},
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
				testkit.Check(t, err)
				result, err := schedule(t.Context(), p, nil, &framework.QueuedPodInfo{PodInfo: info})
				testkit.Check(t, err)
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
			if len(rejections.reasons("p")) > 0 && c.refused["c"] == nil {
				t.Error("the pod is bound, and rejections of it are remembered")
			}
		})
	}
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
		stored *corev1.Pod // in the API server; nil where it is gone
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
			if c.stored != nil {
				client = fake.NewClientset(c.stored)
			}
			synctest.Test(t, func(t *testing.T) {
				f := &refusingBinder{client: client, until: c.until}
				p := &Profile{Framework: f, Config: Config{Together: membership{all: c.member}}}
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

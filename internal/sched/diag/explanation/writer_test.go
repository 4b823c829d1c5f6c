package explanation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/tenon-project/tenon/api/explanation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/diag/explanation"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// world is a Writer with an API server that has ScheduleExplanations of one namespace, and a scheduler that knows pods.
type world struct {
	t             *testing.T
	mu            sync.Mutex
	objects, pods *fcache.FakeControllerSource
	known         map[string]*corev1.Pod
	said          map[string]view.Pod
	preempted     *view.WhatIfAnswer
	err           error // of questions in mode Preempt
	ready         error
	mayRead       map[string]bool // what the author may read
	looks         int
	// written and deleted are the requests, by the name of the object. returned is how many of them wait has returned.
	written  map[string][]v1alpha1.ScheduleExplanationStatus
	returned map[string]int
	deleted  []string
	current  map[string]*v1alpha1.ScheduleExplanation
}

func newWorld() *world {
	return &world{
		objects: fcache.NewFakeControllerSource(), pods: fcache.NewFakeControllerSource(),
		known: map[string]*corev1.Pod{}, said: map[string]view.Pod{}, mayRead: map[string]bool{},
		written: map[string][]v1alpha1.ScheduleExplanationStatus{}, returned: map[string]int{},
		current: map[string]*v1alpha1.ScheduleExplanation{},
	}
}

// locked returns what f reads, or changes.
func locked[T any](w *world, f func() T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f()
}

// deletions are the names of the objects that were deleted.
func (w *world) deletions() []string {
	return locked(w, func() []string { return slices.Clone(w.deleted) })
}

// start runs the Writer until the test ends.
func (w *world) start(t *testing.T) {
	t.Helper()
	w.t = t
	client, err := kube.NewClient(&rest.Config{Host: "http://test.invalid", Transport: w, QPS: -1})
	testkit.Check(t, err)
	pods := cache.NewSharedIndexInformer(w.pods, &corev1.Pod{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { pods.RunWithContext(ctx); done <- nil }()
	go func() {
		done <- (&explanation.Writer{
			Client: client, Pods: pods,
			Objects:   cache.NewSharedIndexInformer(w.objects, &v1alpha1.ScheduleExplanation{}, 0, cache.Indexers{}),
			Scheduler: w, WhatIf: w,
		}).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		testkit.Check(t, errors.Join(<-done, <-done))
		w.objects.Shutdown()
		w.pods.Shutdown()
	})
}

func (w *world) Ready() error { return locked(w, func() error { return w.ready }) }

func (w *world) Pod(namespace, name string) *corev1.Pod {
	return locked(w, func() *corev1.Pod { return w.known[namespace+"/"+name] })
}

func (w *world) Answer(_ context.Context, q *view.WhatIf) (*view.WhatIfAnswer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.Ask.Mode != view.Preempt || len(q.Ask.Pods) != 1 {
		w.t.Errorf("asked %+v", q)
	}
	return w.preempted, w.err
}

func (w *world) Explain(_ context.Context, pod *corev1.Pod, mayRead func(string) bool) (view.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	for _, namespace := range []string{"team", "other", ""} {
		w.mayRead[namespace] = mayRead(namespace)
	}
	return w.said[pod.Namespace+"/"+pod.Name], nil
}

// RoundTrip answers PATCH of a status and DELETE.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer := func(code int) (*http.Response, error) {
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"apiVersion":"v1","kind":"Status","status":"Success"}`)),
		}, nil
	}
	const prefix = "/apis/scheduling.koordinator.sh/v1alpha1/namespaces/team/scheduleexplanations/"
	name, ok := strings.CutPrefix(r.URL.Path, prefix)
	name, status := strings.CutSuffix(name, "/status")
	body, err := io.ReadAll(r.Body)
	o := w.current[name]
	switch {
	case err != nil || !ok || o == nil:
		return answer(http.StatusNotFound)
	case !bytes.Contains(body, []byte(`"`+o.UID+`"`)):
		return answer(http.StatusUnprocessableEntity)
	case r.Method == http.MethodDelete && !status:
		w.deleted = append(w.deleted, name)
		delete(w.current, name)
		w.objects.Delete(o.DeepCopy())
	case r.Method == http.MethodPatch && status:
		var steps []struct {
			Op, Path string
			Value    json.RawMessage
		}
		var s v1alpha1.ScheduleExplanationStatus
		if err := errors.Join(json.Unmarshal(body, &steps), json.Unmarshal(steps[1].Value, &s)); err != nil {
			return nil, err
		}
		w.written[name] = append(w.written[name], s)
		o = o.DeepCopy()
		o.Status = s
		w.current[name] = o
		w.objects.Modify(o.DeepCopy())
	default:
		return answer(http.StatusMethodNotAllowed)
	}
	return answer(http.StatusOK)
}

// ask creates an object.
func (w *world) ask(name, key, ttl string, options ...func(*v1alpha1.ScheduleExplanation)) {
	o := &v1alpha1.ScheduleExplanation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Now()),
		},
		Spec: v1alpha1.ScheduleExplanationSpec{QuestionObjectKey: key, TTL: ttl},
	}
	for _, option := range options {
		option(o)
	}
	w.mu.Lock()
	w.current[name] = o
	w.mu.Unlock()
	w.objects.Add(o.DeepCopy())
}

// pod makes a pod known that waits for CPUs.
func (w *world) pod(key string) *corev1.Pod {
	pod := object.Pod(key)
	w.known[key] = pod
	w.pods.Add(pod.DeepCopy())
	w.say(key, short(30))
	return pod
}

func (w *world) say(key string, said view.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	said.Pod = key
	w.said[key] = said
}

// short is the explanation of a pod that waits for CPUs.
func short(free int) view.Pod {
	wire := why.Wire{
		Code: why.InsufficientCPU, Plugin: "NodeResourcesFit", Nodes: 2, Example: "n0",
		Message: "needs 40 CPUs, " + string(rune('0'+free/10)) + "0 are free", Do: "Request less",
	}
	return view.Pod{
		State: view.Pending, RootCause: &wire, Obstacles: []why.Wire{wire},
		Candidates: []view.Candidate{{Node: "n1", Closest: "7/40 CPUs"}},
	}
}

// wait lets time pass, and returns what was written to an object since the last wait for it, without times.
func (w *world) wait(d time.Duration, name string) []v1alpha1.ScheduleExplanationStatus {
	time.Sleep(d) //nolint:forbidigo // the clock is the bubble's
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.returned[name]
	w.returned[name] = len(w.written[name])
	var out []v1alpha1.ScheduleExplanationStatus
	for _, s := range w.written[name][from:] {
		s.LastUpdateTime = nil
		out = append(out, s)
	}
	return out
}

// waits is the answer about a pod that waits for CPUs.
func waits(message string) v1alpha1.ScheduleExplanationStatus {
	text := "InsufficientCPU: " + message + " (2 nodes); n1 has 7/40 CPUs. Request less"
	return v1alpha1.ScheduleExplanationStatus{
		FailedMessage: text,
		DetailedExplanation: []v1alpha1.DomainExplanation{{
			FailedMessage: text,
			ScheduleExplanation: v1alpha1.NodeExplanation{
				FailedMessage: text,
				NodeFailedDetails: []v1alpha1.NodeRefusal{{
					FailedPlugin: "NodeResourcesFit", Reason: "InsufficientCPU: " + message + " (2 nodes)",
					PreemptMightHelp: true, FailedNodes: []string{"n0"},
				}},
			},
		}},
	}
}

func compare(t *testing.T, what string, got []v1alpha1.ScheduleExplanationStatus,
	want ...v1alpha1.ScheduleExplanationStatus,
) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAnAnswerFollowsItsPodUntilTheTTLHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		pod := w.pod("team/web")
		w.start(t)
		w.ask("q", "team/web", "1h")
		compare(t, "at first", w.wait(3*time.Second, "q"), waits("needs 40 CPUs, 30 are free"))
		mayRead := locked(w, func() map[string]bool { return maps.Clone(w.mayRead) })
		if diff := cmp.Diff(map[string]bool{"team": true, "other": false, "": false}, mayRead); diff != "" {
			t.Errorf("the author may read (-want +got):\n%s", diff)
		}
		compare(t, "without a change", w.wait(30*time.Second, "q"))
		compare(t, "each minute", w.wait(time.Minute, "q"), waits("needs 40 CPUs, 30 are free"))

		w.say("team/web", short(20))
		compare(t, "another cause, without an event of the pod", w.wait(11*time.Second, "q"),
			waits("needs 40 CPUs, 20 are free"))
		bound := view.Pod{State: view.Bound, UID: "u", Placement: &view.Placement{Node: "n1"}}
		w.say("team/web", bound)
		w.pods.Modify(pod.DeepCopy())
		got := w.wait(2*time.Second, "q")
		if len(got) != 1 || !got[0].Schedulable || got[0].FailedMessage != "" {
			t.Fatalf("of the bound pod: %+v", got)
		}
		key := v1alpha1.PodKey{Namespace: "team", Name: "web", UID: "u"}
		now := got[0].DetailedExplanation[0].ScheduleExplanation
		diff := cmp.Diff([]v1alpha1.PodOnNode{{PodKey: key, NodeName: "n1"}}, now.FeasibleSchedulingResult)
		if diff != "" {
			t.Errorf("node (-want +got):\n%s", diff)
		}
		locked(w, func() error { delete(w.known, "team/web"); return nil })
		w.pods.Delete(pod.DeepCopy())
		compare(t, "of the deleted pod", w.wait(2*time.Second, "q"), v1alpha1.ScheduleExplanationStatus{
			FailedMessage: "cannot find pod or gang team/web: it does not exist, or has ended",
		})
		w.wait(time.Hour, "q")
		if diff := cmp.Diff([]string{"q"}, w.deletions()); diff != "" {
			t.Errorf("deleted (-want +got):\n%s", diff)
		}
	})
}

func TestAnObjectsTTL(t *testing.T) {
	for ttl, want := range map[string]time.Duration{
		"": 24 * time.Hour, "1m30s": 90 * time.Second, "0": 0, "0s": 0, "-1h": 0, "soon": 0, "9999999999h": 0,
	} {
		t.Run(ttl, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.pod("team/web")
				w.start(t)
				w.ask("q", "team/web", ttl)
				if want == 0 {
					want = 48 * time.Hour
				}
				w.wait(want-time.Second, "q")
				if len(w.deletions()) > 0 {
					t.Fatalf("deleted before %s", want)
				}
				w.wait(2*time.Second, "q")
				if deleted := len(w.deletions()) == 1; deleted != (want < 48*time.Hour) {
					t.Errorf("deleted = %t after %s", deleted, want)
				}
			})
		})
	}
}

func TestWhatIsWrongWithAQuestionIsItsAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		key, ttl string
		template bool
		want     string
	}{
		"another namespace": {
			"other/web", "", false,
			`spec.questionObjectKey: must be in the namespace of this object, as team/web; is "other/web"`,
		},
		"no namespace": {
			"web", "", false, `spec.questionObjectKey: must be NAMESPACE/NAME of one pod or one gang; is "web"`,
		},
		"nothing": {"", "", false, `spec.questionObjectKey: must be NAMESPACE/NAME of one pod or one gang; is ""`},
		"no name": {
			"team/", "", false, `spec.questionObjectKey: must be NAMESPACE/NAME of one pod or one gang; is "team/"`,
		},
		"two gangs": {
			"team/a,team/b", "", false,
			`spec.questionObjectKey: must be NAMESPACE/NAME of one pod or one gang; is "team/a,team/b"`,
		},
		"a path": {
			"team/../other/web", "", false,
			`spec.questionObjectKey: must be NAMESPACE/NAME of one pod or one gang; is "team/../other/web"`,
		},
		"a ttl that is not a duration": {
			"team/web", "soon", false, `spec.ttl: must be a Go duration of 0 or more, such as 24h; is "soon"`,
		},
		"a negative ttl": {
			"team/web", "-1h", false, `spec.ttl: must be a Go duration of 0 or more, such as 24h; is "-1h"`,
		},
		"a template": {
			"team/web", "", true,
			"spec.questionObjectTemplate: must not be set: POST /apis/v1/whatif answers about a pod that does not " +
				"exist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.pod("team/web")
				w.pod("other/web")
				w.start(t)
				w.ask("q", test.key, test.ttl, func(o *v1alpha1.ScheduleExplanation) {
					if test.template {
						o.Spec.QuestionObjectTemplate = &runtime.RawExtension{Raw: []byte("{}")}
					}
				})
				compare(t, "written", w.wait(3*time.Second, "q"),
					v1alpha1.ScheduleExplanationStatus{FailedMessage: test.want})
				if looks := locked(w, func() int { return w.looks }); looks > 0 {
					t.Errorf("%d pods were looked at", looks)
				}
			})
		})
	}
}

// TestTheAnswerOfAnotherSchedulerRemains: it answers what this one cannot, such as a template. A question that has the
// answer of this one, also of a process before, gets the next one.
func TestTheAnswerOfAnotherSchedulerRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pod("team/web")
		w.start(t)
		const wrong = `spec.questionObjectKey: must be NAMESPACE/NAME of one pod or one gang; is "web"`
		says := func(text string) func(*v1alpha1.ScheduleExplanation) {
			return func(o *v1alpha1.ScheduleExplanation) {
				o.Status = v1alpha1.ScheduleExplanationStatus{
					FailedMessage: text, LastUpdateTime: &metav1.Time{Time: time.Now().Add(-time.Hour)},
				}
			}
		}
		w.ask("foreign", "web", "", says("0/3 nodes are available"))
		w.ask("before", "web", "", says(wrong))
		w.ask("own", "team/web", "")
		own := w.wait(10*time.Second, "own")
		compare(t, "of a pod", own, waits("needs 40 CPUs, 30 are free"))
		w.mu.Lock()
		o := w.current["own"].DeepCopy()
		o.Spec.QuestionObjectKey, o.Generation = "web", 2
		w.current["own"] = o
		w.mu.Unlock()
		w.objects.Modify(o.DeepCopy())
		compare(t, "of another one", w.wait(time.Hour, "foreign"))
		for _, name := range []string{"before", "own"} {
			all := w.wait(0, name)
			compare(t, "of "+name, all[:min(1, len(all))], v1alpha1.ScheduleExplanationStatus{FailedMessage: wrong})
		}
	})
}

func TestOnlyTheLeaderAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pod("team/web")
		w.ready = errors.New("the instance is not leader")
		w.start(t)
		w.ask("q", "team/web", "1m")
		compare(t, "of a follower", w.wait(2*time.Minute, "q"))
		if len(w.deletions()) > 0 {
			t.Errorf("a follower deletes %v", w.deletions())
		}
		w.ask("r", "team/web", "")
		w.wait(0, "r")
		locked(w, func() error { w.ready = nil; return nil })
		compare(t, "of the leader", w.wait(6*time.Second, "r"), waits("needs 40 CPUs, 30 are free"))
		if diff := cmp.Diff([]string{"q"}, w.deletions()); diff != "" {
			t.Errorf("the leader deletes (-want +got):\n%s", diff)
		}
	})
}

func TestEvictionsDoNotHelpAPodThatAGateHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pod("team/web")
		w.say("team/web", view.Pod{RootCause: &why.Wire{Code: why.SchedulingGate, Message: "m", Do: "d"}})
		w.preempted = &view.WhatIfAnswer{Placements: []view.WhatIfPlacement{{Pod: "team/web", Node: "n0"}}}
		w.start(t)
		w.ask("q", "team/web", "")
		const text = "SchedulingGate: m. d"
		compare(t, "written", w.wait(3*time.Second, "q"), v1alpha1.ScheduleExplanationStatus{
			FailedMessage: text, DetailedExplanation: []v1alpha1.DomainExplanation{{
				FailedMessage: text, ScheduleExplanation: v1alpha1.NodeExplanation{FailedMessage: text},
			}},
		})
	})
}

func TestThePodOfAnotherSchedulerIsNotExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pod("team/web")
		w.say("team/web", view.Pod{RootCause: &why.Wire{Code: why.NoScheduler}})
		w.start(t)
		w.ask("q", "team/web", "")
		compare(t, "written", w.wait(time.Hour, "q"))
	})
}

func TestVictimsAreNamedInTheNamespaceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pod("team/web")
		w.preempted = &view.WhatIfAnswer{
			Placements: []view.WhatIfPlacement{{Pod: "team/web", Node: "n0"}},
			Victims: []view.Victim{
				{Pod: "team/low", Node: "n0"}, {Pod: "secret/low", Node: "n0"}, {Pod: "team/less", Node: "n0"},
			},
		}
		w.start(t)
		w.ask("q", "team/web", "")
		want := waits("needs 40 CPUs, 30 are free")
		want.SchedulableAfterPreemption = true
		d := &want.DetailedExplanation[0]
		d.SchedulableAfterPreemption = true
		d.NodePossibleVictims = []v1alpha1.NodeVictims{{NodeName: "n0", PossibleVictims: []v1alpha1.PossibleVictim{
			{PodKey: v1alpha1.PodKey{Namespace: "team", Name: "low"}},
			{PodKey: v1alpha1.PodKey{Namespace: "team", Name: "less"}},
		}}}
		d.PreemptExplanation = v1alpha1.NodeExplanation{
			Schedulable: true, FailedMessage: "1 victim in other namespaces",
			FeasibleSchedulingResult: []v1alpha1.PodOnNode{
				{PodKey: v1alpha1.PodKey{Namespace: "team", Name: "web"}, NodeName: "n0"},
			},
		}
		compare(t, "written", w.wait(3*time.Second, "q"), want)
		// While other questions are answered, the last answer stands.
		w.mu.Lock()
		w.err = whatif.Busy{}
		w.mu.Unlock()
		compare(t, "while the engine is busy", w.wait(5*time.Minute, "q"))
	})
}

// TestManyQuestionsAndEventsAreBounded has 50 objects about one pod, which changes a hundred times each second for half
// a minute, and with it the answer.
func TestManyQuestionsAndEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		pod := w.pod("team/web")
		w.start(t)
		for i := range 50 {
			w.ask(string(rune('a'+i%25))+string(rune('a'+i/25)), "team/web", "")
		}
		for i := range 3000 {
			w.say("team/web", short(10*(1+i%4)))
			w.pods.Modify(pod.DeepCopy())
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // the clock is the bubble's
		}
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.looks < 250 || w.looks > 310 {
			t.Errorf("looked %d times within 30 seconds, want 10 times a second", w.looks)
		}
		if len(w.written) != 50 {
			t.Errorf("%d objects have an answer, want all 50", len(w.written))
		}
	})
}

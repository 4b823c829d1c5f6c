package expected

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// server is an API server that records what is applied. Groups of apart have the status apart.
type server struct {
	sync.Mutex // a test has it while the writer rests
	apart      bool
	fails      int // requests that fail before one does not
	applied    []string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.Lock()
	defer s.Unlock()
	code := http.StatusOK
	if s.fails > 0 {
		s.fails--
		code = http.StatusInternalServerError
	} else if strings.HasSuffix(r.URL.Path, "/status") != s.apart {
		code = http.StatusNotFound
	} else {
		var o v1alpha1.PodGroup
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.UID == "" {
			return nil, fmt.Errorf("%s: no PodGroup with a UID: %w", r.URL, err)
		}
		said := "removed"
		for _, c := range o.Status.Conditions {
			said = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
		s.applied = append(s.applied, o.Name+" "+said)
	}
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","code":%d,"status":"Failure","reason":%q}`, code,
		map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 500: metav1.StatusReasonInternalError}[code])
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": []string{"application/json"}},
		Body: io.NopCloser(strings.NewReader(text)), Request: r,
	}, nil
}

// cluster is what a writer reads. Its pods are named as units.
type cluster struct {
	server
	queue    []view.WaitingUnit
	groups   []*v1alpha1.PodGroup
	pods     map[string]*corev1.Pod
	asked    int
	fault    error
	leads    bool
	overdue  []view.Overdue
	warnings []string
	registry metrics.KubeRegistry
}

func (c *cluster) writer(t *testing.T) *Writer {
	t.Helper()
	client, err := kube.NewClient(&rest.Config{Host: "http://test.invalid", Transport: &c.server, QPS: -1})
	testkit.Check(t, err)
	synced := make(chan struct{})
	close(synced)
	c.registry = metrics.NewKubeRegistry()
	missed := NewErrors()
	c.registry.MustRegister(missed)
	return New(Options{
		Interval: time.Minute, Cluster: c, Client: client, Synced: synced, Errors: missed,
	})
}

func (c *cluster) Leads() bool {
	c.Lock()
	defer c.Unlock()
	return c.leads
}

func (c *cluster) Waits() bool {
	c.Lock()
	defer c.Unlock()
	return len(c.queue) > 0
}

func (c *cluster) Forecast(context.Context) (*view.Forecast, error) {
	c.Lock()
	defer c.Unlock()
	c.asked++
	return &view.Forecast{At: time.Now(), Queue: slices.Clone(c.queue), Overdue: c.overdue}, c.fault
}

func (c *cluster) Warn(pod *corev1.Pod, message string) {
	c.warnings = append(c.warnings, pod.Name+": "+message)
}

func (c *cluster) Groups() []*v1alpha1.PodGroup {
	c.Lock()
	defer c.Unlock()
	return c.groups
}

func (c *cluster) Pod(namespace, name string) *corev1.Pod {
	c.Lock()
	defer c.Unlock()
	return c.pods[namespace+"/"+name]
}

// take returns what was applied since the last time.
func (c *cluster) take() []string {
	applied := c.applied
	c.applied = nil
	return applied
}

func podGroup(name string) *v1alpha1.PodGroup {
	g := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID(name)}}
	g.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.GroupName, Version: "v1alpha1", Kind: "PodGroup"})
	return g
}

func gangUnit(name string, start *view.ExpectedStart) view.WaitingUnit {
	return view.WaitingUnit{Name: "gang/ml/" + name, Pods: []string{"ml/" + name + "-0"}, Start: start}
}

// TestAGangSaysWhenItIsExpectedToStart: at most once a minute, only what changes, and nothing once it has started.
func TestAGangSaysWhenItIsExpectedToStart(t *testing.T) {
	for _, apart := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			at := func(minutes int) *time.Time {
				at := now.Add(time.Duration(minutes) * time.Minute)
				return &at
			}
			c := &cluster{server: server{apart: apart}}
			c.groups = []*v1alpha1.PodGroup{podGroup("train"), podGroup("idle")}
			w := c.writer(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.Lock()
			defer c.Unlock()
			go w.Run(ctx)
			expect := func(what string, want ...string) {
				t.Helper()
				c.Unlock()
				<-time.After(time.Minute)
				synctest.Wait()
				c.Lock()
				if diff := cmp.Diff(want, c.take()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			start := &view.ExpectedStart{
				State: view.StartsAfter, Earliest: at(60), Latest: at(90), After: []string{"job/ml/a", "job/other/b"},
			}
			c.queue = []view.WaitingUnit{gangUnit("train", start)}
			expect("a scheduler that does not lead")
			c.leads = true
			text := fmt.Sprintf("True Expected: %s to %s, after job/ml/a", at(60).UTC().Format("Jan 2 2006 15:04"),
				at(90).UTC().Format("Jan 2 2006 15:04"))
			expect("a start, without what is in other namespaces", "train "+text)
			seconds := start.Earliest.Add(20 * time.Second)
			start.Earliest = &seconds
			expect("the same minute")
			start.Latest = start.Earliest
			end := " to " + at(90).UTC().Format("Jan 2 2006 15:04")
			expect("another start", "train "+strings.Replace(text, end, "", 1))
			c.queue[0].Start = nil
			expect("no estimate", "train Unknown NotEstimated: not estimated")
			c.queue[0].Start, c.fails = &view.ExpectedStart{State: view.StartsNever}, 1
			expect("a write that fails")
			expect("is made again", "train False Never: never: it would not fit if no other pod ran")
			c.fault = errors.New("busy")
			expect("a forecast that fails")
			c.fault, c.queue = nil, nil
			asked := c.asked
			expect("a gang that has started", "train removed")
			expect("nothing else")
			if c.asked != asked {
				t.Error("a forecast was made though no pod waits")
			}
			c.groups = nil
			expect("a PodGroup that has gone")
			if len(w.said) > 0 {
				t.Errorf("remembers %v", w.said)
			}
		})
	}
}

// TestANewLeaderRemovesAnOldCondition that says when a gang starts which has started.
func TestANewLeaderRemovesAnOldCondition(t *testing.T) {
	g := podGroup("train")
	g.Status.Conditions = []metav1.Condition{{Type: annotation.ExpectedStart, Status: metav1.ConditionTrue}}
	c := &cluster{groups: []*v1alpha1.PodGroup{g}, leads: true}
	w := c.writer(t)
	testkit.Check(t, w.publish(t.Context()))
	testkit.Check(t, w.publish(t.Context()))
	if diff := cmp.Diff([]string{"train removed"}, c.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestErrorsOfEstimatesAreMeasured: of the first estimate, for what has started, by what it was based on.
func TestErrorsOfEstimatesAreMeasured(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	in := func(d time.Duration) *time.Time {
		at := now.Add(d)
		return &at
	}
	c := &cluster{pods: map[string]*corev1.Pod{}, leads: true}
	w := c.writer(t)
	unit := func(name string, learned bool, early, late *time.Time) view.WaitingUnit {
		return view.WaitingUnit{Name: "pod/ml/" + name, Pods: []string{"ml/" + name}, Start: &view.ExpectedStart{
			State: view.StartsAfter, Earliest: early, Latest: late, Learned: learned,
		}}
	}
	c.queue = []view.WaitingUnit{
		unit("late", false, in(time.Hour), in(time.Hour)), unit("early", true, in(time.Hour), in(2*time.Hour)),
		unit("within", true, in(time.Hour), in(2*time.Hour)), unit("open", false, in(time.Hour), nil),
		unit("deleted", false, in(time.Hour), nil), unit("waits", false, in(time.Hour), nil),
		{Name: "pod/ml/unknown", Pods: []string{"ml/unknown"}, Start: &view.ExpectedStart{State: view.StartUnknown}},
	}
	testkit.Check(t, w.publish(t.Context()))
	c.queue[0] = unit("late", false, in(9*time.Hour), in(9*time.Hour)) // a later estimate does not count
	testkit.Check(t, w.publish(t.Context()))
	for name, after := range map[string]time.Duration{
		"late": 61 * time.Minute, "early": 30 * time.Minute, "within": 90 * time.Minute, "open": 5 * time.Hour,
		"unknown": time.Hour,
	} {
		c.pods["ml/"+name] = object.Pod(name, object.On("n"), func(p *corev1.Pod) {
			p.Status.StartTime = &metav1.Time{Time: now.Add(after)}
		})
	}
	c.queue = c.queue[5:6]
	testkit.Check(t, w.publish(t.Context()))
	got := map[string]string{}
	families, err := c.registry.Gather()
	testkit.Check(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := m.GetLabel() // by name
			got[labels[0].GetValue()+" "+labels[1].GetValue()] = fmt.Sprintf("%.0f of %d",
				m.GetHistogram().GetSampleSum(), m.GetHistogram().GetSampleCount())
		}
	}
	// The pod without a latest start is not late.
	want := map[string]string{"declared late": "60 of 2", "learned late": "0 of 1", "learned early": "1800 of 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWithoutForecastsConditionsAreRemoved: once, by the scheduler that leads, and again where a write fails.
func TestWithoutForecastsConditionsAreRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said := podGroup("said")
		said.Status.Conditions = []metav1.Condition{{Type: annotation.ExpectedStart, Reason: "Never"}}
		c := &cluster{
			server: server{fails: 1, apart: true}, groups: []*v1alpha1.PodGroup{said, podGroup("silent")},
			queue: []view.WaitingUnit{gangUnit("said", nil)},
		}
		c.apart = false
		w := c.writer(t)
		w.Interval = 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(t.Context())
		}()
		time.Sleep(time.Minute) //nolint:forbidigo // the clock is the bubble's
		synctest.Wait()
		if len(c.applied) > 0 {
			t.Errorf("a scheduler that does not lead applied %v", c.applied)
		}
		c.Lock()
		c.leads = true
		c.Unlock()
		<-done
		if diff := cmp.Diff([]string{"said removed"}, c.take()); diff != "" || c.asked > 0 {
			t.Errorf("%d forecasts; applied (-want +got):\n%s", c.asked, diff)
		}
	})
}

// TestAPodThatOutlivesItsRunTimeGetsOneEvent while it does, and another one after it did not.
func TestAPodThatOutlivesItsRunTimeGetsOneEvent(t *testing.T) {
	t.Parallel()
	late := []view.Overdue{{Pod: "ml/p", Declared: "1h0m0s", Ran: "1h5m0s"}, {Pod: "ml/gone"}}
	c := &cluster{
		pods:  map[string]*corev1.Pod{"ml/p": object.Pod("ml/p", object.UID("u"))},
		queue: []view.WaitingUnit{{Name: "pod/ml/w"}},
	}
	w := c.writer(t)
	for _, c.overdue = range [][]view.Overdue{late, late, nil, late} {
		testkit.Check(t, w.publish(t.Context()))
	}
	text := "p: the pod has run for 1h5m0s, longer than the 1h0m0s that are declared; " +
		"what waits for its end starts later"
	if diff := cmp.Diff([]string{text, text}, c.warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

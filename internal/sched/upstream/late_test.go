package upstream

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

// TestWhatIsReportedWhileFiltersRestIsCorrected: of two pods that are refused at once, for the second one all filters
// run when they have rested, and what they find is reported, unless the refusal is not the pod's last one any more.
func TestWhatIsReportedWhileFiltersRestIsCorrected(t *testing.T) {
	refused := view.Verdict{Findings: []why.Finding{exclusive("a")}}
	fits := view.Verdict{Feasible: 1, Findings: []why.Finding{exclusive("a")}}
	held := view.Verdict{Findings: []why.Finding{{Reason: why.Reason{Code: why.GangNotReady}}, exclusive("a")}}
	same := view.Verdict{Findings: []why.Finding{{Reason: why.Reason{Code: why.InsufficientCPU}, Object: "a"}}}
	full := map[string]*fwk.Status{"a": full()}
	const first, root = "InsufficientCPU: 0/1 nodes", "InsufficientExclusiveCPU: 0/1 nodes"
	nothing := func(*bench, *corev1.Pod) {}
	for name, s := range map[string]struct {
		meanwhile func(b *bench, pod *corev1.Pod)
		says      view.Verdict
		err       error
		asked     int
		want      string // how the condition begins
		events    int
	}{
		"another cause":            {nothing, refused, nil, 1, root, 2},
		"the same cause":           {nothing, same, nil, 1, first, 1},
		"a node has room since":    {nothing, fits, nil, 1, first, 1},
		"the pod is held since":    {nothing, held, nil, 1, first, 1},
		"filters that fail":        {nothing, view.Verdict{}, errors.New("no snapshot"), 1, first, 1},
		"the pod is bound or gone": {(*bench).goes, refused, nil, 0, "", 1},
		"tried again, again while they rest": {
			func(b *bench, pod *corev1.Pod) {
				<-time.After(time.Millisecond)
				b.refuse(t, pod, full)
			}, refused, nil, 1, root, 2,
		},
		"tried again, refused otherwise": {
			func(b *bench, pod *corev1.Pod) {
				<-time.After(time.Millisecond)
				b.refuse(t, pod, map[string]*fwk.Status{"a": tainted()})
			}, refused, nil, 1, root, 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, pod, asked := newBench(t, "a"), testPod("q"), atomic.Int32{}
				b.client = fake.NewClientset(pod)
				b.reporter = NewReporter(b.client, unregistered, func(string, string) {}, clock.RealClock{})
				b.reporter.filters = func(context.Context, framework.Framework, *corev1.Pod) (view.Verdict, error) {
					<-time.After(10 * time.Millisecond)
					return refused, nil
				}
				b.reporter.Evaluate = func(_ context.Context, of *corev1.Pod) (view.Verdict, error) {
					if asked.Add(1); of != pod {
						t.Errorf("filters run for %s, which was analyzed", of.Name)
					}
					return s.says, s.err
				}
				b.handle = b.reporter.Wrap(upstreamHandler)
				b.refuse(t, testPod("p"), full)
				b.framework.notes.all = nil
				b.refuse(t, pod, full)
				rested := time.Now().Add(90 * time.Millisecond)
				s.meanwhile(b, pod)
				<-time.After(time.Until(rested) - 1)
				if synctest.Wait(); asked.Load() > 0 {
					t.Error("the filters have not rested nine times as long as they worked")
				}
				<-time.After(time.Second)
				synctest.Wait()
				message := ""
				if s.want != "" {
					message = b.condition(t, "q")
				}
				n, events := int(asked.Load()), b.framework.notes.all
				if n != s.asked || len(events) != s.events || !strings.HasPrefix(message, s.want) {
					t.Errorf("filters ran %d times, want %d; Events %q, want %d; the condition says %q, want %q", n,
						s.asked, events, s.events, message, s.want)
				}
			})
		})
	}
}

func TestLateAttemptsAreBounded(t *testing.T) {
	b := newBench(t, "a")
	b.reporter.Evaluate = func(context.Context, *corev1.Pod) (view.Verdict, error) { return view.Verdict{}, nil }
	b.reporter.completes = true // until all are there
	for range 60 {
		b.reporter.postpone(t.Context(), b.framework, testPod("p"), nil, 5000)
	}
	if n := len(b.reporter.late); n != 52 {
		t.Errorf("%d late attempts with 5,000 nodes are kept, want 52", n)
	}
}

func (b *bench) goes(pod *corev1.Pod) { b.reporter.forget(pod) }

package sim

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/testkit"
)

// bindings counts the requests to bind, by pod, and knows the nodes that were asked for.
type bindings struct {
	tries map[string]int
	nodes map[string][]string
	bound []string // in order
}

// watch puts a fault into an API server: fail returns the error for a request to bind a pod, and whether it is carried
// out nevertheless. Requests that bind nothing go to other.
func (b *bindings) watch(e *engine, fail func(pod string) (carried bool, err error),
	other func(r *http.Request) error,
) {
	b.tries, b.nodes = map[string]int{}, map[string][]string{}
	e.api.fault = func(r *http.Request, body []byte) error {
		path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		if path[len(path)-1] != "binding" {
			if other != nil {
				return other(r)
			}
			return nil
		}
		pod := path[5]
		b.tries[pod]++
		_, node, _ := strings.Cut(string(body), `"target":`)
		b.nodes[pod] = append(b.nodes[pod], node)
		carried, err := fail(pod)
		if err == nil {
			b.bound = append(b.bound, pod)
		} else if carried {
			fault := e.api.fault
			e.api.fault = nil
			_, _ = e.api.serve(r, body)
			e.api.fault = fault
		}
		return err
	}
}

// TestABindingOfAMemberFails: what becomes of the gang when the API server does not bind one of its members, or is
// gone, while others are bound.
//
// F3: a binding fails after the permit, and a gang is left in part.
func TestABindingOfAMemberFails(t *testing.T) {
	resource := corev1.Resource("pods/binding")
	plain := strings.NewReplacer("koordinator.sh/qosClass: LSR, ", "", ", koordinator.sh/gpu: 100", "")
	for name, c := range map[string]struct {
		err     error
		plain   bool // no CPUs or devices are recorded with the Binding
		times   int  // it happens
		carried bool // the API server has done it
		all     bool // every request fails alike meanwhile
		tries   int  // to bind the member
	}{
		"refused once": {
			err: apierrors.NewForbidden(resource, "a1", errors.New("not now")), times: 1, tries: 2,
		},
		"too many requests":    {err: apierrors.NewTooManyRequestsError("busy"), times: 2, tries: 3},
		"the answer is lost":   {err: syscall.ECONNRESET, times: 1, carried: true, tries: 1},
		"etcd does not answer": {err: apierrors.NewTimeoutError("etcd", 1), times: 1, carried: true, tries: 1},
		"etcd did not get it":  {err: apierrors.NewTimeoutError("etcd", 1), plain: true, times: 1, tries: 2},
		"the answer is lost, and nothing is recorded": {
			err: syscall.ECONNRESET, plain: true, times: 1, carried: true, tries: 1,
		},
		"no API server":           {err: syscall.ECONNREFUSED, times: 5, all: true, tries: 4},
		"connections are cut off": {err: syscall.ECONNRESET, plain: true, times: 3, all: true, tries: 2},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(withoutLog(t.Context()))
			defer cancel()
			in := transaction("b0", "")
			if c.plain {
				in = plain.Replace(in)
			}
			w := worldOf(t, in, nil)
			e, err := newEngine(ctx, w)
			testkit.Check(t, err)
			var b bindings
			left := c.times
			b.watch(e, func(pod string) (carried bool, refused error) {
				if pod != "a1" && !(c.all && len(b.bound) > 0) || left == 0 {
					return false, nil
				}
				left--
				return c.carried, c.err
			}, func(*http.Request) error {
				if !c.all || len(b.bound) == 0 || left == 0 {
					return nil
				}
				left--
				return c.err
			})
			r, err := e.decide(ctx, w, io.Discard)
			testkit.Check(t, err)
			for _, p := range r.Pods {
				if p.State != Scheduled {
					t.Errorf("%s is %s %v", p.Name, p.State, p.Reasons)
				}
			}
			if n := b.tries["a1"]; n != c.tries || len(slices.Compact(b.nodes["a1"])) != 1 {
				t.Errorf("%d tries to bind it, to %v, want %d to one node", n, b.nodes["a1"], c.tries)
			}
			atRest(t, e)
		})
	}
}

// TestABindingThatFailsAgainLeavesADegradedGang: the bound members remain, and the one that is not is tried before
// older pods, and alone.
func TestABindingThatFailsAgainLeavesADegradedGang(t *testing.T) {
	const attempts = 4 // of one cycle
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	defer cancel()
	w := worldOf(t, transaction("b0", ""), nil)
	e, err := newEngine(ctx, w)
	testkit.Check(t, err)
	var b bindings
	b.watch(e, func(pod string) (carried bool, refused error) {
		if pod == "a1" && b.tries[pod] <= attempts {
			return false, apierrors.NewForbidden(corev1.Resource("pods/binding"), pod, errors.New("not now"))
		}
		return false, nil
	}, nil)
	next, looked := e.core.NextEntity, false
	e.core.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		if b.tries["a1"] == attempts && !looked {
			looked = true
			atRest(t, e)
			var report gang.Report
			e.gangs.Read(func(s *gang.State) { report, _ = s.Find("default/a") })
			if !report.Degraded || len(report.In(gang.Bound)) != 3 || len(report.In(gang.Pending)) != 1 {
				t.Errorf("the gang is %+v, want it degraded with 3 of 4 bound", report)
			}
			if e.gangs.Compare(podsOf(e)["a1"], &corev1.Pod{}) >= 0 {
				t.Error("the member comes behind a pod that is older")
			}
		}
		return next(logger)
	}
	r, err := e.decide(ctx, w, io.Discard)
	testkit.Check(t, err)
	if p := stateOf(r, "a1"); p.State != Scheduled || !looked || b.tries["a1"] != attempts+1 {
		t.Errorf("after %d tries %+v", b.tries["a1"], p)
	}
	atRest(t, e)
}

// TestANodeGoesWhileItsMembersAreReserved, at each step between S5 and S7: the gang starts whole or not at all, and
// nothing stays reserved. The API server binds pods to nodes that do not exist.
func TestANodeGoesWhileItsMembersAreReserved(t *testing.T) {
	in := transaction("b0", "")
	_, steps, _ := killed(t, in, 0)
	for i, step := range steps {
		if step != commit && step != drain && step != bindStep {
			continue
		}
		ctx, cancel := context.WithCancel(withoutLog(t.Context()))
		w := worldOf(t, in, nil)
		e, err := newEngine(ctx, w)
		testkit.Check(t, err)
		calls := 0
		watchSteps(e, func(string, *corev1.Pod) *fwk.Status {
			if calls++; calls == i+1 {
				removeNode(t, e, "n1")
			}
			return nil
		})
		r, err := e.decide(ctx, w, io.Discard)
		if err != nil {
			t.Fatalf("%s %d: %v", step, i+1, err)
		}
		for _, g := range r.Gangs {
			if g.Bound != 0 && g.Bound != g.Members {
				t.Errorf("%s %d: %+v", step, i+1, r.Gangs)
			}
		}
		atRest(t, e)
		cancel()
	}
}

// TestTwoLeadersForAMoment: one that has lost its lock without knowing it goes on after its successor, at each step of
// a transaction. The API server binds each pod once, and the successor is not misled.
func TestTwoLeadersForAMoment(t *testing.T) {
	in := transaction("b0", "")
	_, steps, _ := killed(t, in, 0)
	for i := range steps {
		ctx, cancel := context.WithCancel(withoutLog(t.Context()))
		w := worldOf(t, in, nil)
		e, err := newEngine(ctx, w)
		testkit.Check(t, err)
		var successor *engine
		calls := 0
		watchSteps(e, func(string, *corev1.Pod) *fwk.Status {
			if calls++; calls != i+1 {
				return nil
			}
			w := worldOf(t, in, podsOf(e))
			next, err := newEngine(ctx, w)
			if err != nil {
				t.Error(err)
				return nil
			}
			successor = next
			if _, err := successor.decide(ctx, w, io.Discard); err != nil {
				t.Error(err)
			}
			e.api.pods = successor.api.pods // there is one API server
			return nil
		})
		_, _ = e.decide(ctx, w, io.Discard) // its Bindings are refused
		if successor == nil {
			t.Fatalf("no call %d", i+1)
		}
		for name, p := range podsOf(successor) {
			if p.Spec.NodeName == "" {
				t.Errorf("%s %d: %s is not bound", steps[i], i+1, name)
			}
		}
		atRest(t, successor)
		again, err := newEngine(ctx, worldOf(t, in, podsOf(successor)))
		testkit.Check(t, err)
		if what := accountOf(again).differ(accountOf(successor)); len(what) > 0 {
			t.Errorf("%s %d: the successor has other accounts than one that starts now: %v", steps[i], i+1, what)
		}
		cancel()
	}
}

// removeNode deletes a node.
func removeNode(t *testing.T, e *engine, name string) {
	t.Helper()
	o, known, err := e.api.nodes.GetStore().GetByKey(name)
	if err != nil || !known {
		t.Errorf("node %s: %v", name, err)
		return
	}
	if err := e.api.nodes.GetStore().Delete(o); err != nil {
		t.Error(err)
	}
	for _, h := range e.api.nodes.handlers {
		h.OnDelete(o)
	}
}

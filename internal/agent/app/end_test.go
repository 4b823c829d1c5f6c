package app_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/testkit"
)

// heard is the Events and metrics of an agent.
type heard struct {
	recorder *events.FakeRecorder
	registry metrics.KubeRegistry
}

// recordEvents records the Events and metrics of a node's agents; the metrics are those of one process.
func (w *world) recordEvents() *heard {
	h := &heard{events.NewFakeRecorder(1000), metrics.NewKubeRegistry()}
	w.options.Shared, w.options.Recorder = app.NewShared(), h.recorder
	w.options.Shared.Metrics.Register(h.registry.MustRegister, h.registry.CustomMustRegister)
	return h
}

// notesFor returns the Events with a reason, and forgets all.
func (h *heard) notesFor(reason string) (found []string) {
	for len(h.recorder.Events) > 0 {
		if e := <-h.recorder.Events; strings.Contains(e, " "+reason+" ") {
			found = append(found, e)
		}
	}
	return found
}

// metric returns the line of a metric without labels.
func (h *heard) metric(name string) string {
	served := httptest.NewRecorder()
	always := func() error { return nil }
	app.Handler(always, always, h.registry).ServeHTTP(served, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(served.Body.String()) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return value
		}
	}
	return "not served"
}

func TestARefusedAgentIsReportedByItselfAndCountedByTheFirst(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		h := w.recordEvents()
		w.run(func(*app.Agent) {
			for range 3 {
				second, err := app.New(w.options)
				testkit.Check(t, err)
				if err := second.Run(t.Context()); !errors.Is(err, statedir.ErrSecondAgent) {
					t.Errorf("Run of a second agent = %v, want %v", err, statedir.ErrSecondAgent)
				}
			}
			list, err := w.client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 {
				t.Fatalf("three refusals left %d Events (%v), want one", len(list.Items), err)
			}
			e := list.Items[0]
			want := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: "node-uid"}
			if e.Reason != "SecondAgent" || e.Regarding != want || e.ReportingInstance != "tenon-agent-"+nodeName ||
				!strings.Contains(e.Note, fmt.Sprintf("process %d holds ", os.Getpid())) {
				t.Errorf("the refused agent sent %+v", e)
			}
			later(20 * time.Second)
			if got := h.metric("tenon_agent_refused_agents_total"); got != "3" {
				t.Errorf("the first agent counts %s refused ones, want 3", got)
			}
		})
	})
}

func TestARefusedAgentThatCannotTellSaysWhy(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		w.recordEvents()
		w.run(func(*app.Agent) {
			w.client.PrependReactor("create", "events",
				func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errDown })
			second, err := app.New(w.options)
			testkit.Check(t, err)
			if err := second.Run(t.Context()); !errors.Is(err, statedir.ErrSecondAgent) || !errors.Is(err, errDown) {
				t.Errorf("Run = %v, want %v and %v", err, statedir.ErrSecondAgent, errDown)
			}
		})
	})
}

func TestAnAgentThatWasNotStoppedIsReportedByTheNext(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		lock := w.root.Path("var/lib/tenon-agent/lock")
		quiet := func(when, count string) {
			t.Helper()
			h := w.recordEvents()
			w.run(func(*app.Agent) { later(time.Minute) })
			if sent, ends := h.notesFor("AgentRestarted"),
				h.metric("tenon_agent_unclean_ends_total"); len(sent) > 0 || ends != count {
				t.Errorf("%s: Events %q and %s unclean ends, want none and %s", when, sent, ends, count)
			}
		}
		quiet("the first start", "0")
		quiet("after an end that was asked for", "0")

		var running []byte
		var alive time.Time
		w.run(func(*app.Agent) {
			later(time.Minute)
			alive = time.Now()
			s, err := os.Stat(lock)
			if err != nil || alive.Sub(s.ModTime()) > w.options.Resync {
				t.Fatalf("the agent was last known to work at %v (%v), it is %v", s.ModTime(), err, alive)
			}
			if running, err = os.ReadFile(lock); err != nil {
				t.Fatal(err)
			}
		})
		// As if the process had been killed.
		testkit.Check(t, errors.Join(os.WriteFile(lock, running, 0o644), os.Chtimes(lock, alive, alive)))
		later(90 * time.Second)
		h := w.recordEvents()
		w.run(func(*app.Agent) {})
		sent := h.notesFor("AgentRestarted")
		if len(sent) != 1 || !strings.Contains(sent[0], "at most 1m30s later") ||
			!strings.Contains(sent[0], alive.UTC().Format(time.RFC3339)) {
			t.Errorf("Events %q, want one Event with 1m30s since %v", sent, alive)
		}
		if ends := h.metric("tenon_agent_unclean_ends_total"); ends != "1" {
			t.Errorf("%s unclean ends are counted, want 1", ends)
		}
		quiet("after the next end that was asked for", "1")

		for _, text := range []string{"", "stopped", "4711\n", "x y\n", "4711 -3\n", strings.Repeat("9 ", 100)} {
			testkit.Check(t, os.WriteFile(lock, []byte(text), 0o644))
			w.run(func(a *app.Agent) {
				if err := a.Ready(); err != nil {
					t.Errorf("a lock file of %q: %v", text, err)
				}
			})
		}
	})
}

func TestAnAPIServerOutageIsReported(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		h := w.recordEvents()
		var gone atomic.Bool
		watches := make(chan watch.Interface, 100)
		w.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return gone.Load(),
				nil, errDown
		})
		w.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
			if gone.Load() {
				return true, nil, errDown
			}
			found, err := w.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
			watches <- found
			return true, found, err
		})
		cut := func(d time.Duration) {
			gone.Store(true)
			for len(watches) > 0 {
				(<-watches).Stop()
			}
			later(d)
			gone.Store(false)
			later(time.Minute)
		}
		w.run(func(*app.Agent) {
			if got := h.metric("tenon_agent_api_unreachable_seconds_total"); got != "0" {
				t.Errorf("the API server counts as away for %s s at the start", got)
			}
			h.notesFor("")
			cut(time.Second) // it only ended the watches
			if sent := h.notesFor("APIServerUnreachable"); len(sent) > 0 {
				t.Errorf("an API server that was away for a second: Events %q, want none", sent)
			}
			began := time.Now()
			cut(10 * time.Minute)
			sent := h.notesFor("APIServerUnreachable")
			if len(sent) != 1 || !strings.Contains(sent[0],
				"from "+began.UTC().Format(time.RFC3339)[:len("2000-01-01T00:0")]) {
				t.Errorf("Events %q, want one Event from %v on", sent, began)
			}
			var seconds float64
			if _, err := fmt.Sscan(h.metric("tenon_agent_api_unreachable_seconds_total"), &seconds); err != nil ||
				seconds < 590 || seconds > 660 {
				t.Errorf("the API server counts as away for %v s (%v), want some 600", seconds, err)
			}
		})
	})
}

func TestAKubeletRestartIsReported(t *testing.T) {
	inWorld(t, "hybrid", func(t *testing.T, w *world) {
		h := w.recordEvents()
		socket := w.root.Path("var/lib/kubelet/pod-resources/kubelet.sock")
		testkit.Check(t, os.MkdirAll(filepath.Dir(socket), 0o755))
		serve := func() {
			t.Helper()
			_ = os.Remove(socket) // as a kubelet does
			l, err := new(net.ListenConfig).Listen(context.Background(), "unix", socket)
			testkit.Check(t, err)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			testkit.Check(t, l.Close())
			later(time.Minute)
		}
		w.run(func(*app.Agent) {
			serve()
			if sent := h.notesFor("KubeletRestarted"); len(sent) > 0 {
				t.Errorf("the kubelet's first start: Events %q, want none", sent)
			}
			serve()
			if sent := h.notesFor("KubeletRestarted"); len(sent) != 1 {
				t.Errorf("Events %q, want one Event", sent)
			}
			testkit.Check(t, os.Remove(socket))
			later(time.Minute)
			if sent := h.notesFor("KubeletRestarted"); len(sent) > 0 {
				t.Errorf("a kubelet that is gone: Events %q, want none", sent)
			}
			serve()
			if sent, counted := h.notesFor("KubeletRestarted"),
				h.metric("tenon_agent_kubelet_restarts_total"); len(sent) != 1 || counted != "2" {
				t.Errorf("Events %q and %s restarts are counted, want one Event and 2", sent, counted)
			}
		})
	})
}

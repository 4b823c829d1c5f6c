package report_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/report"
)

// world is a reporter on a server, in a bubble of its own time.
type world struct {
	t        *testing.T
	server   *server
	reporter *report.Reporter

	mu         sync.Mutex
	source     *v1alpha2.NodeResourceTopology
	conditions map[string]string // kind to "True: reason" or "False"
	events     []string
}

func inWorld(t *testing.T, gv schema.GroupVersion, play func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, server: newServer(t, gv), conditions: map[string]string{}, source: topology("0-3")}
		w.reporter = report.New(report.Options{
			Objects: w.server, Version: gv, Node: "n0", Boot: "boot-1",
			Source: func() *v1alpha2.NodeResourceTopology {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.source
			},
			SetCondition: func(_ context.Context, kind string, holds bool, reason, message string) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.conditions[kind] = "False"
				if holds {
					w.conditions[kind] = reason + ": " + message
				}
				return nil
			},
			Emit: func(e report.Event) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.events = append(w.events, e.Reason)
			},
		})
		w.server.onWrite = w.reporter.Observe
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.reporter.Run(ctx) }()
		play(w)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil at the end of its context", err)
		}
	})
}

func topology(pool string) *v1alpha2.NodeResourceTopology {
	nrt := &v1alpha2.NodeResourceTopology{
		TopologyPolicies: []string{"Restricted"}, //nolint:staticcheck // what readers of v1alpha1 look at
		Zones:            v1alpha2.ZoneList{{Name: "node-0", Type: "Node", Costs: v1alpha2.CostList{{Name: "node-0", Value: 10}}}},
		Attributes:       v1alpha2.AttributeList{{Name: "topologyManagerPolicy", Value: "restricted"}},
	}
	nrt.APIVersion, nrt.Kind, nrt.Name = v1alpha2.GroupVersion().String(), "NodeResourceTopology", "n0"
	nrt.Labels = map[string]string{annotation.ManagedBy: annotation.ManagedByKoordinator}
	nrt.Annotations = map[string]string{annotation.CPUTopology: `{"detail":[]}`, annotation.CPUSharedPoolsKey: pool}
	return nrt
}

// set gives the reporter something new.
func (w *world) set(nrt *v1alpha2.NodeResourceTopology) {
	w.mu.Lock()
	w.source = nrt
	w.mu.Unlock()
	w.reporter.Changed()
}

func (w *world) condition() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conditions[report.Conflict]
}

func (w *world) applies() int { _, n := w.server.state(); return n }

func (w *world) pool() string {
	object, _ := w.server.state()
	if object == nil {
		return "no object"
	}
	return object.GetAnnotations()[annotation.CPUSharedPoolsKey]
}

func later(d time.Duration) { time.Sleep(d); synctest.Wait() } //nolint:forbidigo // the clock is the bubble's

func TestNothingIsWrittenBeforeTheAPIHasBeenRead(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Changed()
		later(time.Minute)
		if n := w.applies(); n != 0 {
			t.Errorf("%d writes before the object was observed, want none", n)
		}
	})
}

func TestFirstWriteIsCompleteAndOwned(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		object, n := w.server.state()
		if n != 1 {
			t.Fatalf("%d writes, want 1", n)
		}
		r, _, err := annotation.ParseReport(object.GetAnnotations()[annotation.ReportKey])
		if err != nil || r.Gen != 1 || r.Boot != "boot-1" || len(r.Hash) != 16 {
			t.Errorf("report = %+v, %v, want generation 1 of boot-1 with a hash", r, err)
		}
		if _, found, _ := unstructured.NestedSlice(object.Object, "attributes"); !found {
			t.Error("attributes are missing")
		}
		for _, f := range object.GetManagedFields() {
			if f.Manager != report.Manager || f.Operation != metav1.ManagedFieldsOperationApply {
				t.Errorf("written by %s (%s), want server-side apply by %s", f.Manager, f.Operation, report.Manager)
			}
		}
		if age, ok := w.reporter.Age(); !ok || age > 2*time.Second {
			t.Errorf("Age = %s, %v", age, ok)
		}
		if diff := cmp.Diff([]string{"TopologyPublished"}, w.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		for range 100 {
			w.reporter.Changed()
			later(5 * time.Second)
		}
		if n := w.applies(); n != 1 {
			t.Errorf("%d writes of one content, want 1", n)
		}
	})
}

func TestRestartOverAnEqualObjectWritesNothingAndKeepsTheGeneration(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		w.set(topology("0-1"))
		later(2 * time.Second)
		object, n := w.server.state()

		second := report.New(report.Options{
			Objects: w.server, Version: v1alpha2.GroupVersion(), Node: "n0", Boot: "boot-1",
			Source:       func() *v1alpha2.NodeResourceTopology { return topology("0-1") },
			SetCondition: func(context.Context, string, bool, string, string) error { return nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go second.Run(ctx)
		second.Observe(object)
		later(5 * time.Second)
		if got := w.applies(); got != n {
			t.Errorf("a restart wrote %d times, want not at all", got-n)
		}
		w.server.onWrite = nil
		cancel()
		synctest.Wait()
		if _, ok := second.Age(); !ok {
			t.Error("the second reporter does not know that the object is up to date")
		}
	})
}

func TestBurstsAreCoalescedAndLimited(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		start := time.Now()
		for i := 0; time.Since(start) < 10*time.Minute; i++ {
			w.set(topology(strings.Repeat("x", 1+i%50)))
			later(100 * time.Millisecond)
		}
		if n := w.applies(); n > 12*10+12 || n < 100 {
			t.Errorf("%d writes in ten minutes of change, want about 12 a minute", n)
		}
		w.set(topology("last"))
		later(2 * time.Minute)
		if w.pool() != "last" {
			t.Errorf("the last content is not published: %q", w.pool())
		}
	})
}

func TestFailedWriteIsTriedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.server.failures = 5
		w.reporter.Observe(nil)
		later(2 * time.Minute)
		if w.pool() != "0-3" || w.applies() != 1 {
			t.Errorf("pool %q after %d writes, want 0-3 after one that succeeded", w.pool(), w.applies())
		}
	})
}

func TestForeignZonesAreLeftToTheirWriter(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		object := w.server.Update("nfd-master", func(u *unstructured.Unstructured) {
			u.Object["zones"] = []any{map[string]any{"name": "theirs", "type": "Node"}}
			u.Object["attributes"] = []any{map[string]any{"name": "topologyManagerScope", "value": "pod"}}
		})
		w.reporter.Observe(object)
		later(2 * time.Second)
		for range 3 {
			w.server.Update("nfd-master", func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{"nfd": time.Now().Format("150405"), annotation.ManagedBy: annotation.ManagedByKoordinator})
			})
			later(time.Minute)
		}
		got, n := w.server.state()
		zones, _, _ := unstructured.NestedSlice(got.Object, "zones")
		attributes, _, _ := unstructured.NestedSlice(got.Object, "attributes")
		if zones[0].(map[string]any)["name"] != "theirs" || len(attributes) != 1 {
			t.Errorf("zones %v, attributes %v: want those of nfd-master", zones, attributes)
		}
		if w.pool() != "0-3" || n != 1 {
			t.Errorf("annotations %q in %d writes, want ours in one", w.pool(), n)
		}
		if c := w.condition(); c != "False" {
			t.Errorf("condition = %q, want none: living beside NFD is no conflict", c)
		}
	})
}

func TestWriterThatAppearsLaterTakesTheZones(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		w.server.Update("nfd-master", func(u *unstructured.Unstructured) {
			u.Object["zones"] = []any{map[string]any{"name": "theirs", "type": "Node"}}
		})
		later(2 * time.Second)
		w.set(topology("0-1"))
		later(5 * time.Second)
		got, _ := w.server.state()
		zones, _, _ := unstructured.NestedSlice(got.Object, "zones")
		if w.pool() != "0-1" || zones[0].(map[string]any)["name"] != "theirs" {
			t.Errorf("pool %q, zones %v: want our annotations and their zones", w.pool(), zones)
		}
	})
}

func TestLiveKoordletStopsTheAgent(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		object := w.server.Update("koordlet", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{annotation.CPUTopology: "{}", annotation.CPUSharedPoolsKey: "theirs"})
		})
		w.reporter.Observe(object)
		for range 5 {
			w.reporter.Changed()
			later(time.Minute)
		}
		if n := w.applies(); n != 0 || w.pool() != "theirs" {
			t.Errorf("%d writes over a live koordlet, pool %q", n, w.pool())
		}
		if c := w.condition(); !strings.HasPrefix(c, "ForeignWriter") || !strings.Contains(c, "koordlet") {
			t.Errorf("condition = %q, want ForeignWriter that names koordlet", c)
		}
		w.server.Delete()
		w.reporter.Observe(nil)
		later(5 * time.Second)
		if w.pool() != "0-3" || w.condition() != "False" {
			t.Errorf("after the object was deleted: pool %q, condition %q; want ours and none", w.pool(), w.condition())
		}
	})
}

func TestEditByHandIsPutRight(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		w.server.Update("kubectl-edit", func(u *unstructured.Unstructured) {
			all := u.GetAnnotations()
			all[annotation.CPUSharedPoolsKey] = "edited"
			u.SetAnnotations(all)
		})
		later(5 * time.Second)
		if w.pool() != "0-3" || w.condition() != "False" {
			t.Errorf("pool %q, condition %q: want ours and none", w.pool(), w.condition())
		}
	})
}

func TestContentThatVanishesComesBackAndTheThirdTimeIsTold(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		for i := range 3 {
			before := w.applies()
			w.server.Delete()
			w.reporter.Observe(nil)
			later(5 * time.Second)
			if i > 0 && w.applies() != before {
				t.Errorf("restored %d times within 30 seconds", i+1)
			}
			if i > 0 {
				later(40 * time.Second)
			}
			if w.pool() != "0-3" {
				t.Errorf("deletion %d: the object was not restored", i+1)
			}
			if disputed := strings.HasPrefix(w.condition(), "ContentVanishes"); disputed != (i == 2) {
				t.Errorf("deletion %d: condition = %q", i+1, w.condition())
			}
		}
		later(30 * time.Minute)
		if w.condition() != "False" {
			t.Errorf("condition = %q half an hour later, want none", w.condition())
		}
	})
}

func TestV1alpha1IsWrittenWhereNothingElseIsServed(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha1.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		object, _ := w.server.state()
		if object.GetAPIVersion() != "topology.node.k8s.io/v1alpha1" {
			t.Errorf("apiVersion = %s", object.GetAPIVersion())
		}
		if _, found, _ := unstructured.NestedSlice(object.Object, "attributes"); found {
			t.Error("v1alpha1 has no attributes")
		}
		w.reporter.Changed()
		later(time.Minute)
		if n := w.applies(); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	})
}

func TestReportThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.set(topology(strings.Repeat("0", 130<<10)))
		w.reporter.Observe(nil)
		later(2 * time.Second)
		if w.applies() != 1 {
			t.Errorf("%d writes of 130 KiB, want 1 with a warning", w.applies())
		}
		w.set(topology(strings.Repeat("0", 250<<10)))
		later(2 * time.Second)
		if w.applies() != 1 || len(w.pool()) != 130<<10 {
			t.Errorf("a report of 250 KiB was written")
		}
		later(10 * time.Minute)
		if !cmp.Equal(w.events, []string{"TopologyLarge", "TopologyPublished", "TopologyTooLarge"}) {
			t.Errorf("events = %q", w.events)
		}
	})
}

package report_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// world is a reporter on a server, in a bubble of its own time.
type world struct {
	t        *testing.T
	server   *server
	reporter *report.Reporter

	mu       sync.Mutex
	source   *v1alpha2.NodeResourceTopology
	conflict string // the condition: "reason: message" or "False"
	events   []string
}

func inWorld(t *testing.T, gv schema.GroupVersion, play func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, server: newServer(t, gv), source: topology("0-3")}
		w.reporter = report.New(report.Options{
			Target: report.Target{
				Objects: w.server, Node: "n0", Clock: clock.RealClock{}, SetConflict: w.setConflict,
			},
			Version: gv, Boot: "boot-1", Keep: keepNone,
			Source: func() *v1alpha2.NodeResourceTopology {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.source
			},
			Emit: func(reason event.Reason, _ string, _ ...any) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.events = append(w.events, reason.String())
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

func (w *world) setConflict(_ context.Context, holds bool, reason, message string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conflict = "False"
	if holds {
		w.conflict = reason + ": " + message
	}
	return nil
}

func topology(pool string) *v1alpha2.NodeResourceTopology {
	nrt := &v1alpha2.NodeResourceTopology{
		TopologyPolicies: []string{"Restricted"}, //nolint:staticcheck // what readers of v1alpha1 look at
		Zones: v1alpha2.ZoneList{{
			Name: "node-0", Type: "Node",
			Costs: v1alpha2.CostList{{Name: "node-0", Value: 10}},
		}},
		Attributes: v1alpha2.AttributeList{{Name: "topologyManagerPolicy", Value: "restricted"}},
	}
	nrt.APIVersion, nrt.Kind, nrt.Name = v1alpha2.GroupVersion().String(), "NodeResourceTopology", "n0"
	nrt.Labels = map[string]string{annotation.ManagedBy: annotation.ManagedByKoordinator}
	nrt.Annotations = map[string]string{annotation.CPUTopology: `{"detail":[]}`, annotation.CPUSharedPoolsKey: pool}
	return nrt
}

func keepNone(annotation.Report) error { return nil }

// quiet is a target whose conflicts are not reported.
func quiet(s *server) report.Target {
	return report.Target{
		Objects: s, Node: "n0", Clock: clock.RealClock{},
		SetConflict: func(context.Context, bool, string, string) error { return nil },
	}
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
	return w.conflict
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
			Target: quiet(w.server), Version: v1alpha2.GroupVersion(), Boot: "boot-1",
			Source: func() *v1alpha2.NodeResourceTopology { return topology("0-1") },
			Keep:   keepNone, Emit: func(event.Reason, string, ...any) {},
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
		object := w.server.change("nfd-master", func(u *unstructured.Unstructured) {
			u.Object["zones"] = []any{map[string]any{"name": "theirs", "type": "Node"}}
			u.Object["attributes"] = []any{map[string]any{"name": "topologyManagerScope", "value": "pod"}}
		})
		w.reporter.Observe(object)
		later(2 * time.Second)
		for range 3 {
			w.server.change("nfd-master", func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{
					"nfd":                time.Now().Format("150405"),
					annotation.ManagedBy: annotation.ManagedByKoordinator,
				})
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
			t.Errorf("condition = %q, want none: NFD beside it does not conflict", c)
		}
	})
}

func TestWriterThatAppearsLaterTakesTheZones(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		w.server.change("nfd-master", func(u *unstructured.Unstructured) {
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
		object := w.server.change("koordlet", func(u *unstructured.Unstructured) {
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
		w.server.remove()
		w.reporter.Observe(nil)
		later(5 * time.Second)
		if w.pool() != "0-3" || w.condition() != "False" {
			t.Errorf("after the object was deleted: pool %q, condition %q; want ours and none", w.pool(), w.condition())
		}
	})
}

// A program that wrote once, as while it was being replaced, must not keep a node's topology old for good.
func TestAWriterThatIsSilentForTenMinutesIsTakenOverFrom(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(5 * time.Second)
		write := func(pool string) {
			w.reporter.Observe(w.server.change("koordlet", func(u *unstructured.Unstructured) {
				annotations := u.GetAnnotations()
				annotations[annotation.CPUSharedPoolsKey] = pool
				u.SetAnnotations(annotations)
			}))
		}
		for i := range 4 { // each within ten minutes of the one before
			write(fmt.Sprint("theirs ", i))
			later(9 * time.Minute)
			if want := fmt.Sprint("theirs ", i); w.pool() != want ||
				!strings.HasPrefix(w.condition(), "ForeignWriter") {
				t.Fatalf("pool %q beside a live writer, condition %q; want %q and ForeignWriter", w.pool(),
					w.condition(), want)
			}
		}
		later(2 * time.Minute)
		if w.pool() != "0-3" || w.condition() != "False" {
			t.Errorf("pool %q and condition %q after ten minutes of silence, want ours and False", w.pool(),
				w.condition())
		}
		w.set(topology("4-7"))
		w.reporter.Changed()
		later(5 * time.Second)
		if w.pool() != "4-7" {
			t.Errorf("pool %q after a change, want 4-7", w.pool())
		}
	})
}

func TestEditByHandIsPutRight(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		w.server.change("kubectl-edit", func(u *unstructured.Unstructured) {
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

func TestContentThatVanishesComesBack(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(nil)
		later(2 * time.Second)
		for i := range 3 {
			w.server.remove()
			w.reporter.Observe(nil)
			later(5 * time.Second)
			if w.pool() != "0-3" || w.applies() != i+2 || w.condition() != "False" {
				t.Errorf("deletion %d: pool %q after %d writes, condition %q; want ours after one more", i+1, w.pool(),
					w.applies(), w.condition())
			}
		}
	})
}

// TestAWriterThatTheAgentHasNotSeenYetLosesNothing: the API server refuses a write that was decided on an older state.
func TestAWriterThatTheAgentHasNotSeenYetLosesNothing(t *testing.T) {
	t.Parallel()
	for name, published := range map[string]bool{"before the first write": false, "before a later one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
				t := w.t
				w.reporter.Observe(nil)
				if published {
					later(2 * time.Second)
				}
				w.server.mu.Lock()
				w.server.onWrite = nil // no watch event arrives
				w.server.mu.Unlock()
				w.server.change("nfd-master", func(u *unstructured.Unstructured) {
					u.Object["zones"] = []any{map[string]any{"name": "theirs", "type": "Node"}}
				})
				w.set(topology("0-1"))
				later(time.Minute)
				object, _ := w.server.state()
				zones, _, _ := unstructured.NestedSlice(object.Object, "zones")
				if w.pool() != "0-1" || zones[0].(map[string]any)["name"] != "theirs" || w.condition() != "False" {
					t.Errorf("pool %q, zones %v, condition %q: want our annotations and their zones", w.pool(), zones,
						w.condition())
				}
			})
		})
	}
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

func TestLargeReportLosesWhatContainersHoldFirst(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		nrt := topology("0-3")
		state := annotation.NUMAState{
			Memory: map[int32]annotation.NUMAMemory{0: {Group: annotation.NUMANodes{0}}},
			Pods:   map[types.UID]annotation.PlacedContainers{},
		}
		for i := range 4000 {
			state.Pods[types.UID(fmt.Sprintf("%032d", i))] = annotation.PlacedContainers{"main": {
				CPUs: "0-3",
				Mask: annotation.NUMANodes{0},
			}}
		}
		nrt.Annotations[annotation.NUMAStateKey] = annotation.Encode(state)
		if n := len(annotation.Encode(state)); n < 240<<10 {
			t.Fatalf("the state has %d bytes, too few for this test", n)
		}
		w.set(nrt)
		w.reporter.Observe(nil)
		later(time.Minute)
		object, n := w.server.state()
		if n != 1 {
			t.Fatalf("%d writes, want one", n)
		}
		got, _, err := annotation.ParseNUMAState(object.GetAnnotations()[annotation.NUMAStateKey])
		if err != nil || len(got.Pods) > 0 || len(got.Memory) != 1 {
			t.Errorf("numa-state = %+v, %v, want the memory without the pods", got, err)
		}
		for range 3 {
			w.reporter.Changed()
			later(time.Minute)
		}
		if n := w.applies(); n != 1 {
			t.Errorf("%d writes of the same cut content, want one", n)
		}
		if !cmp.Equal(w.events, []string{"TopologyCut", "TopologyPublished"}) {
			t.Errorf("events = %q, want one TopologyCut", w.events)
		}
	})
}

func TestAnnotationsOfOthersCountForTheLimit(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.set(topology(strings.Repeat("0", 130<<10)))
		w.reporter.Observe(w.server.change("other-manager", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{"example.com/theirs": strings.Repeat("x", 115<<10)})
		}))
		later(time.Minute)
		if n := w.applies(); n != 0 {
			t.Errorf("%d writes of 245 KiB together, want none", n)
		}
		if !cmp.Equal(w.events, []string{"TopologyTooLarge"}) {
			t.Errorf("events = %q, want TopologyTooLarge", w.events)
		}
	})
}

func TestGenerationGrowsByOneForEachChangeOverRestartsAndDeletions(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.server.onWrite = nil
		pool, kept := "0-3", annotation.Report{}
		life := func(play func(*report.Reporter)) {
			r := report.New(report.Options{
				Target: quiet(w.server), Version: v1alpha2.GroupVersion(), Boot: "boot-1", Last: kept,
				Keep:   func(r annotation.Report) error { kept = r; return nil },
				Emit:   func(event.Reason, string, ...any) {},
				Source: func() *v1alpha2.NodeResourceTopology { return topology(pool) },
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			object, _ := w.server.state()
			r.Observe(object)
			later(time.Minute)
			play(r)
			cancel()
			<-done
		}
		gen := func() int64 {
			object, _ := w.server.state()
			r, _, err := annotation.ParseReport(object.GetAnnotations()[annotation.ReportKey])
			testkit.Check(t, err)
			if r != kept {
				t.Errorf("kept %+v, published %+v", kept, r)
			}
			return r.Gen
		}
		life(func(r *report.Reporter) {
			if g := gen(); g != 1 {
				t.Errorf("first generation = %d, want 1", g)
			}
			pool = "0-2"
			r.Changed()
			later(time.Minute)
			if g := gen(); g != 2 {
				t.Errorf("generation after a change = %d, want 2", g)
			}
			w.server.remove()
			r.Observe(nil)
			later(time.Minute)
			if g := gen(); g != 2 {
				t.Errorf("generation of the same content after a deletion = %d, want 2", g)
			}
		})
		w.server.remove()
		life(func(*report.Reporter) {
			if g := gen(); g != 2 {
				t.Errorf("generation of the same content after deletion and restart = %d, want 2", g)
			}
		})
		w.server.remove()
		pool = "0-1"
		life(func(*report.Reporter) {
			if g := gen(); g != 3 {
				t.Errorf("generation of new content after deletion and restart = %d, want 3", g)
			}
		})
		kept = annotation.Report{} // the disk is lost, the object is not
		pool = "0"
		life(func(*report.Reporter) {
			if g := gen(); g != 4 {
				t.Errorf("generation after the disk was lost = %d, want 4", g)
			}
		})
	})
}

func TestLabelOfAnotherWriterIsLeftToIt(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(w.server.change("nfd-master", func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{annotation.ManagedBy: "nfd"})
			u.Object["zones"] = []any{map[string]any{"name": "theirs", "type": "Node"}}
		}))
		later(time.Minute)
		object, n := w.server.state()
		if n != 1 || w.pool() != "0-3" || object.GetLabels()[annotation.ManagedBy] != "nfd" {
			t.Errorf("%d writes, pool %q, label %q: want our annotations and their label", n, w.pool(),
				object.GetLabels()[annotation.ManagedBy])
		}
	})
}

func TestAWriterOfOneOfOurAnnotationsStopsTheAgent(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(w.server.change("other-manager", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{annotation.TopologyMode: "theirs"})
		}))
		nrt := topology("0-3")
		nrt.Annotations[annotation.TopologyMode] = "Own"
		w.set(nrt)
		later(time.Minute)
		if c := w.condition(); !strings.HasPrefix(c, "ForeignWriter") || !strings.Contains(c, "other-manager") {
			t.Errorf("condition = %q, want ForeignWriter that names the manager", c)
		}
		if w.pool() != "" {
			t.Errorf("pool = %q, want nothing written", w.pool())
		}
		w.server.remove()
		w.reporter.Observe(nil)
		later(2 * time.Minute)
		if w.pool() != "0-3" || w.condition() != "False" {
			t.Errorf("pool %q, condition %q once the other one is gone", w.pool(), w.condition())
		}
	})
}

func TestZonesRemainOursBesideAWriterOfAttributesAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
		t := w.t
		w.reporter.Observe(w.server.change("other-manager", func(u *unstructured.Unstructured) {
			u.Object["attributes"] = []any{map[string]any{"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001"}}
		}))
		later(time.Minute)
		object, _ := w.server.state()
		zones, _, _ := unstructured.NestedSlice(object.Object, "zones")
		attributes, _, _ := unstructured.NestedSlice(object.Object, "attributes")
		if len(zones) != 1 || len(attributes) != 1 || attributes[0].(map[string]any)["value"] != "pfp0v001" {
			t.Errorf("zones %v, attributes %v: want our zones, which the API requires, and their attributes", zones,
				attributes)
		}
	})
}

// TestForeignContentSurvivesEveryWrite: whatever happens in whatever order, a write of the agent changes no zone and no
// attribute that another program owns, and nothing is written twice.
func TestForeignContentSurvivesEveryWrite(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"ours", "theirs", "more", "leave", "wait", "restart"}), 3,
			14).Draw(rt, "steps")
		inWorld(t, v1alpha2.GroupVersion(), func(w *world) {
			t := w.t
			theirs := map[string]any{} // what the other program wrote last, by field
			check := func(step string) {
				object, _ := w.server.state()
				if object == nil {
					return
				}
				for field, want := range theirs {
					if diff := cmp.Diff(want, object.Object[field]); diff != "" {
						t.Fatalf("%v: after %q, %s of the other program (-want +got):\n%s", steps, step, field, diff)
					}
				}
			}
			w.reporter.Observe(nil)
			for i, step := range steps {
				switch step {
				case "ours":
					w.set(topology(strconv.Itoa(i)))
				case "theirs", "more":
					value := strconv.Itoa(i)
					if step == "more" && len(theirs) == 0 {
						continue
					}
					w.server.change("nfd-master", func(u *unstructured.Unstructured) {
						theirs["attributes"] = []any{map[string]any{"name": "a", "value": value}}
						u.Object["attributes"] = theirs["attributes"]
						if step == "theirs" {
							theirs["zones"] = []any{map[string]any{"name": "theirs-" + value, "type": "Node"}}
							u.Object["zones"] = theirs["zones"]
						}
					})
				case "leave":
					if len(theirs) == 0 {
						continue
					}
					clear(theirs)
					w.server.remove()
					w.reporter.Observe(nil)
				case "restart":
					object, _ := w.server.state()
					w.reporter.Observe(object)
				case "wait":
					later(time.Minute)
				}
				later(3 * time.Second)
				check(step)
			}
			later(5 * time.Minute)
			check("the end")
			n := w.applies()
			w.reporter.Changed()
			later(5 * time.Minute)
			if got := w.applies(); got != n {
				t.Fatalf("%v: %d writes while nothing changed", steps, got-n)
			}
		})
	})
}

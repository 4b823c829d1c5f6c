package report_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"

	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/testkit"
)

// numatopologyServer is an API server for Numatopologies: writes at an older version are conflicts, managedFields are
// the real ones.
type numatopologyServer struct {
	*server
	pruned bool // the definition is older and drops podAllocations
	writes int
}

func newNumatopologyServer(t *testing.T) *numatopologyServer {
	t.Helper()
	fields, err := managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), converter{},
		plain{}, plain{},
		nodeinfo.GroupVersion().WithKind("Numatopology"), nodeinfo.GroupVersion(), "", nil)
	testkit.Check(t, err)
	return &numatopologyServer{server: &server{fields: fields, gv: nodeinfo.GroupVersion()}}
}

func (s *numatopologyServer) Create(_ context.Context, object *unstructured.Unstructured, o metav1.CreateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	return s.put(object, o.FieldManager, true)
}

func (s *numatopologyServer) Update(_ context.Context, object *unstructured.Unstructured, o metav1.UpdateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	return s.put(object, o.FieldManager, false)
}

func (s *numatopologyServer) put(
	object *unstructured.Unstructured, manager string, create bool,
) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := nodeinfo.Resource().GroupResource()
	switch {
	case s.failures > 0:
		s.failures--
		return nil, apierrors.NewServiceUnavailable("the test says so")
	case create && s.object != nil:
		return nil, apierrors.NewAlreadyExists(resource, object.GetName())
	case !create && (s.object == nil || s.object.GetResourceVersion() != object.GetResourceVersion()):
		return nil, apierrors.NewConflict(resource, object.GetName(), nil)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(nodeinfo.GroupVersion().WithKind("Numatopology"))
	live.SetName(object.GetName())
	if s.object != nil {
		live = s.object.DeepCopy()
	}
	object = object.DeepCopy()
	if s.pruned {
		unstructured.RemoveNestedField(object.Object, "spec", "podAllocations")
	}
	out, err := s.fields.Update(live, object, manager)
	if err != nil {
		return nil, err
	}
	s.writes++
	return s.keep(out.(*unstructured.Unstructured)), nil
}

// foreign writes as another program does.
func (s *numatopologyServer) foreign(manager string, change func(*unstructured.Unstructured)) {
	s.mu.Lock()
	var u *unstructured.Unstructured
	create := s.object == nil
	if create {
		u = &unstructured.Unstructured{Object: map[string]any{}}
		u.SetGroupVersionKind(nodeinfo.GroupVersion().WithKind("Numatopology"))
		u.SetName("n0")
	} else {
		u = s.object.DeepCopy()
	}
	s.mu.Unlock()
	change(u)
	if _, err := s.put(u, manager, create); err != nil {
		panic(err)
	}
	s.mu.Lock()
	s.writes--
	s.mu.Unlock()
}

func (s *numatopologyServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// volcano is a NumatopologyReporter on a numatopologyServer, in a bubble of its own time.
type volcano struct {
	t        *testing.T
	server   *numatopologyServer
	reporter *report.NumatopologyReporter

	mu        sync.Mutex
	source    *nodeinfo.Numatopology
	condition string
}

func (v *volcano) setConflict(_ context.Context, holds bool, reason, message string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.condition = "False"
	if holds {
		v.condition = reason + ": " + message
	}
	return nil
}

func inVolcano(t *testing.T, play func(*volcano)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := &volcano{t: t, server: newNumatopologyServer(t), source: numatopology("0-3")}
		v.reporter = report.NewNumatopology(report.Target{
			Objects: v.server, Node: "n0", Clock: clock.RealClock{}, SetConflict: v.setConflict,
		}, func() *nodeinfo.Numatopology {
			v.mu.Lock()
			defer v.mu.Unlock()
			return v.source
		})
		v.server.onWrite = v.reporter.Observe
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- v.reporter.Run(ctx) }()
		play(v)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func numatopology(free string) *nodeinfo.Numatopology {
	o := &nodeinfo.Numatopology{}
	o.APIVersion, o.Kind, o.Name = nodeinfo.GroupVersion().String(), "Numatopology", "n0"
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n0", UID: "node-uid"}}
	o.Spec = nodeinfo.NumatopoSpec{
		Policies:    map[string]string{"CPUManagerPolicy": "none"},
		ResReserved: map[string]string{"cpu": "0"},
		NumaResMap:  map[string]nodeinfo.ResourceInfo{"cpu": {Allocatable: free, Capacity: 4}},
		CPUDetail:   map[string]nodeinfo.CPUInfo{"0": {}, "1": {CoreID: 1}},
		PodAllocations: []nodeinfo.PodAllocation{{
			UID: "u", Namespace: "d", Name: "p",
			ContainerAllocations: []nodeinfo.ContainerAllocation{
				{Name: "c", Allocations: map[string]string{"cpu": "2"}},
			},
		}},
	}
	return o
}

func (v *volcano) set(o *nodeinfo.Numatopology) {
	v.mu.Lock()
	v.source = o
	v.mu.Unlock()
	v.reporter.Changed()
}

func (v *volcano) reported() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.condition
}

func (v *volcano) free() string {
	object, _ := v.server.state()
	if object == nil {
		return "no object"
	}
	text, _, _ := unstructured.NestedString(object.Object, "spec", "numares", "cpu", "allocatable")
	return text
}

func (v *volcano) timestamp() string {
	object, _ := v.server.state()
	return object.GetAnnotations()["timestamp"]
}

func TestNumatopologyIsWrittenOnlyWhenItChangesAndWithEveryZero(t *testing.T) {
	t.Parallel()
	inVolcano(t, func(v *volcano) {
		t := v.t
		v.reporter.Changed()
		later(time.Minute)
		if n := v.server.count(); n != 0 {
			t.Fatalf("%d writes before the API was read", n)
		}
		v.reporter.Observe(nil)
		later(2 * time.Second)
		object, _ := v.server.state()
		zero, _, _ := unstructured.NestedMap(object.Object, "spec", "cpuDetail", "0")
		if diff := cmp.Diff(map[string]any{"numa": int64(0), "socket": int64(0), "core": int64(0)}, zero); diff != "" {
			t.Errorf("CPU 0 (-want +got):\n%s", diff)
		}
		if owners := object.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != "node-uid" {
			t.Errorf("owners = %+v", owners)
		}
		first := v.timestamp()
		for range 20 {
			v.reporter.Changed()
			later(time.Minute)
		}
		if n := v.server.count(); n != 1 || v.timestamp() != first || first == "" {
			t.Errorf("%d writes of one content, timestamp %q and %q", n, first, v.timestamp())
		}
		v.set(numatopology("0-2"))
		later(2 * time.Second)
		if v.free() != "0-2" || v.timestamp() == first || v.server.count() != 2 {
			t.Errorf("free %q, timestamp %q after %q, %d writes", v.free(), v.timestamp(), first, v.server.count())
		}
	})
}

func TestNumatopologyOfAnOlderDefinitionIsNotWrittenAgainAndAgain(t *testing.T) {
	t.Parallel()
	inVolcano(t, func(v *volcano) {
		t := v.t
		v.server.pruned = true
		v.reporter.Observe(nil)
		later(2 * time.Second)
		for range 5 {
			v.reporter.Changed()
			later(time.Minute)
		}
		if n := v.server.count(); n != 1 {
			t.Errorf("%d writes though the API drops podAllocations, want one", n)
		}
	})
}

func TestNumatopologyWriteThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	inVolcano(t, func(v *volcano) {
		t := v.t
		v.reporter.Observe(nil)
		later(2 * time.Second)
		v.server.mu.Lock()
		v.server.failures = 4
		v.server.mu.Unlock()
		v.set(numatopology("0-1"))
		later(time.Minute)
		if v.free() != "0-1" || v.server.count() != 2 {
			t.Errorf("free %q after %d writes, want 0-1 after two that succeeded", v.free(), v.server.count())
		}
	})
}

func TestLiveExporterIsLeftAloneAndADeadOneIsReplaced(t *testing.T) {
	t.Parallel()
	inVolcano(t, func(v *volcano) {
		t := v.t
		exporter := func(free string) {
			v.server.foreign("resource-exporter", func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{"theirs": "kept"})
				u.Object["spec"] = map[string]any{
					"numares":     map[string]any{"cpu": map[string]any{"allocatable": free, "capacity": int64(4)}},
					"cpuDetail":   map[string]any{"7": map[string]any{"core": int64(3)}},
					"resReserved": map[string]any{"cpu": "2", "memory": "500Mi"},
				}
			})
		}
		for i := range 5 {
			exporter("0-" + string(rune('3'+i)))
			later(30 * time.Second)
			if v.server.count() != 0 || !strings.HasPrefix(v.reported(), "ForeignWriter") ||
				!strings.Contains(v.reported(), "resource-exporter") {
				t.Fatalf("%d writes beside a live exporter, condition %q", v.server.count(), v.reported())
			}
		}
		later(2 * time.Minute)
		if v.free() != "0-3" || v.reported() != "False" {
			t.Errorf("free %q, condition %q after the exporter stopped, want ours and none", v.free(), v.reported())
		}
		object, _ := v.server.state()
		details, _, _ := unstructured.NestedMap(object.Object, "spec", "cpuDetail")
		reserved, _, _ := unstructured.NestedMap(object.Object, "spec", "resReserved")
		if _, stale := details["7"]; stale || len(reserved) != 1 || object.GetLabels()["theirs"] != "kept" {
			t.Errorf("cpuDetail %v, resReserved %v, labels %v: want nothing stale in the spec, and the rest kept",
				details, reserved, object.GetLabels())
		}
		n := v.server.count()
		exporter("0-1")
		later(30 * time.Second)
		if v.free() != "0-1" || v.server.count() != n || !strings.HasPrefix(v.reported(), "ForeignWriter") {
			t.Errorf("free %q, condition %q after the exporter came back", v.free(), v.reported())
		}
	})
}

func TestEditOfANumatopologyByHandIsPutRight(t *testing.T) {
	t.Parallel()
	inVolcano(t, func(v *volcano) {
		t := v.t
		v.reporter.Observe(nil)
		later(2 * time.Second)
		v.server.foreign("kubectl-edit", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "9", "spec", "numares", "cpu", "allocatable")
		})
		later(5 * time.Second)
		if v.free() != "0-3" || v.reported() != "False" {
			t.Errorf("free %q, condition %q", v.free(), v.reported())
		}
		v.server.remove()
		v.reporter.Observe(nil)
		later(5 * time.Second)
		if v.free() != "0-3" {
			t.Errorf("free %q after a deletion", v.free())
		}
	})
}

func TestNothingIsPublishedForVolcanoWhileNothingIsKnown(t *testing.T) {
	t.Parallel()
	inVolcano(t, func(v *volcano) {
		v.set(nil)
		v.reporter.Observe(nil)
		later(time.Minute)
		if n := v.server.count(); n != 0 {
			v.t.Errorf("%d writes of nothing", n)
		}
	})
}

package app_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/testkit"
)

// newVolcanoWorld is a world whose agent publishes for Volcano too.
func newVolcanoWorld(t *testing.T, spec string) *world {
	t.Helper()
	w := newWorld(t, spec)
	w.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			v1alpha2.Resource(): "NodeResourceTopologyList", nodeinfo.Resource(): "NumatopologyList",
		})
	w.objects.PrependReactor("patch", "noderesourcetopologies", w.apply)
	w.options.Dynamic, w.options.PublishNumatopology = w.objects, true
	w.client.Resources = append(w.client.Resources, &metav1.APIResourceList{
		GroupVersion: nodeinfo.GroupVersion().String(), APIResources: []metav1.APIResource{{Name: "numatopologies"}},
	})
	return w
}

// numatopology returns the node's object; nil when there is none.
func (w *world) numatopology() *nodeinfo.Numatopology {
	w.t.Helper()
	o, err := w.objects.Tracker().Get(nodeinfo.Resource(), "", nodeName)
	if err != nil {
		return nil
	}
	got := &nodeinfo.Numatopology{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.(*unstructured.Unstructured).Object,
		got); err != nil {
		w.t.Fatal(err)
	}
	return got
}

func TestNumatopologyIsPublishedOnceItIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVolcanoWorld(t, "arm64-1s@static,reserved=0,restricted")
		w.label(annotation.TopologyMode, "Follow")
		api := w.behind(nodeinfo.GroupVersion())
		w.run(func(a *app.Agent) {
			later(time.Minute)
			if err := a.Ready(); err != nil || w.numatopology() != nil {
				t.Fatalf("before it is served: ready %v, object %+v", err, w.numatopology())
			}
			api.open(nodeinfo.GroupVersion())
			later(time.Minute)
			o := w.numatopology()
			if o == nil || o.Spec.Policies["TopologyManagerPolicy"] != "restricted" ||
				o.Spec.NumaResMap["cpu"].Allocatable != "1-63" ||
				o.Annotations["timestamp"] == "" || len(o.Spec.CPUDetail) != 64 {
				t.Fatalf("object = %+v", o)
			}
			p := pod("pinned", "", "2", "")
			w.create(p)
			w.state(
				`{"policyName":"static","defaultCpuSet":"0-4,7-63","entries":{"uid-pinned":{"main":"5-6"}},` +
					`"checksum":1}`)
			later(time.Minute)
			o = w.numatopology()
			if len(o.Spec.PodAllocations) != 1 || o.Spec.NumaResMap["cpu"].Allocatable != "1-4,7-63" {
				t.Fatalf("object with a pinned pod = %+v", o.Spec)
			}
			got := o.Spec.PodAllocations[0]
			if got.UID != "uid-pinned" || got.Namespace != "default" || got.Name != "pinned" ||
				got.ContainerAllocations[0].Allocations["cpu"] != "5-6" {
				t.Errorf("allocation = %+v", got)
			}
			stamp := o.Annotations["timestamp"]
			later(10 * time.Minute)
			if now := w.numatopology().Annotations["timestamp"]; now != stamp {
				t.Errorf("timestamp %s became %s while nothing changed", stamp, now)
			}
		})
	})
}

func TestNumatopologyIsNotPublishedUnasked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVolcanoWorld(t, "arm64-1s")
		w.options.PublishNumatopology = false
		w.run(func(*app.Agent) {
			later(5 * time.Minute)
			if o := w.numatopology(); o != nil {
				t.Errorf("published: %+v", o)
			}
		})
	})
}

// TestLiveExporterIsReportedOnTheNode: the condition that both publishers share holds while one of them is kept away.
func TestLiveExporterIsReportedOnTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVolcanoWorld(t, "arm64-1s")
		object := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"policies": map[string]any{"CPUManagerPolicy": "none"}},
		}}
		object.SetGroupVersionKind(nodeinfo.GroupVersion().WithKind("Numatopology"))
		object.SetName(nodeName)
		wrote := metav1.NewTime(time.Now())
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: "resource-exporter", Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: nodeinfo.GroupVersion().String(),
			Time:       &wrote, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:policies":{}}}`),
		}})
		testkit.Check(t, w.objects.Tracker().Create(nodeinfo.Resource(), object, ""))
		w.run(func(*app.Agent) {
			const kind = event.TopologyWriterConflict
			w.create(pod("lsr", "LSR", "2", "2-3")) // makes the other publisher write
			later(20 * time.Second)
			if w.condition(kind) != "True" || !strings.Contains(w.message(kind), `"resource-exporter"`) ||
				len(w.numatopology().Spec.CPUDetail) > 0 {
				t.Errorf("condition %q, %q; object %+v", w.condition(kind), w.message(kind), w.numatopology().Spec)
			}
			later(2 * time.Minute)
			if w.condition(kind) != "False" || len(w.numatopology().Spec.CPUDetail) != 64 {
				t.Errorf("a minute after the exporter's last write: condition %q, %d CPUs", w.condition(kind),
					len(w.numatopology().Spec.CPUDetail))
			}
		})
	})
}

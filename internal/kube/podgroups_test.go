package kube_test

import (
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
)

func publishedPodGroup(group, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": "PodGroup",
		"metadata": map[string]any{
			"name": name, "namespace": "n", "annotations": map[string]any{annotation.GangMode: "NonStrict"},
			"managedFields": []any{map[string]any{"manager": "m"}},
		},
		"spec":   spec,
		"status": map[string]any{"phase": "Running", "running": "many", "scheduled": int64(2)},
	}}
}

func TestPodGroupsOfEachGroupAreRead(t *testing.T) {
	t.Parallel()
	for _, group := range v1alpha1.Groups() {
		c, _ := client(t,
			publishedPodGroup(group, "a", map[string]any{
				"minMember": int64(3), "minResources": map[string]any{"cpu": "2"}, "scheduleTimeoutSeconds": int64(60),
			}),
			publishedPodGroup(group, "says-nothing", map[string]any{"minMember": nil}),
			publishedPodGroup(group, "odd", map[string]any{
				"minMember": "3", "minResources": map[string]any{"cpu": "1e-9999999"},
				"scheduleTimeoutSeconds": int64(1 << 31),
			}))
		i := kube.NewPodGroupInformer(c, group)
		start(t, i)
		type read struct {
			Min, CPUs int64
			Seconds   any
			Unread    []string
		}
		got := map[string]read{}
		for _, object := range i.GetStore().List() {
			g := object.(*v1alpha1.PodGroup)
			r := read{
				Min: int64(g.Spec.MinMember), CPUs: g.Spec.MinResources.Cpu().Value(),
				Unread: slices.Sorted(maps.Keys(g.Unread)),
			}
			if g.Spec.ScheduleTimeoutSeconds != nil {
				r.Seconds = *g.Spec.ScheduleTimeoutSeconds
			}
			got[g.Namespace+"/"+g.Name] = r
			if gvk := g.GroupVersionKind(); gvk.Group != group || gvk.Kind != "PodGroup" || g.ManagedFields != nil ||
				g.Annotations[annotation.GangMode] != "NonStrict" || g.Status.Phase != v1alpha1.PodGroupRunning ||
				g.Status.Scheduled != 2 {
				t.Errorf("%s of %s: read %+v", g.Name, group, g)
			}
		}
		want := map[string]read{
			"n/a": {3, 2, int32(60), nil}, "n/says-nothing": {},
			"n/odd": {Unread: []string{"spec.minMember", "spec.minResources", "spec.scheduleTimeoutSeconds"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", group, diff)
		}
	}
}

func TestPodGroupsThatAreNotInstalledYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := client(t, publishedPodGroup(v1alpha1.CommunityGroupName, "a", nil))
		var installed atomic.Bool
		server.hidden = func() bool { return !installed.Load() }
		i := kube.NewPodGroupInformer(c, v1alpha1.CommunityGroupName)
		start(t, i)
		if got := i.GetStore().List(); len(got) > 0 {
			t.Fatalf("got %v before the resource is served", got)
		}
		installed.Store(true)
		time.Sleep(time.Minute) //nolint:forbidigo // the clock is the bubble's
		synctest.Wait()
		if _, found, err := i.GetStore().GetByKey("n/a"); !found || err != nil {
			t.Errorf("the object is not found after its resource was installed: %v", err)
		}
	})
}

package app_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/testkit"
)

func (w *world) generation() int64 {
	w.t.Helper()
	r, _, err := annotation.ParseReport(w.published(annotation.ReportKey))
	testkit.Check(w.t, err)
	return r.Gen
}

func TestGenerationGoesOnAfterTheObjectWasDeletedWhileTheAgentWasDown(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		w.run(func(*app.Agent) {
			w.create(pod("lsr", "LSR", "2", "2-3"))
			later(time.Minute)
		})
		before := w.generation()
		testkit.Check(t, w.objects.Tracker().Delete(v1alpha2.Resource(), "", nodeName))
		w.create(pod("second", "LSR", "2", "4-5"))
		w.run(func(*app.Agent) { later(time.Minute) })
		if after := w.generation(); before < 2 || after != before+1 {
			t.Errorf("generation %d before and %d after, want one more", before, after)
		}
		w.file("var/lib/tenon-agent/report.json", "{torn")
		w.create(pod("third", "LSR", "2", "6-7"))
		w.run(func(*app.Agent) { later(time.Minute) })
		if after := w.generation(); after != before+2 {
			t.Errorf("generation %d after the file was torn, want that of the object and one more, %d", after, before+2)
		}
	})
}

// TestAgentStartsAnewWhenTheNewerVersionIsServed: not one write of v1alpha1 happens after that.
func TestAgentStartsAnewWhenTheNewerVersionIsServed(t *testing.T) {
	inWorld(t, "arm64-1s", func(t *testing.T, w *world) {
		old := v1alpha1.GroupVersion().WithResource("noderesourcetopologies")
		w.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{
				v1alpha2.Resource(): "NodeResourceTopologyList",
				old:                 "NodeResourceTopologyList",
			})
		versions := map[string]int{}
		w.objects.PrependReactor("patch", "noderesourcetopologies",
			func(action clienttesting.Action) (bool, runtime.Object, error) {
				versions[action.GetResource().Version]++
				return w.apply(action)
			})
		w.options.Dynamic = w.objects
		w.client.Resources = []*metav1.APIResourceList{{
			GroupVersion: v1alpha1.GroupVersion().String(),
			APIResources: []metav1.APIResource{{Name: "noderesourcetopologies"}},
		}, {
			GroupVersion: v1alpha2.GroupVersion().String(),
			APIResources: []metav1.APIResource{{Name: "noderesourcetopologies"}},
		}}
		api := w.behind(v1alpha2.GroupVersion())
		a, err := app.New(w.options)
		testkit.Check(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		later(time.Minute)
		if versions["v1alpha1"] != 1 || versions["v1alpha2"] != 0 {
			t.Fatalf("writes by version: %v, want one of v1alpha1", versions)
		}
		api.open(v1alpha2.GroupVersion())
		w.create(pod("lsr", "LSR", "2", "2-3"))
		later(time.Minute)
		select {
		case err := <-done:
			if !errors.Is(err, app.ErrOutdated) {
				t.Errorf("Run = %v, want %v", err, app.ErrOutdated)
			}
		default:
			t.Error("the agent goes on with v1alpha1")
		}
		if versions["v1alpha1"] != 1 {
			t.Errorf("writes by version: %v, want none of v1alpha1 after v1alpha2 was served", versions)
		}
	})
}

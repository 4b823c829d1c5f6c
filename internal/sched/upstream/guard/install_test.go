package guard

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/internal/sched/upstream/inside"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestEachPluginOfUpstreamIsGuarded: in the default profile no list of plugins and no Parallelizer is left out. Where
// upstream adds a list, it fails.
func TestEachPluginOfUpstreamIsGuarded(t *testing.T) {
	t.Parallel()
	notGuarded := []string{ // see doc.go; the queue has the first two
		"preEnqueuePlugins", "enqueueExtensions", "queueSortPlugins", "extenders",
		"placementFeasiblePlugins", "placementGeneratePlugins", "placementScorePlugins", "podGroupPostFilterPlugins",
	}
	schedulermetrics.Register()
	cfg, err := latest.Default()
	testkit.Check(t, err)
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	f, err := frameworkruntime.NewFramework(t.Context(), frameworkplugins.NewInTreeRegistry(), &cfg.Profiles[0],
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(claims{}),
		frameworkruntime.WithSnapshotSharedLister(schedulercache.NewEmptySnapshot()))
	testkit.Check(t, err)
	testkit.Check(t, New(func(...metrics.Registerable) {}, nil).Framework(f))
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		list, name := v.Field(i), v.Type().Field(i).Name
		if list.Kind() != reflect.Slice || !list.Type().Elem().Implements(reflect.TypeFor[fwk.Plugin]()) ||
			slices.Contains(notGuarded, name) {
			continue
		}
		if list.Len() == 0 && name != "permitPlugins" && name != "postBindPlugins" && name != "batchablePlugins" {
			t.Errorf("%s is empty in the default profile", name)
		}
		for k := range list.Len() {
			if p := list.Index(k).Elem().Type(); !strings.HasPrefix(p.String(), "*guard.") {
				t.Errorf("%s has %v", name, p)
			}
		}
	}
	plugins, err := inside.Field[map[string]fwk.Plugin](f, "pluginsMap")
	testkit.Check(t, err)
	kept := 0
	for name, p := range *plugins {
		v := reflect.ValueOf(p)
		if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
			continue
		}
		for i := range v.Elem().NumField() {
			field := v.Elem().Field(i)
			if field.Type() != reflect.TypeFor[fwk.Parallelizer]() {
				continue
			}
			kept++
			if d := *(*fwk.Parallelizer)(unsafe.Pointer(field.UnsafeAddr())); d != f.Parallelizer() {
				t.Errorf("%s divides its work by %T", name, d)
			}
		}
	}
	if _, guarded := f.Parallelizer().(parallelizer); !guarded || kept < 2 {
		t.Errorf("the profile has a %T, which %d plugins keep, want 2", f.Parallelizer(), kept)
	}
}

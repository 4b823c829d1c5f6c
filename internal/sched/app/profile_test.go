package app

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/sched/core"
	"github.com/tenon-project/tenon/internal/sched/coscheduling"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/reserving"
	"github.com/tenon-project/tenon/internal/sched/upstream/topologyspread"
	"github.com/tenon-project/tenon/internal/testkit"
)

// newFramework makes the first profile of cfg with every plugin that needs no DRA objects.
func newFramework(t *testing.T, cfg *config.KubeSchedulerConfiguration) framework.Framework {
	t.Helper()
	metrics.Register() // upstream's; the framework cannot do without
	registry := frameworkplugins.NewInTreeRegistry()
	store := kube.NewStore()
	o := core.Options{
		Clock: clock.RealClock{}, Metrics: core.NewMetrics(export, clock.RealClock{}),
		Accounts: accounts.Accounts{
			Nodes: store, Quotas: kube.NewQuotas(time.Now), Gangs: kube.NewGangs(),
			Reservations: kube.NewReservations(nil, time.Now), Loads: kube.NewLoads(),
		},
	}
	tracker := follow.NewTracker(store, o.Metrics.Follow, time.Now)
	testkit.Check(t, registry.Merge(core.Registry(&o, tracker)))
	profile := cfg.Profiles[0].DeepCopy()
	profile.Plugins.MultiPoint.Disabled = append(profile.Plugins.MultiPoint.Disabled,
		config.Plugin{Name: names.DynamicResources})
	var kept []config.Plugin
	for _, p := range profile.Plugins.MultiPoint.Enabled {
		if p.Name != names.DynamicResources {
			kept = append(kept, p)
		}
	}
	profile.Plugins.MultiPoint.Enabled = kept
	client := fake.NewClientset()
	f, err := frameworkruntime.NewFramework(t.Context(), registry, profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSnapshotSharedLister(cache.NewEmptySnapshot()),
	)
	testkit.Check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func namesOf(plugins []config.Plugin) []string {
	var out []string
	for _, p := range plugins {
		out = append(out, p.Name)
	}
	return out
}

func TestDefaultProfileIsUpstreamsWithOurPluginsInTheirPlaces(t *testing.T) {
	cfg, err := DefaultConfig(NewOptions().SchedulerNames)
	testkit.Check(t, err)
	upstream, err := latest.Default()
	testkit.Check(t, err)
	var want []string
	for _, name := range namesOf(upstream.Profiles[0].Plugins.MultiPoint.Enabled) {
		switch name {
		case names.PodTopologySpread:
			name = topologyspread.Name
		case names.DefaultPreemption:
			name = elasticquota.Name
		case names.DefaultBinder:
			want = append(want, nodenumaresource.Name, deviceshare.Name, coscheduling.Name, reserving.Name)
		}
		want = append(want, name)
	}
	if diff := cmp.Diff(want, namesOf(cfg.Profiles[0].Plugins.MultiPoint.Enabled)); diff != "" {
		t.Errorf("plugins of the default profile (-want +got):\n%s", diff)
	}
	var served []string
	for _, p := range cfg.Profiles {
		served = append(served, p.SchedulerName)
	}
	if diff := cmp.Diff(NewOptions().SchedulerNames, served); diff != "" {
		t.Errorf("scheduler names (-want +got):\n%s", diff)
	}
	made := newFramework(t, cfg).ListPlugins()
	if diff := cmp.Diff([]string{coscheduling.Name}, namesOf(made.QueueSort.Enabled)); diff != "" {
		t.Errorf("what sorts the queue (-want +got):\n%s", diff)
	}
	binders := made.Bind.Enabled
	inOrder := []string{nodenumaresource.Name, deviceshare.Name, reserving.Name, names.DefaultBinder}
	if diff := cmp.Diff(inOrder, namesOf(binders)); diff != "" {
		t.Errorf("binders (-want +got):\n%s", diff)
	}
}

// TestOurPluginsBindFirst in a profile of a file, where they come after those of the default profile.
func TestOurPluginsBindFirst(t *testing.T) {
	cfg, err := DefaultConfig([]string{SchedulerName})
	testkit.Check(t, err)
	multi := &cfg.Profiles[0].Plugins.MultiPoint
	at := slices.IndexFunc(multi.Enabled, func(e config.Plugin) bool { return e.Name == names.DefaultBinder })
	multi.Enabled = slices.Insert(slices.Delete(multi.Enabled, at, at+1), 0, config.Plugin{Name: names.DefaultBinder})
	bindFirst(cfg.Profiles)
	got := namesOf(newFramework(t, cfg).ListPlugins().Bind.Enabled)
	want := []string{nodenumaresource.Name, deviceshare.Name, reserving.Name, names.DefaultBinder}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("binders (-want +got):\n%s", diff)
	}
	cfg.Profiles[0].Plugins.Bind.Enabled = []config.Plugin{{Name: names.DefaultBinder}}
	if bindFirst(cfg.Profiles); len(cfg.Profiles[0].Plugins.Bind.Enabled) != 1 {
		t.Errorf("the order that a file names has changed to %v", cfg.Profiles[0].Plugins.Bind.Enabled)
	}
}

// One plugin without SignPlugin disables the reuse of results for the whole profile.
func TestEveryPluginOfTheDefaultProfileSigns(t *testing.T) {
	cfg, err := DefaultConfig(NewOptions().SchedulerNames)
	testkit.Check(t, err)
	f := newFramework(t, cfg)
	pod := testPod("plain")
	if got := f.SignPod(t.Context(), pod); len(got) == 0 {
		t.Error("a bare pod is not signed by the default profile")
	}
	bound := testPod("lsr")
	bound.Labels = map[string]string{"koordinator.sh/qosClass": "LSR"}
	a, b := f.SignPod(t.Context(), pod), f.SignPod(t.Context(), bound)
	if len(b) == 0 || string(a) == string(b) {
		t.Errorf("an LSR pod must be signed, and not like a plain pod: %s", b)
	}
}

var _ fwk.SignPlugin = (*nodenumaresource.Plugin)(nil)

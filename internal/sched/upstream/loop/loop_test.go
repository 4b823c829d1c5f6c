package loop

import (
	"testing"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// named is a profile, queue and extender that a test can recognize.
type (
	namedProfile struct {
		framework.Framework
		name string
	}
	namedQueue struct {
		podqueue.Queue
		name string
	}
	namedExtender struct {
		fwk.Extender
		name string
	}
)

// TestOf: layers replace the queue, the cache and the profiles after the parts were asked for.
func TestOf(t *testing.T) {
	t.Parallel()
	metrics.Register() // the cache cannot do without
	s := &Scheduler{
		Profiles: profile.Map{}, SchedulingQueue: namedQueue{name: "made"},
		Cache: cache.New(t.Context(), nil, false, false),
	}
	core := Of(s)
	if f := core.Profile("a"); f != nil {
		t.Errorf("profile %v of a name that no profile has", f)
	}
	pod := object.Pod("ns/p", object.On("n"))
	if got, err := core.Cached(pod); err == nil {
		t.Errorf("the cache has %v before it was added", got)
	}

	s.Profiles["a"] = namedProfile{name: "layered"}
	s.SchedulingQueue = namedQueue{name: "layered"}
	s.Extenders = []fwk.Extender{namedExtender{name: "e"}}
	s.Cache = cache.New(t.Context(), nil, false, false)
	if err := s.Cache.AddPod(klog.Background(), pod); err != nil {
		t.Fatal(err)
	}
	if f := core.Profile("a"); f.(namedProfile).name != "layered" {
		t.Errorf("profile %v", f)
	}
	if q := core.Queue(); q.(namedQueue).name != "layered" {
		t.Errorf("queue %v", q)
	}
	if e := core.Extenders(); len(e) != 1 || e[0].(namedExtender).name != "e" {
		t.Errorf("extenders %v", e)
	}
	if got, err := core.Cached(pod); err != nil || got.UID != pod.UID {
		t.Errorf("the cache has %v, %v", got, err)
	}
}

package deviceshare

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/occupancy"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// surveyed returns what reads the accounts and the CPUs of nodes, by name, of which each has two GPUs of a model.
func surveyed(t *testing.T, l *learner, models, cpus map[string]string) *survey {
	t.Helper()
	schedulermetrics.Register() // the cache's
	nodes := cache.New(t.Context(), nil, false, false)
	s := &survey{store: kube.NewStore(), learner: l, snapshot: snapshot.NewCopy(nodes), known: map[string]load{}}
	const device = `{"metadata":{"name":%q,"annotations":{%q:"Own"}},"spec":{"devices":[` +
		`{"type":"gpu","id":"0","minor":0,"health":true,"labels":{"node.koordinator.sh/gpu-model":%[3]q}},` +
		`{"type":"gpu","id":"1","minor":1,"health":true,"labels":{"node.koordinator.sh/gpu-model":%[3]q}}]}}`
	for name, n := range cpus {
		node := object.Node(name, nil, "cpu", n, "memory", "64Gi", "pods", "110")
		nodes.AddNode(klog.Background(), node)
		s.store.PutNode(node)
		if models[name] == "" {
			continue
		}
		d, err := kube.ReadDevice(fmt.Appendf(nil, device, name, annotation.DeviceModeKey, models[name]))
		testkit.Check(t, err)
		s.store.PutDevice(d)
	}
	return s
}

// TestGPUsAreValuedByTheFirstPods: no pod asks for less than 2 GPUs, and few have arrived since the first values.
func TestGPUsAreValuedByTheFirstPods(t *testing.T) {
	t.Parallel()
	l := newLearner()
	s := surveyed(t, l, map[string]string{"a": "X"}, map[string]string{"a": "64"})
	l.begin(none())
	lost := func() int64 { return s.nodes()[0].Lost }
	if got := lost(); got != 0 {
		t.Errorf("before the first pod, %d of 2 GPUs is unusable, want 0", got)
	}
	for range 3 {
		l.learn(fragment.Spec{MilliCPU: 1000, GPUs: 8, Milli: 1000}, none)
	}
	// One pod in four is the pod with one GPU that is expected at the start.
	if got := lost(); got < 1490 || got > 1510 || l.current().number != 1 {
		t.Errorf("after three pods with 8 GPUs, %d of 2 GPUs is unusable (generation %d), want 1500", got,
			l.current().number)
	}
}

// Of what is free, a pod that needs more CPUs than the node has, or more GPUs, can use nothing.
func TestWhatIsFreeAndCannotBeUsed(t *testing.T) {
	t.Parallel()
	l := newLearner()
	s := surveyed(t, l, map[string]string{"a": "X", "b": "X", "c": "Y"}, map[string]string{
		"a": "8", "b": "1", "c": "500m", "plain": "8",
	})
	free := []fragments{
		{Node: "a", Model: "X", GPUs: 2, Free: 2000},
		{Node: "b", Model: "X", GPUs: 2, Free: 2000, Stranded: []occupancy.Stranded{{Cause: "cpu", GPUs: 1}}},
		{Node: "c", Model: "Y", GPUs: 2, Free: 2000, Stranded: []occupancy.Stranded{{Cause: "cpu", GPUs: 2}}},
	}
	same := cmp.Comparer(slices.Equal[[]occupancy.Stranded])
	if diff := cmp.Diff(free, s.nodes(), same); diff != "" {
		t.Errorf("before the first pod (-want +got):\n%s", diff)
	}
	if l.latest != nil || len(l.models) != 0 {
		t.Error("a question has changed what is learnt")
	}
	l.demand.Count(fragment.Spec{MilliCPU: 1000, GPUs: 1, Milli: 1000})
	l.current()
	for i := range free {
		state := fragment.State{MilliCPU: []int64{8000, 1000, 500}[i], Free: []int64{1000, 1000}, Model: lastModel}
		free[i].Lost = fragment.Lost(l.demand.Specs(), state) / 1000
	}
	p := &Plugin{learner: l}
	for i, want := range free {
		cpus := []int64{8000, 1000, 500}[i]
		if got, gpus := p.Lost(s.store.View(want.Node), cpus); got != want.Lost || !gpus {
			t.Errorf("%s: %d of the free GPUs is unusable (has GPUs: %v), want %d", want.Node, got, gpus, want.Lost)
		}
	}
	if _, gpus := p.Lost(s.store.View("plain"), 8000); gpus {
		t.Error("a node without GPUs has some")
	}
	// Half of the demand needs 8 CPUs, the other half 1.
	if free[0].Lost != 0 || free[1].Lost < 900 || free[1].Lost > 1100 || free[2].Lost != 2000 {
		t.Errorf("FGD's measure of the nodes: %+v", free)
	}
	if diff := cmp.Diff(free, s.nodes(), same); diff != "" {
		t.Errorf("by values (-want +got):\n%s", diff)
	}
	s.store.PutPod(object.Pod("d/p", object.On("a"), object.Annotation(annotation.DeviceAllocatedKey,
		`{"gpu":[{"minor":1,"id":"1","resources":{"koordinator.sh/gpu-core":"30",`+
			`"koordinator.sh/gpu-memory-ratio":"40"}}]}`)))
	if got := s.nodes()[0]; got.Free != 1600 || got.Lost != 600 {
		t.Errorf("with a share in use: %+v, want 1600 free and 600 lost", got)
	}

	if n := s.node("b"); n == nil || n.GetAllocatable().GetMilliCPU() != 1000 || s.node("gone") != nil {
		t.Errorf("node b is %v, one that is gone %v", n, s.node("gone"))
	}
	service := endpoints(nil, nil, s.nodes)
	ask := func(may bool) string {
		text, err := json.Marshal(service.Endpoints[2].Answer(&http.Request{}, func(string) bool { return may }))
		testkit.Check(t, err)
		return string(text)
	}
	if got := ask(false); got != `{"models":[],"nodes":[]}` {
		t.Errorf("for a caller who may not read all pods: %s", got)
	}
	want := `{"models":[{"model":"X","gpus":4,"freeMilli":3600,"fragmentationMilli":` +
		fmt.Sprint(600+free[1].Lost) + `,"stranded":[{"cause":"cpu","gpus":1}]},` +
		`{"model":"Y","gpus":2,"freeMilli":2000,"fragmentationMilli":2000,"stranded":[{"cause":"cpu","gpus":2}]}],` +
		`"nodes":[{"node":"a","model":"X","gpus":2,"freeMilli":1600,"fragmentationMilli":600,"stranded":[]},`
	if got := ask(true); !strings.HasPrefix(got, want) {
		t.Errorf("fragmentation is %s, want %s…", got, want)
	}

	registry := basemetrics.NewKubeRegistry()
	testkit.Check(t, registry.CustomRegister(NewGauges(kube.NewStore(), &Plugin{survey: s})))
	families, err := registry.Gather()
	testkit.Check(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, label := range m.GetLabel() {
				key += " " + label.GetValue()
			}
			got[key] = m.GetGauge().GetValue()
		}
	}
	gauges := map[string]float64{
		"tenon_device_fragmentation_milli X": float64(600 + free[1].Lost), "tenon_device_fragmentation_milli Y": 2000,
		"tenon_device_stranded_gpus cpu X": 1, "tenon_device_stranded_gpus cpu Y": 2,
	}
	if !maps.Equal(got, gauges) {
		t.Errorf("metrics %v, want %v", got, gauges)
	}
}

// TestEqualNodesHaveTheLoadThatEachHasAlone: the load of one node without pods is that of equal ones, and of no others.
func TestEqualNodesHaveTheLoadThatEachHasAlone(t *testing.T) {
	t.Parallel()
	shared := 0
	rapid.Check(t, func(rt *rapid.T) {
		models, cpus := map[string]string{}, map[string]string{}
		for i := range rapid.IntRange(2, 6).Draw(rt, "nodes") {
			name := fmt.Sprint("n", i)
			models[name] = rapid.SampledFrom([]string{"X", "X", "Y"}).Draw(rt, "model")
			cpus[name] = rapid.SampledFrom([]string{"64", "64", "1"}).Draw(rt, "CPUs")
		}
		s := surveyed(t, newLearner(), models, cpus)
		for name := range models {
			switch rapid.IntRange(0, 5).Draw(rt, "other") {
			case 0:
				s.store.PutPod(object.Pod("d/"+name, object.On(name), object.Annotation(annotation.DeviceAllocatedKey,
					`{"gpu":[{"minor":1,"id":"1","resources":{"koordinator.sh/gpu-memory-ratio":"100"}}]}`)))
			case 1:
				s.store.PutNode(object.Node(name, map[string]string{annotation.GPUIsolationLabel: "a"}))
			case 2:
				s.store.RemoveDevice(name)
			}
		}
		s.nodes()
		seen := map[ledger.Idle]bool{}
		for name, got := range s.known {
			want, _ := occupancy.Of(got.account, got.room)
			if diff := cmp.Diff(want, got.Load); diff != "" {
				rt.Fatalf("node %s (-alone +got):\n%s", name, diff)
			}
			if id, idle := got.account.Idle(); idle && seen[id] {
				shared++
			} else {
				seen[id] = idle
			}
		}
	})
	if shared == 0 {
		t.Error("no two nodes are equal")
	}
}

package deviceshare

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// Meter measures the GPUs of clusters. It values what is free by the pods that it has counted, whichever of them a
// scheduler has tried, so that what different schedulers leave is comparable.
type Meter struct{ learner *learner }

// GPULoad is the state of all GPUs that Tenon allocates. Amounts are in thousandths of a GPU.
type GPULoad struct {
	// GPUs is their number, Used what pods have of them, and Lost the part of the rest that a counted pod cannot use.
	GPUs       int
	Used, Lost int64
}

// NewMeter returns a meter that has counted pods, for the GPUs of the nodes in a store.
func NewMeter(store *kube.Store, pods []*corev1.Pod) *Meter {
	l := newLearner()
	for _, name := range store.Nodes() {
		l.gpusOf(name, store.View(name))
	}
	counts, args := map[fragment.Spec]int64{}, convert.Args{Devices: true, Kinds: store.Kinds().Load()}
	for _, pod := range pods {
		if r, refused, _ := convert.Request(pod, args); refused.OK() {
			counts[l.demandOf(r.Devices, convert.MilliCPU(pod), 0)]++
		}
	}
	l.begin(fragment.Supply{})
	for spec, n := range counts {
		l.asked = append(l.asked, fragment.Weighted{Spec: spec, Weight: n})
	}
	return &Meter{l}
}

// Watch returns a function that measures the nodes in a cache.
func (m *Meter) Watch(c snapshot.Cache, store *kube.Store) func() GPULoad {
	s := &survey{store: store, learner: m.learner, snapshot: snapshot.NewCopy(c), known: map[string]load{}}
	return func() (sum GPULoad) {
		for _, n := range s.nodes() {
			sum.GPUs += n.GPUs
			sum.Used += int64(n.GPUs)*fragment.Whole - n.Free
			sum.Lost += n.Lost
		}
		return sum
	}
}

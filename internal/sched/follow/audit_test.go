package follow

import (
	"testing"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// What one comparison finds may be an event on its way; what the next one finds too is repaired.
func TestADifferenceThatStaysIsRepaired(t *testing.T) {
	t.Parallel()
	pod := object.Pod("p", object.UID("u"), object.On("n"), object.Class("LSR"), object.CPUs("0-1"),
		object.Annotation(annotation.DeviceAllocatedKey,
			`{"gpu":[{"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"50"}}]}`))
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := known.Add(pod); err != nil {
		t.Fatal(err)
	}
	store := kube.NewStore()
	a := &auditor{account: store, pods: corelisters.NewPodLister(known)}
	for i, step := range []struct {
		forget bool // the account loses the pod
		want   int
	}{{want: 0}, {want: 1}, {want: 0}, {forget: true, want: 0}, {want: 1}, {want: 0}} {
		if step.forget {
			store.RemovePod(pod)
		}
		if got := a.repair(); len(got) != step.want || len(got) == 1 && !got[0].Devices {
			t.Errorf("step %d: repaired %v, want %d", i, got, step.want)
		}
		if _, held := store.View("n").Entry("u"); held != (i != 0 && i != 3) {
			t.Errorf("step %d: the account has the pod: %t", i, held)
		}
	}
}

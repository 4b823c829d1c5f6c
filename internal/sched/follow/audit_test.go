package follow

import (
	"strings"
	"testing"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// What one comparison finds may be an event on its way; what the next one finds too is repaired.
func TestADifferenceThatStaysIsRepaired(t *testing.T) {
	t.Parallel()
	pod := object.Pod("p", object.UID("u"), object.On("n"), object.Class("LSR"), object.CPUs("0-1"),
		object.Annotation(annotation.DeviceAllocatedKey,
			`{"gpu":[{"id":"GPU-a","resources":{"koordinator.sh/gpu-core":"50"}}]}`))
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	testkit.Check(t, known.Add(pod))
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

// TestAnOvercommittedNUMANodeIsReportedOnce: when two audits in a row find the debt, and again after it was settled.
func TestAnOvercommittedNUMANodeIsReportedOnce(t *testing.T) {
	t.Parallel()
	f := ledger.Facts{
		Machine: grid.Machine{Sockets: 2, Cores: 4}.Build(t),
		Amounts: []align.Amount{{NUMAID: 1, Resource: "memory", N: 128 << 30}},
	}
	pods := func(gibi int64) *ledger.View {
		return ledger.New(f, ledger.Entry{
			UID: "u", Role: qos.SharedPool, NUMAIDs: []int{1},
			Amounts: []align.Amount{{NUMAID: 1, Resource: "memory", N: gibi << 30}},
		}).View()
	}
	v := pods(0)
	a := debtAudit{view: func(string) *ledger.View { return v }}
	const debt = "NUMA node 1: pods hold 140Gi of memory, it has 128Gi"
	for i, step := range []struct {
		gibi int64
		want string
	}{{128, ""}, {140, ""}, {140, debt}, {140, ""}, {100, ""}, {140, ""}, {140, debt}} {
		v = pods(step.gibi)
		if got := strings.Join(a.fresh([]string{"n"})["n"], "; "); got != step.want {
			t.Errorf("step %d: reported %q, want %q", i, got, step.want)
		}
	}
}

package follow

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/quota"
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
	a := &auditor{
		account: store, pods: corelisters.NewPodLister(known), reserved: kube.NewReservations(nil, time.Now),
	}
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

// TestReservationsDoNotDifferFromTheAccounts: no pod of the API server holds the CPUs and counts in the quota.
func TestReservationsDoNotDifferFromTheAccounts(t *testing.T) {
	t.Parallel()
	store, quotas := kube.NewStore(), kube.NewQuotas(time.Now)
	testkit.Check(t, quotas.Configure(quota.Config{}, quota.Rules{}))
	reserved := kube.NewReservations(nil, time.Now)
	reserved.Deliver(kube.Handler(store.PutPod, store.RemovePod))
	reserved.Deliver(kube.Handler(quotas.PutPod, quotas.RemovePod))
	template := object.Pod("t", object.Class("LSR"), object.Both("cpu", "4"))
	reserved.Put(&v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{
			Name: "r", UID: "u", Annotations: map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-3"}`},
		},
		Spec: v1alpha1.ReservationSpec{
			Owners:   []v1alpha1.ReservationOwner{{Object: &corev1.ObjectReference{Name: "p"}}},
			Template: &corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec},
		},
		Status: v1alpha1.ReservationStatus{NodeName: "n", Phase: v1alpha1.ReservationAvailable},
	})
	if _, held := store.View("n").Entry("u"); !held {
		t.Fatal("the Reservation holds nothing")
	}
	known := corelisters.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
	for name, account := range map[string]account{"nodes": store, "quotas": quotas} {
		a := &auditor{account: account, pods: known, reserved: reserved}
		for range 3 {
			if got := a.repair(); len(got) > 0 {
				t.Errorf("the account of %s was repaired: %+v", name, got)
			}
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

package app

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestQuotasAreRevokedAsGangsAreEvicted: what a PodGroup says counts, though no pod says it.
func TestQuotasAreRevokedAsGangsAreEvicted(t *testing.T) {
	t.Parallel()
	store, gangs := kube.NewQuotas(time.Now), kube.NewGangs()
	testkit.Check(t, store.Configure(quota.Config{}, quota.Rules{}))
	testkit.Check(t, gangs.Configure(gang.Settings{}, convert.DefaultGangRules()))
	gangs.Inform(store.SetGang)
	for _, name := range []string{"a", "b", "c"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		p.Spec.NodeName, p.Spec.SchedulingGroup = "n", &corev1.PodSchedulingGroup{PodGroupName: new("g")}
		store.PutPod(p)
		gangs.PutPod(p)
	}
	own := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}}
	own.SetGroupVersionKind(v1alpha1.PodGroupResource(v1alpha1.NativeGroupName).GroupVersion().WithKind("PodGroup"))
	for name, c := range map[string]struct {
		change func(*v1alpha1.PodGroup)
		want   map[string]*quota.Gang
	}{
		"a minimum": {
			func(g *v1alpha1.PodGroup) { g.Spec.MinMember = 2 }, map[string]*quota.Gang{"ns/g": {Bond: gang.Bond{Least: 2, Group: "ns/g"}, Bound: 3}},
		},
		"together": {
			func(g *v1alpha1.PodGroup) { g.Spec.MinMember, g.Whole = 2, true },
			map[string]*quota.Gang{"ns/g": {Bond: gang.Bond{Least: 2, Whole: true, Group: "ns/g"}, Bound: 3}},
		},
		"one by one": {
			func(g *v1alpha1.PodGroup) { g.Basic = true },
			map[string]*quota.Gang{"ns/g": {Bond: gang.Bond{Plain: true, Group: "ns/g"}, Bound: 3}},
		},
	} {
		g := own.DeepCopy()
		c.change(g)
		gangs.PutGroup(g)
		store.Read(func(a *quota.Account) {
			if diff := cmp.Diff(c.want, a.Gangs()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
}

// TestQuotasAreWrittenByTheLeaderAlone, and every replica answers about them: what does not say that it needs no leader
// is started once the lease is won.
//
// Q7: two replicas write before one is elected.
func TestQuotasAreWrittenByTheLeaderAlone(t *testing.T) {
	t.Parallel()
	needsLeader := func(r manager.Runnable) bool {
		l, says := r.(manager.LeaderElectionRunnable)
		return !says || l.NeedLeaderElection()
	}
	if !needsLeader(&leading{}) {
		t.Error("the controllers that write quotas and evict pods run without the lease")
	}
	if needsLeader(&cluster{}) {
		t.Error("the informers of a replica's webhooks wait for the lease")
	}
}

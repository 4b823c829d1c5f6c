package kube_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const restricted = `{"cpu":{"policy":"static","reserved":"0"},"topology":{"policy":"restricted"}}`

// kubeletOf is the topology of a node with the settings of its kubelet; pods are those of its report.
func kubeletOf(tb testing.TB, node string, m *topo.Machine, settings, mode string, gen int,
	pods ...string,
) *v1alpha2.NodeResourceTopology {
	t := topology(tb, node, m)
	t.Annotations[annotation.KubeletKey], t.Annotations[annotation.TopologyMode] = settings, mode
	t.Annotations[annotation.ReportKey] = fmt.Sprintf(`{"gen":%d}`, gen)
	t.Annotations[annotation.NUMAStateKey] = `{"pods":{` + strings.Join(pods, ",") + `}}`
	return t
}

func placed(uid, cpus string) string { return fmt.Sprintf(`%q:{"":{"cpus":%q}}`, uid, cpus) }

func versioned(name string) *corev1.Node {
	n := node(name, nil)
	n.Status.NodeInfo.KubeletVersion = "v1.36.3"
	return n
}

// following is a pod of two CPUs that is bound with a prediction; cpus "" is a pod that another scheduler bound.
func following(name, on string, gen int, cpus string) *corev1.Pod {
	p := pod(name, on, 2, "")
	p.Labels = nil
	if cpus != "" {
		p.Annotations[annotation.PredictedPlacementKey] = fmt.Sprintf(
			`{"model":"1.36","gen":%d,"containers":{"":{"cpus":%q}}}`, gen, cpus)
	}
	return p
}

func staysOf(v *ledger.View) []string {
	var out []string
	for _, s := range v.Tenancy().Assignments() {
		out = append(out, fmt.Sprintf("%s %s %v %s", s.UID, s.Source, s.Refused,
			fmt.Sprint(kubelet.HeldOf(v.Machine(), s.Placement))))
	}
	return out
}

// What kubelets gave, too, is a function of the last objects alone, whatever came in which order (L6 across the API).
func TestLiveKubeletsEqualARebuild(t *testing.T) {
	t.Parallel()
	big, small := machine(t, 2, 4), machine(t, 1, 4)
	seen, drawn := map[string]bool{}, 0
	rapid.Check(t, func(rt *rapid.T) {
		drawn++
		world := map[string]func(*kube.Store){}
		live := kube.NewStore()
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			name := fmt.Sprintf("n%d", rapid.IntRange(0, 1).Draw(rt, "node"))
			uid := fmt.Sprintf("p%d", rapid.IntRange(0, 4).Draw(rt, "pod"))
			var key string
			var event func(*kube.Store)
			switch rapid.IntRange(0, 7).Draw(rt, "kind") {
			case 0:
				key, event = "node/"+name, func(s *kube.Store) { s.PutNode(versioned(name)) }
			case 1:
				key, event = "node/"+name, func(s *kube.Store) { s.PutNode(node(name, nil)) }
			case 2, 3, 4:
				key = "topology/" + name
				m := rapid.SampledFrom([]*topo.Machine{big, big, small}).Draw(rt, "machine")
				settings := rapid.SampledFrom([]string{
					restricted, restricted, `{}`,
					`{"cpu":{"policy":"static"},"topology":{"policy":"best-effort"}}`,
				}).Draw(rt, "kubelet")
				mode := rapid.SampledFrom([]string{"Follow", "Own"}).Draw(rt, "mode")
				gen := rapid.IntRange(1, 3).Draw(rt, "gen")
				var pods []string
				for i := range 5 {
					if cpus := rapid.SampledFrom([]string{"", "", "1,9", "2-3", "5"}).Draw(rt, "reported"); cpus != "" {
						pods = append(pods, placed(fmt.Sprintf("p%d", i), cpus))
					}
				}
				event = func(s *kube.Store) { s.PutTopology(kubeletOf(t, name, m, settings, mode, gen, pods...)) }
			case 5:
				key, event = "pod/"+uid, func(s *kube.Store) { s.RemovePod(pod(uid, "", 2, "")) }
			default:
				key = "pod/" + uid
				gen, cpus := rapid.IntRange(0, 3).Draw(rt, "gen"),
					rapid.SampledFrom([]string{"", "1,9", "2,10", "40"}).Draw(rt, "predicted")
				event = func(s *kube.Store) { s.PutPod(following(uid, name, gen, cpus)) }
			}
			world[key] = event
			for range rapid.IntRange(1, 2).Draw(rt, "copies") {
				event(live)
			}
		}
		rebuilt := kube.NewStore()
		for _, k := range keysIn(rt, world) {
			world[k](rebuilt)
		}
		for i := range 2 {
			name := fmt.Sprintf("n%d", i)
			a, b := rebuilt.View(name), live.View(name)
			if !a.Equal(b) {
				rt.Fatalf("account of %s (-rebuilt +live):\n%s", name, cmp.Diff(staysOf(a), staysOf(b)))
			}
			for _, s := range b.Tenancy().Assignments() {
				seen[s.Source.String()] = true
			}
		}
		if rebuilt.AnyStaticKubelet() != live.AnyStaticKubelet() || rebuilt.AnyDevices() != live.AnyDevices() ||
			rebuilt.AnyMemoryManager() != live.AnyMemoryManager() {
			rt.Fatal("the cluster-wide counters differ from a rebuild's")
		}
	})
	for _, source := range []string{"reported", "predicted", "computed"} {
		if drawn >= 100 && !seen[source] { // a short run draws too few
			t.Errorf("never %s: the generator is too narrow", source)
		}
	}
}

func TestListenerIsNotifiedOnceOfEachOutcome(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	var notified []string
	s.SetListener(kube.Listener{
		Confirmed: func(node string, c tenancy.Confirmation) {
			notified = append(notified, fmt.Sprintf("%s on %s differs %t", c.UID, node, c.Difference != 0))
		},
		Left: func(node string, e ledger.Entry) { notified = append(notified, e.UID+" left "+node) },
	})
	m := machine(t, 2, 4)
	s.PutNode(versioned("n"))
	s.PutTopology(kubeletOf(t, "n", m, restricted, "Follow", 1))
	s.PutPod(following("before", "n", 1, "1,9"))
	s.PutTopology(kubeletOf(t, "n", m, restricted, "Follow", 2, placed("before", "1,9"))) // for a former leader
	s.MarkSynced()
	s.PutPod(following("right", "n", 2, "2,10"))
	s.PutPod(following("wrong", "n", 2, "3,11"))
	s.PutPod(following("foreign", "n", 0, ""))
	report := kubeletOf(t, "n", m, restricted, "Follow", 3, placed("before", "1,9"), placed("right", "2,10"),
		placed("wrong", "5,13"), placed("foreign", "6,14"))
	s.PutTopology(report)
	s.PutTopology(report)
	s.RemovePod(following("right", "n", 2, ""))
	plain := pod("plain", "", 2, "5-6")
	plain.Spec.NodeName = "m" // whose kubelet is not predicted
	s.PutPod(plain)
	s.RemovePod(plain)
	s.RemovePod(pod("outsider", "m", 2, ""))
	want := []string{"right on n differs false", "wrong on n differs true", "right left n", "plain left m"}
	if diff := cmp.Diff(want, notified); diff != "" {
		t.Errorf("notified (-want +got):\n%s", diff)
	}
}

func TestWhatARejectedPodLeavesIsHeldUntilReleased(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutNode(versioned("n"))
	s.PutTopology(kubeletOf(t, "n", machine(t, 1, 4), restricted, "Follow", 1))
	p := following("a", "n", 1, "1,5")
	s.PutPod(p)
	node, e, found := s.Holder("a")
	if !found || node != "n" {
		t.Fatalf("Holder = %s, %v", node, found)
	}
	free := s.View("n").Allocatable()
	s.RemovePod(p)
	s.Hold(node, e)
	s.RemovePod(p)
	if got := s.View("n").Allocatable(); got != free {
		t.Errorf("held: free CPUs %v, want %v", got, free)
	}
	if d := s.Differences(nil); d != nil {
		t.Errorf("what is held is not a contradiction: %v", d)
	}
	s.Release("n", "a")
	s.Release("n", "a")
	if got := s.View("n").Allocatable(); got.Len() != free.Len()+2 {
		t.Errorf("released: %d CPUs are free, want %d", got.Len(), free.Len()+2)
	}
}

func TestRejectionInformerKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	failed := func(name, reason string) *corev1.Pod {
		p := pod(name, "n", 2, "")
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, reason
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		return p
	}
	informer := kube.NewRejectionInformer(fake.NewClientset(failed("rejected", "TopologyAffinityError"),
		failed("crashed", "Error"), failed("full", "OutOfcpu")))
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("never synced")
	}
	for name, whole := range map[string]bool{"rejected": true, "full": true, "crashed": false} {
		obj, ok, err := informer.GetStore().GetByKey("default/" + name)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", name, ok, err)
		}
		got := obj.(*corev1.Pod)
		if kept := len(got.Spec.Containers) > 0; kept != whole || got.ManagedFields != nil || got.UID == "" {
			t.Errorf("%s is kept as a whole: %v, want %v; managed fields %v", name, kept, whole, got.ManagedFields)
		}
	}
}

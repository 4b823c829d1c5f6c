package topologyspread

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// newHandle is a framework without plugins over the objects.
func newHandle(t *testing.T, objects ...runtime.Object) fwk.Handle {
	t.Helper()
	metrics.Register() // upstream's; the framework cannot do without
	f, err := frameworkruntime.NewFramework(t.Context(), nil, nil,
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(fake.NewClientset(objects...), 0)),
		frameworkruntime.WithSnapshotSharedLister(cache.NewEmptySnapshot()))
	testkit.Check(t, err)
	return f
}

func newPlugin(t *testing.T, args runtime.Object, objects ...runtime.Object) *Plugin {
	t.Helper()
	h := newHandle(t, objects...)
	p, err := New(t.Context(), args, h)
	testkit.Check(t, err)
	stop := make(chan struct{})
	h.SharedInformerFactory().Start(stop)
	h.SharedInformerFactory().WaitForCacheSync(stop)
	t.Cleanup(func() { close(stop); h.SharedInformerFactory().Shutdown() })
	return p.(*Plugin)
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := object.Pod("p", object.Label("app", "a"))
	if change != nil {
		change(p)
	}
	return p
}

func ownedBy(kind string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "o", Controller: &yes}}
	}
}

func TestSpreadKeyHasAllThatTheScoreReads(t *testing.T) {
	owner := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "o"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
	}
	p := newPlugin(t, nil, owner)
	constrained := func(keys ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: "zone",
				MatchLabelKeys: keys,
			}}
		}
	}
	labelled := func(change func(*corev1.Pod)) *corev1.Pod {
		made := pod(change)
		made.Labels["other"] = "label"
		return made
	}
	elsewhere := pod(constrained())
	elsewhere.Namespace = "elsewhere"
	if key := p.SpreadKey(pod(nil)); key != "" {
		t.Errorf("a bare pod has the key %s", key)
	}
	owned := p.SpreadKey(pod(ownedBy("ReplicaSet")))
	if owned == "" || owned != p.SpreadKey(labelled(ownedBy("ReplicaSet"))) {
		t.Errorf("pods of a ReplicaSet have the keys %s and %s", owned, p.SpreadKey(labelled(ownedBy("ReplicaSet"))))
	}
	own := p.SpreadKey(pod(constrained()))
	if own != p.SpreadKey(labelled(constrained())) {
		t.Error("labels that no constraint reads are in the key")
	}
	if own == owned || own == p.SpreadKey(elsewhere) || own == p.SpreadKey(pod(constrained("other"))) ||
		p.SpreadKey(pod(constrained("other"))) == p.SpreadKey(labelled(constrained("other"))) {
		t.Error("pods with different scores have one key")
	}
	none := newPlugin(t, &config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting}, owner)
	if key := none.SpreadKey(pod(ownedBy("ReplicaSet"))); key != "" {
		t.Errorf("without default constraints the key is %s", key)
	}
}

// TestAReservePodSpreadsAsThePodsThatItIsFor: without the selector of their controller, both replicas of a workload
// could move to one node.
func TestAReservePodSpreadsAsThePodsThatItIsFor(t *testing.T) {
	owner := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "o"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
	}
	p := newPlugin(t, nil, owner)
	replica := pod(ownedBy("ReplicaSet"))
	controller := func(name, namespace string) v1alpha1.ReservationOwner {
		return v1alpha1.ReservationOwner{Controller: &v1alpha1.ReservationController{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, Namespace: namespace,
		}}
	}
	for name, c := range map[string]struct {
		owners []v1alpha1.ReservationOwner
		want   string
	}{
		"of its controller": {[]v1alpha1.ReservationOwner{controller("o", "default")}, p.SpreadKey(replica)},
		"of the first of two": {
			[]v1alpha1.ReservationOwner{{}, controller("o", "default"), controller("x", "default")},
			p.SpreadKey(replica),
		},
		"of one that is elsewhere": {[]v1alpha1.ReservationOwner{controller("o", "other")}, ""},
		"of pods by label":         {[]v1alpha1.ReservationOwner{{}}, ""},
	} {
		r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u"}}
		r.Spec.Owners, r.Spec.Template = c.owners, convert.SuccessorTemplate(replica)
		reserve := convert.PendingReservePod(r, "tenon-scheduler", false)
		if got := p.SpreadKey(reserve); got != c.want || !convert.IsReservePod(reserve) {
			t.Errorf("%s: the reserve pod spreads by %q, want %q", name, got, c.want)
		}
	}
}

func TestAllPodsAreSigned(t *testing.T) {
	p := newPlugin(t, nil)
	for _, change := range []func(*corev1.Pod){nil, ownedBy("ReplicaSet")} {
		if _, status := p.SignPod(t.Context(), pod(change)); !status.IsSuccess() {
			t.Errorf("got %s", status.Message())
		}
	}
}

func TestEverythingElseIsUpstreams(t *testing.T) {
	p := newPlugin(t, nil)
	if p.Name() != Name || p.PodTopologySpread.Name() != "PodTopologySpread" {
		t.Errorf("names: got %s over %s", p.Name(), p.PodTopologySpread.Name())
	}
}

func TestArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		args runtime.Object
		ok   bool
	}{
		"none":           {nil, true},
		"upstream's own": {&config.PodTopologySpreadArgs{DefaultingType: config.SystemDefaulting}, true},
		"of a file": {
			&runtime.Unknown{Raw: []byte(`{"defaultingType":"List","defaultConstraints":[]}`)},
			true,
		},
		"of a file, misspelt":      {&runtime.Unknown{Raw: []byte(`{"defaultingKind":"List"}`)}, false},
		"of a file, another value": {&runtime.Unknown{Raw: []byte(`{"defaultingType":"Some"}`)}, false},
		"of another plugin":        {&config.NodeAffinityArgs{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(t.Context(), tc.args, newHandle(t)); (err == nil) != tc.ok {
				t.Errorf("got %v, want accepted = %t", err, tc.ok)
			}
		})
	}
}

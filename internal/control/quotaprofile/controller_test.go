package quotaprofile_test

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	quotav1alpha1 "github.com/tenon-project/tenon/api/quota/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/quotaprofile"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// world is nodes, and an API server with profiles and quotas.
type world struct {
	t      *testing.T
	nodes  cache.Indexer
	client *fake.FakeDynamicClient
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		t, cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			quotav1alpha1.Resource():              "ElasticQuotaProfileList",
			v1alpha1.Resource(v1alpha1.GroupName): "ElasticQuotaList",
		}),
	}
}

// node is a ready node of a pool with 10 CPUs, 16 GiB and a GPU.
func (w *world) node(name, pool string, change func(*corev1.Node)) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
	n.Status.Allocatable = object.List("cpu", "10", "memory", "16Gi", "nvidia.com/gpu", "1")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if change != nil {
		change(n)
	}
	if err := w.nodes.Add(n); err != nil {
		w.t.Fatal(err)
	}
}

// profile is of the nodes of pool x, with a quota named top.
func (w *world) profile(change func(*quotav1alpha1.ElasticQuotaProfile)) {
	p := &quotav1alpha1.ElasticQuotaProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: "quota.koordinator.sh/v1alpha1", Kind: "ElasticQuotaProfile"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"},
		Spec: quotav1alpha1.ElasticQuotaProfileSpec{
			QuotaName: "top", QuotaLabels: map[string]string{"mine": "yes"},
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}},
		},
	}
	if change != nil {
		change(p)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.Resource(quotav1alpha1.Resource()).Namespace("team").Create(w.t.Context(),
		&unstructured.Unstructured{Object: content}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// quota returns the profile's quota, nil where there is none.
func (w *world) quota() *v1alpha1.ElasticQuota {
	u, err := w.client.Resource(v1alpha1.Resource(v1alpha1.GroupName)).Namespace("team").Get(w.t.Context(), "top",
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	q := &v1alpha1.ElasticQuota{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, q)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

// run runs a controller for as long as f runs.
func (w *world) run(f func()) {
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- quotaprofile.New(corelisters.NewNodeLister(w.nodes), w.client).Start(ctx) }()
	later(time.Second)
	f()
	stop()
	if err := <-done; err != nil {
		w.t.Errorf("Start = %v", err)
	}
}

func later(d time.Duration) { time.Sleep(d); synctest.Wait() } //nolint:forbidigo // the clock is the bubble's

func TestTheQuotaOfAProfileIsMadeAndFollowsItsNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node("a", "x", nil)
		w.node("b", "x", func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Status.Allocatable["cpu"] = resource.MustParse("12")
			n.Annotations = map[string]string{annotation.NodeReservation: `{"resources":{"cpu":"2"}}`}
		})
		w.node("other", "y", nil)
		w.node("late", "x", func(n *corev1.Node) {
			n.Status.Conditions[0] = corev1.NodeCondition{
				Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				LastTransitionTime: metav1.NewTime(time.Now().Add(-6 * time.Minute)),
			}
		})
		w.profile(func(p *quotav1alpha1.ElasticQuotaProfile) { p.Spec.ResourceRatio = new("0.9") })
		w.run(func() {
			q := w.quota()
			if q == nil {
				t.Fatal("no quota")
			}
			tree := q.Labels[annotation.QuotaTreeID]
			want := map[string]string{
				"mine": "yes", annotation.QuotaProfile: "p", annotation.QuotaIsRoot: "true",
				annotation.QuotaIsParent: "true", annotation.QuotaTreeID: tree,
			}
			if diff := cmp.Diff(want, q.Labels); diff != "" || tree == "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			want = map[string]string{
				annotation.QuotaTotal:         `{"cpu":"18","memory":"30923764531"}`, // 0.9 × 32 GiB, whole bytes
				annotation.QuotaUnschedulable: `{"cpu":"9","memory":"15461882265"}`,
			}
			if diff := cmp.Diff(want, q.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if q.Spec.Min.Cpu().String() != "18" || q.Spec.Max.Cpu().String() != "18" || len(q.Spec.Max) != 2 {
				t.Errorf("spec = %v", q.Spec)
			}

			w.node("c", "x", nil)
			w.change(func(u *unstructured.Unstructured) { // a user's own label stays, the profile's comes back
				labels := maps.Clone(u.GetLabels())
				labels["theirs"], labels["mine"] = "yes", "no"
				u.SetLabels(labels)
			})
			writes := len(w.client.Actions())
			later(10 * time.Second)
			q = w.quota()
			if got := q.Annotations[annotation.QuotaTotal]; got != `{"cpu":"27","memory":"46385646796"}` {
				t.Errorf("total = %s with a third node", got)
			}
			if q.Labels["theirs"] != "yes" || q.Labels["mine"] != "yes" || q.Labels[annotation.QuotaTreeID] != tree {
				t.Errorf("labels = %v", q.Labels)
			}
			later(time.Minute)
			patches := 0
			for _, a := range w.client.Actions()[writes:] {
				if a.GetVerb() == "patch" {
					patches++
				}
			}
			if patches != 1 {
				t.Errorf("%d patches for one change", patches)
			}
		})
	})
}

// change changes the quota as a user does.
func (w *world) change(f func(*unstructured.Unstructured)) {
	client := w.client.Resource(v1alpha1.Resource(v1alpha1.GroupName)).Namespace("team")
	u, err := client.Get(w.t.Context(), "top", metav1.GetOptions{})
	if err == nil {
		f(u)
		_, err = client.Update(w.t.Context(), u, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestAProfileSaysWhichResourcesAndWhichTree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node("a", "x", nil)
		w.profile(func(p *quotav1alpha1.ElasticQuotaProfile) {
			p.Annotations = map[string]string{
				annotation.QuotaResourceKeys: `["nvidia.com/gpu","koordinator.sh/gpu-core","absent"]`,
			}
			p.Labels = map[string]string{annotation.QuotaTreeID: "gpus"}
		})
		w.run(func() {
			q := w.quota()
			want := `{"absent":"0","koordinator.sh/gpu-core":"100","nvidia.com/gpu":"1"}`
			if got := q.Annotations[annotation.QuotaTotal]; got != want {
				t.Errorf("total = %s", got)
			}
			if got := q.Labels[annotation.QuotaTreeID]; got != "gpus" {
				t.Errorf("tree = %s", got)
			}
		})
	})
}

func TestAQuotaThatIsNotOfTheProfileIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node("a", "x", nil)
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1alpha1.Resource(v1alpha1.GroupName).GroupVersion().WithKind("ElasticQuota"))
		u.SetNamespace("team")
		u.SetName("top")
		if _, err := w.client.Resource(v1alpha1.Resource(v1alpha1.GroupName)).Namespace("team").Create(t.Context(), u,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.profile(nil)
		w.run(func() {
			if q := w.quota(); len(q.Labels) > 0 || len(q.Annotations) > 0 {
				t.Errorf("quota = %+v", q)
			}
		})
	})
}

func TestABadProfileMakesNoQuotaAndDisturbsNoOther(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*quotav1alpha1.ElasticQuotaProfile){
		"a ratio that is not a number": func(p *quotav1alpha1.ElasticQuotaProfile) {
			p.Spec.ResourceRatio = new("much")
		},
		"a negative ratio": func(p *quotav1alpha1.ElasticQuotaProfile) { p.Spec.ResourceRatio = new("-1") },
		"a selector that is not one": func(p *quotav1alpha1.ElasticQuotaProfile) {
			p.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Close"}}
		},
		"resource keys that are not a list": func(p *quotav1alpha1.ElasticQuotaProfile) {
			p.Annotations = map[string]string{annotation.QuotaResourceKeys: `{}`}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.node("a", "x", nil)
				w.profile(func(p *quotav1alpha1.ElasticQuotaProfile) {
					change(p)
					p.Name, p.Spec.QuotaName = "bad", "bad"
				})
				w.profile(nil)
				w.run(func() {
					quotas := w.client.Resource(v1alpha1.Resource(v1alpha1.GroupName))
					list, err := quotas.List(t.Context(), metav1.ListOptions{})
					if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "top" {
						t.Errorf("quotas = %v, %v; want top alone", list, err)
					}
				})
			})
		})
	}
}

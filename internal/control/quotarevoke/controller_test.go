package quotarevoke_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/quotarevoke"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const cpu = "cpu"

// world is a cluster of 100 CPUs with the quotas A and B, each with 50 of them guaranteed and a max of 100.
type world struct {
	t             *testing.T
	mu            sync.Mutex // held by the test, except while time passes
	account       *quota.Account
	pods, budgets cache.Indexer
	events        *events.FakeRecorder
	refuse        map[string]bool // pods that the Eviction API refuses to evict
	start         time.Time
	log           []string // evictions, with the seconds since the start
}

func newWorld(t *testing.T) *world {
	t.Helper()
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	w := &world{
		t: t, account: quota.NewAccount(quota.Config{ScaleMin: true}, quota.Rules{}),
		pods:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace),
		budgets: cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace),
		events:  events.NewFakeRecorder(1000), refuse: map[string]bool{}, start: time.Now(),
	}
	w.mu.Lock()
	w.account.SetNodes(amount.List{cpu: 100_000})
	for _, name := range []string{"A", "B"} {
		w.account.Set(quota.Spec{
			Name: name, Namespace: "team", Group: v1alpha1.GroupName,
			Min: amount.List{cpu: 50_000}, Max: amount.List{cpu: 100_000},
		})
	}
	return w
}

// add makes a pod of a quota that asks for CPUs; on a node, or rejected for lack of CPUs.
func (w *world) add(quotaName, name, node string, cpus int64, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := object.Pod("team/"+name, object.On(node))
	if node == "" {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/5 nodes are available: 5 Insufficient cpu.",
		}}
	}
	for _, c := range change {
		c(pod)
	}
	w.put(pod)
	p := convert.QuotaPod(pod, convert.PodAmounts(pod))
	p.Quota, p.Amounts = quotaName, amount.List{cpu: cpus * 1000}
	w.account.Put(p)
	return pod
}

func elasticQuota(group, namespace, name string) *v1alpha1.ElasticQuota {
	o := &v1alpha1.ElasticQuota{}
	o.SetGroupVersionKind(v1alpha1.Resource(group).GroupVersion().WithKind("ElasticQuota"))
	o.Namespace, o.Name = namespace, name
	return o
}

func (w *world) put(pod *corev1.Pod) {
	if err := w.pods.Update(pod); err != nil {
		w.t.Error(err)
	}
}

func (w *world) pod(name string) *corev1.Pod {
	object, exists, err := w.pods.GetByKey("team/" + name)
	if err != nil || !exists {
		return nil
	}
	return object.(*corev1.Pod)
}

// remove deletes a pod that is gone.
func (w *world) remove(name string) {
	if err := w.pods.Delete(w.pod(name)); err != nil {
		w.t.Error(err)
	}
	w.account.Remove(name)
}

// borrow makes A use all CPUs with ten pods, and a pod of B wait.
func (w *world) borrow() {
	for i := range 10 {
		w.add("A", fmt.Sprintf("a%d", i), "n0", 10)
	}
	w.add("B", "b0", "", 50)
}

func (w *world) react(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch a := action.(type) {
	case clienttesting.CreateAction:
		e := a.GetObject().(*policyv1.Eviction)
		pod := w.pod(e.Name)
		if pod == nil || *e.DeleteOptions.Preconditions.UID != pod.UID {
			return true, nil, apierrors.NewNotFound(corev1.Resource("pods"), e.Name)
		}
		if w.refuse[e.Name] {
			return true, nil, apierrors.NewTooManyRequestsError("Cannot evict pod as it would violate a budget.")
		}
		w.log = append(w.log, fmt.Sprintf("%s@%.0f", e.Name, time.Since(w.start).Seconds()))
		w.remove(e.Name)
		return true, e, nil
	case clienttesting.PatchAction:
		before, err := json.Marshal(w.pod(a.GetName()))
		if err != nil {
			return true, nil, err
		}
		after, err := strategicpatch.StrategicMergePatch(before, a.GetPatch(), corev1.Pod{})
		if err != nil {
			return true, nil, err
		}
		pod := &corev1.Pod{}
		if err := json.Unmarshal(after, pod); err != nil {
			return true, nil, err
		}
		w.put(pod)
		return true, pod, nil
	}
	return false, nil, nil
}

// run starts a controller for as long as f runs.
func (w *world) run(change func(*quotarevoke.Options), f func()) {
	w.t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("*", "pods", w.react)
	o := quotarevoke.Options{
		Delay: 2 * time.Minute, Interval: time.Second, Pods: corelisters.NewPodLister(w.pods),
		Read: func(f func(*quota.Account)) {
			w.mu.Lock()
			defer w.mu.Unlock()
			f(w.account)
		},
		Budgets: policylisters.NewPodDisruptionBudgetLister(w.budgets), Client: client, Events: w.events,
		Object:    elasticQuota,
		Evictions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evictions"}, []string{"outcome"}),
	}
	if change != nil {
		change(&o)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- quotarevoke.New(o).Start(ctx) }()
	f()
	stop()
	w.mu.Unlock()
	if err := <-done; err != nil {
		w.t.Errorf("Start = %v", err)
	}
	w.mu.Lock()
}

// at goes on to a time since the start.
func (w *world) at(d time.Duration) {
	w.mu.Unlock()
	time.Sleep(time.Until(w.start.Add(d))) //nolint:forbidigo // the clock is the bubble's
	synctest.Wait()
	w.mu.Lock()
}

// marked are the pods with the condition.
func (w *world) marked() string {
	var names []string
	for _, object := range w.pods.List() {
		pod := object.(*corev1.Pod)
		for _, c := range pod.Status.Conditions {
			if c.Type == quotarevoke.ConditionType && c.Status == corev1.ConditionTrue {
				names = append(names, pod.Name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// said returns the Events with a reason.
func (w *world) said(reason string) (notes []string) {
	for {
		select {
		case e := <-w.events.Events:
			if strings.Contains(e, " "+reason+" ") {
				notes = append(notes, e)
			}
		default:
			return notes
		}
	}
}

func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t)) })
}

func TestTheBorrowerReleasesWhatItsOwnerWaitsFor(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.borrow()
		w.run(nil, func() {
			w.at(90 * time.Second)
			if got := w.marked(); got != "a0 a1 a2 a3 a4" || len(w.log) > 0 {
				t.Errorf("before the delay is over, marked = %s, evicted = %v", got, w.log)
			}
			want := "Warning QuotaRevocationPlanned quota A uses more than its share (cpu used 100, goal 50, " +
				"predicted 50) and pod team/b0 of quota B waits for it; evicted in 2m0s unless the need ends"
			if got := w.said("QuotaRevocationPlanned"); len(got) != 5 || got[0] != want {
				t.Errorf("events = %q, want five, first %q", got, want)
			}
			w.at(5 * time.Minute)
			if got := strings.Join(w.log, " "); got != "a0@121 a1@122 a2@123 a3@124 a4@125" {
				t.Errorf("evicted = %s", got)
			}
			if got := w.marked(); got != "" {
				t.Errorf("marked in the end = %s", got)
			}
			records := w.said("QuotaRevocation")
			want = "Normal QuotaRevocation evicted team/a0: quota A uses more than its share (cpu used 100, goal 50, " +
				"predicted 50) and pod team/b0 of quota B waits for it"
			if len(records) != 5 || records[0] != want {
				t.Errorf("records = %q, want five, first %q", records, want)
			}
		})
	})
}

// Q19: an eviction is not cancelled when its plan is void.
func TestAPlanEndsWithTheNeed(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.borrow()
		w.run(nil, func() {
			w.at(122500 * time.Millisecond)
			if got := strings.Join(w.log, " "); got != "a0@121 a1@122" {
				t.Errorf("evicted = %s", got)
			}
			w.remove("b0")
			w.at(10 * time.Minute)
			if len(w.log) > 2 || w.marked() != "" {
				t.Errorf("evicted = %v, marked = %s after the claimant is gone", w.log, w.marked())
			}
			if got := w.said("QuotaRevocationCancelled"); len(got) != 3 {
				t.Errorf("events = %q, want one for each of the three pods that remain", got)
			}
		})
	})
}

// TestTheQuotaThatRefusesAPodNowCounts, and not the one that the pod's condition names: the scheduler does not write a
// refusal again that repeats.
func TestTheQuotaThatRefusesAPodNowCounts(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		all := amount.List{cpu: 100_000}
		w.account.Set(quota.Spec{Name: "P", Group: v1alpha1.GroupName, IsParent: true, Min: all, Max: all})
		for _, name := range []string{"A", "B"} {
			s := *w.account.Forest().Find(name).Spec()
			s.Parent = "P"
			w.account.Set(s)
		}
		w.borrow()
		w.pod("b0").Status.Conditions[0].Reason = "QuotaExceeded"
		w.pod("b0").Status.Conditions[0].Message = "Insufficient quotas, quotaName: B, runtime: cpu:40, used: cpu:0, " +
			"pod's request: cpu:50, exceedDimensions: [cpu], path: P/B"
		w.run(nil, func() {
			w.at(5 * time.Minute)
			if len(w.log) != 5 {
				t.Errorf("evicted = %v, want five pods of A: P refuses the pod, and B does no more", w.log)
			}
		})
	})
}

func TestAPodThatFitsNowhereClaimsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.borrow()
		w.pod("b0").Status.Conditions[0].Message = "0/5 nodes are available: 5 node(s) had untolerated taint(s)."
		w.run(nil, func() {
			w.at(5 * time.Minute)
			if len(w.log) > 0 || w.marked() != "" {
				t.Errorf("evicted = %v, marked = %s", w.log, w.marked())
			}
		})
	})
}

func TestARefusedEvictionTakesAnotherPod(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.borrow()
		w.refuse["a1"] = true
		w.run(nil, func() {
			w.at(4 * time.Minute)
			// a1 is refused at 122 s, so a5 is needed; it must be marked before it goes.
			if got := strings.Join(w.log, " "); got != "a0@121 a2@123 a3@124 a4@125 a5@126" {
				t.Errorf("evicted = %s", got)
			}
		})
	})
}

// Q8: revocation ignores a PodDisruptionBudget.
func TestABudgetThatIsExhaustedKeepsItsPods(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.borrow()
		if err := w.budgets.Add(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "all"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 0},
		}); err != nil {
			t.Fatal(err)
		}
		w.run(nil, func() {
			w.at(5 * time.Minute)
			if len(w.log) > 0 || w.marked() != "" {
				t.Errorf("evicted = %v, marked = %s", w.log, w.marked())
			}
			got := w.said("OveruseNotRevocable")
			if len(got) != 1 || !strings.Contains(got[0], "team/a0: BudgetExhausted, team/a1: BudgetExhausted") {
				t.Errorf("events = %q, want one that names the pods and why they remain", got)
			}
		})
	})
}

func TestADryRunWritesTheRecordAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.borrow()
		w.run(func(o *quotarevoke.Options) { o.DryRun = true }, func() {
			w.at(10 * time.Minute)
			if len(w.log) > 0 || w.marked() != "" {
				t.Errorf("evicted = %v, marked = %s", w.log, w.marked())
			}
			got := w.said("QuotaRevocation")
			want := "would evict team/a0, team/a1, team/a2, team/a3, team/a4: quota A"
			if len(got) != 1 || !strings.Contains(got[0], want) {
				t.Errorf("events = %q, want one that names the pods", got)
			}
		})
	})
}

// Q22: a storm of evictions.
func TestTheLimitOfAMinuteHolds(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.borrow()
		w.run(func(o *quotarevoke.Options) { o.Limits = quota.Limits{PerQuota: 2} }, func() {
			w.at(5 * time.Minute)
			if got := strings.Join(w.log, " "); got != "a0@121 a1@122 a2@181 a3@182 a4@241" {
				t.Errorf("evicted = %s", got)
			}
		})
	})
}

// A gang without one of its members is followed by the others, though the claimant has left: else it would run below
// its min.
func TestAGangThatBeganToGoGoesWhole(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		member := func(pod *corev1.Pod) {
			pod.Annotations["gang.scheduling.koordinator.sh/name"] = "g"
			pod.Annotations["gang.scheduling.koordinator.sh/min-available"] = "2"
		}
		w.add("A", "g0", "n0", 50, member)
		w.add("A", "g1", "n0", 50, member)
		w.add("B", "b0", "", 50)
		w.refuse["g1"] = true
		w.run(nil, func() {
			w.at(122500 * time.Millisecond)
			if got := strings.Join(w.log, " "); got != "g0@121" {
				t.Errorf("evicted = %s", got)
			}
			w.remove("b0")
			w.refuse["g1"] = false
			w.at(5 * time.Minute)
			if got := strings.Join(w.log, " "); got != "g0@121 g1@131" {
				t.Errorf("evicted = %s", got)
			}
		})
	})
}

func TestMarksOfAnEarlierLeaderEndWithTheirPlan(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.borrow()
		w.run(nil, func() { w.at(time.Minute) })
		if w.marked() == "" {
			t.Fatal("nothing is marked")
		}
		w.remove("b0")
		w.run(nil, func() {
			w.at(2 * time.Minute)
			if got := w.marked(); got != "" {
				t.Errorf("marked = %s", got)
			}
		})
	})
}

func TestANewLeaderWaitsForTheWholeDelay(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.borrow()
		w.run(nil, func() { w.at(time.Minute) })
		w.run(nil, func() {
			w.at(3*time.Minute + 1500*time.Millisecond)
			if got := strings.Join(w.log, " "); got != "a0@181" {
				t.Errorf("evicted = %s", got)
			}
		})
	})
}

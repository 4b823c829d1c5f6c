package kube_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func cpus(n int) corev1.ResourceList {
	return testobject.List("cpu", fmt.Sprint(n))
}

// gpus is n GPUs or a part of one, by one of their names.
func gpus(n int) corev1.ResourceList {
	name := []corev1.ResourceName{"cpu", "nvidia.com/gpu", "koordinator.sh/gpu", "kubernetes.io/gpu-memory"}[n%4]
	return corev1.ResourceList{name: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

// elastic is an ElasticQuota of the first group, with labels as key and value in turn.
func elastic(namespace, name string, least, most int, labels ...string) *v1alpha1.ElasticQuota {
	return testobject.Quota(namespace+"/"+name, cpus(least), cpus(most), labels...)
}

// asking is a pod that asks for CPUs and names a quota; bound where node is not empty.
func asking(name, quota, node string, n int) *corev1.Pod {
	p := testobject.Pod("x/"+name, testobject.On(node), testobject.Label(annotation.QuotaName, quota),
		testobject.Requests("cpu", fmt.Sprint(n)))
	p.Generation = generation(n)
	return p
}

// generation is that of a pod which asks for n CPUs: it changes with them.
func generation(n int) int64 { return int64(n) + 1 }

func sized(name string, n int) *corev1.Node {
	return testobject.Node(name, nil, "cpu", fmt.Sprint(n))
}

func report(t *testing.T, s *kube.Quotas, name string) quota.Report {
	t.Helper()
	r, known := s.Report(name)
	if !known {
		t.Fatalf("quota %s is not known", name)
	}
	return r
}

func clockAt() (now *time.Time, s *kube.Quotas) {
	now = new(time.Time)
	*now = time.Unix(1_800_000_000, 0)
	return now, kube.NewQuotas(func() time.Time { return *now })
}

func admit(s *kube.Quotas, uid string) *quota.Excess {
	return kube.Ask(s, func(a *quota.Account) *quota.Excess { return a.Admit(uid) })
}

// TestTheFirstQuotaFindsWhatIsThere: pods and reservations that came before any quota count from its first moment.
func TestTheFirstQuotaFindsWhatIsThere(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	s.PutNode(sized("n", 100))
	bound, waiting, reserved := asking("b", "team", "n", 10), asking("w", "team", "", 20), asking("r", "team", "", 30)
	for _, p := range []*corev1.Pod{bound, waiting, reserved, asking("gone", "team", "n", 5)} {
		s.PutPod(p)
	}
	s.RemovePod(asking("gone", "team", "n", 5))
	if x := s.Reserve("r"); x != nil {
		t.Fatal(x)
	}
	if x := s.Reserve("w"); x != nil {
		t.Fatal(x)
	}
	s.Update("w", func(a *quota.Account) { a.Release("w") })
	if s.Limits(waiting) {
		t.Error("a pod is limited without a quota")
	}
	s.PutQuota(elastic("x", "team", 10, 60))
	if !s.Limits(waiting) || s.Limits(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "y"}}) {
		t.Error("pods of the quota are limited, and no others")
	}
	r := report(t, s, "team")
	if r.Request["cpu"] != 60_000 || r.Used["cpu"] != 40_000 {
		t.Errorf("request %d and used %d milli-CPU, want 60000 and 40000", r.Request["cpu"], r.Used["cpu"])
	}
	if x := s.Reserve("w"); x != nil {
		t.Errorf("the last pod within max: %v", x)
	}
	s.PutPod(asking("late", "team", "", 1))
	if x := admit(s, "late"); x == nil || x.Quota != "team" {
		t.Errorf("one CPU above max: %v", x)
	}
}

// TestAPodOfAnotherSchedulerUsesNoQuotaThatItNames: no webhook checks its labels, so it counts in the quota of its
// namespace, else in the quota Default.
func TestAPodOfAnotherSchedulerUsesNoQuotaThatItNames(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	s.Trust(convert.NewSchedulers("tenon-scheduler"))
	s.PutNode(sized("n", 100))
	s.PutQuota(elastic("y", "team", 10, 60))
	s.PutQuota(elastic("x", "space", 10, 60))
	foreign, own := asking("f", "team", "n", 5), asking("o", "team", "n", 3)
	foreign.Spec.SchedulerName, own.Spec.SchedulerName = "volcano", "tenon-scheduler"
	elsewhere := asking("e", "team", "n", 7)
	elsewhere.Namespace, elsewhere.Spec.SchedulerName = "z", "volcano"
	for _, p := range []*corev1.Pod{foreign, own, elsewhere} {
		s.PutPod(p)
	}
	for name, want := range map[string]int64{"team": 3000, "space": 5000, quota.Default: 7000} {
		if got := report(t, s, name).Used["cpu"]; got != want {
			t.Errorf("quota %s uses %d milli-CPU, want %d", name, got, want)
		}
	}
}

func TestCountedNodes(t *testing.T) {
	t.Parallel()
	now, s := clockAt()
	total := func() int64 { return report(t, s, quota.Root).Runtime["cpu"] }
	ready := func(n *corev1.Node, status corev1.ConditionStatus) *corev1.Node {
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(*now),
		}}
		return n
	}
	expect := func(what string, want int64) {
		t.Helper()
		if got := total(); got != want*1000 {
			t.Errorf("%s: total %d milli-CPU, want %d CPUs", what, got, want)
		}
	}
	s.PutNode(sized("a", 10))
	cordoned := ready(sized("b", 20), corev1.ConditionTrue)
	cordoned.Spec.Unschedulable = true
	s.PutNode(cordoned)
	expect("a cordoned node counts", 30)
	s.PutNode(ready(sized("b", 20), corev1.ConditionUnknown))
	*now = now.Add(5*time.Minute - time.Second)
	s.Expire()
	expect("a node that is not ready counts for a while", 30)
	*now = now.Add(time.Second)
	s.Expire()
	s.Expire()
	expect("and then no more", 10)
	s.PutNode(ready(sized("b", 20), corev1.ConditionTrue))
	expect("until it is ready again", 30)
	reservedOn := sized("a", 10)
	reservedOn.Annotations = map[string]string{annotation.NodeReservation: `{"resources":{"cpu":"4"}}`}
	s.PutNode(reservedOn)
	expect("what is reserved on a node does not count", 26)
	leaving := sized("a", 10)
	leaving.DeletionTimestamp = &metav1.Time{Time: *now}
	s.PutNode(leaving)
	expect("a node that is being deleted does not count", 20)
	s.RemoveNode(leaving)
	late := ready(sized("c", 40), corev1.ConditionFalse)
	late.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
	s.PutNode(late)
	expect("after a restart the grace has long ended", 20)
	huge := sized("d", 0)
	huge.Status.Allocatable["vendor/unit"] = *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)
	for i := range 4 {
		huge.Name = fmt.Sprint("d", i)
		s.PutNode(huge.DeepCopy())
	}
	if got := report(t, s, quota.Root).Runtime["vendor/unit"]; got <= 0 {
		t.Errorf("the total of absurd nodes is %d", got)
	}
}

// TestTwoQuotasOfOneName: the oldest object counts, whatever the order in which they come.
//
// Q26: two quotas of one name clash.
func TestTwoQuotasOfOneName(t *testing.T) {
	t.Parallel()
	old, young := elastic("a", "team", 0, 10), elastic("b", "team", 0, 20)
	old.CreationTimestamp, young.CreationTimestamp = metav1.Unix(1, 0), metav1.Unix(2, 0)
	community := elastic("a", "team", 0, 30)
	community.APIVersion, community.CreationTimestamp = v1alpha1.CommunityGroupName+"/v1alpha1", metav1.Unix(2, 0)
	for _, order := range [][]*v1alpha1.ElasticQuota{
		{old, young, community},
		{young, community, old},
		{community, old, young},
	} {
		_, s := clockAt()
		for _, q := range order {
			s.PutQuota(q)
		}
		if got := report(t, s, "team").Max["cpu"]; got != 10_000 || len(s.Problems("team")) != 2 {
			t.Errorf("max %d of %q, want the oldest's and two problems", got, s.Problems("team"))
		}
		s.RemoveQuota(old)
		if got := report(t, s, "team").Max["cpu"]; got != 20_000 {
			t.Errorf("after its deletion max is %d, want that of the next", got)
		}
		s.RemoveQuota(young)
		s.RemoveQuota(community)
		if _, known := s.Report("team"); known || len(s.Problems("team")) != 0 {
			t.Error("the quota outlives its objects")
		}
	}
}

// TestProblemsBeginAndEndWithTheirCause, which may be another object.
func TestProblemsBeginAndEndWithTheirCause(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	under := func(name, parent string) *v1alpha1.ElasticQuota {
		return elastic("x", name, 0, 10, annotation.QuotaIsParent, "true", annotation.QuotaParent, parent)
	}
	expect := func(step, want string) {
		t.Helper()
		if got := strings.Join(s.Problems("child"), "; "); got != want {
			t.Errorf("%s: problems %q, want %q", step, got, want)
		}
	}
	const unknown = `quota "child": parent "top" does not exist; it counts under koordinator-root-quota`
	s.PutQuota(under("child", "top"))
	expect("a child without its parent", unknown)
	s.PutQuota(under("top", ""))
	expect("the parent comes", "")
	s.PutQuota(under("top", "child"))
	expect("a cycle", `quota "child": parent "top" is below it; it counts under koordinator-root-quota`)
	s.PutQuota(under("top", ""))
	expect("the cycle ends", "")
	s.RemoveQuota(under("top", ""))
	expect("the parent goes", unknown)
	s.RemoveQuota(under("child", "top"))
	expect("the quota goes", "")
}

func TestAParentWithPodsIsAProblem(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	s.PutQuota(elastic("x", "team", 0, 10, annotation.QuotaIsParent, "true"))
	if got := s.Problems("team"); len(got) != 0 {
		t.Errorf("problems without pods: %q", got)
	}
	s.PutPod(asking("p", "", "n", 1)) // of another namespace
	s.PutPod(asking("q", "team", "", 1))
	if got := s.Problems("team"); len(got) != 1 || !strings.Contains(got[0], "pods of its own, such as x/q") {
		t.Errorf("problems %q", got)
	}
}

func TestAnAnnotationThatCannotBeReadLeavesWhatItSaid(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	weight := func(text string) *v1alpha1.ElasticQuota {
		q := elastic("a", "team", 0, 10)
		q.Annotations = map[string]string{annotation.QuotaSharedWeight: text, annotation.QuotaNamespaces: `["y"]`}
		return q
	}
	s.PutQuota(weight(`{"cpu":"7"}`))
	s.PutQuota(weight(`{"cpu":`))
	if got, problems := report(t, s, "team").Weight["cpu"], s.Problems("team"); got != 7000 || len(problems) != 1 ||
		!strings.Contains(problems[0], annotation.QuotaSharedWeight) {
		t.Errorf("weight %d, problems %q; want 7000 and the annotation's name", got, problems)
	}
	if !s.Limits(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "y"}}) {
		t.Error("the list of namespaces is not read")
	}
	s.PutQuota(elastic("a", "team", 0, 10))
	if got := report(t, s, "team").Weight["cpu"]; got != 10_000 {
		t.Errorf("without the annotation weight is %d, want max", got)
	}
}

// TestALimitThatCannotBeReadStaysInForce: past the webhook, the API server accepts quantities that cannot be read.
func TestALimitThatCannotBeReadStaysInForce(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	put := func(least, most string) {
		q, err := kube.ReadQuota([]byte(`{"metadata":{"name":"team","namespace":"a"},` +
			`"spec":{"min":{"cpu":"` + least + `"},"max":{"cpu":"` + most + `"}}}`))
		testkit.Check(t, err)
		s.PutQuota(q)
	}
	put("1", "2")
	put("1e-9999999", "1e-9999999")
	if r := report(t, s, "team"); r.Min["cpu"] != 1000 || r.Max["cpu"] != 2000 {
		t.Errorf("min %v, max %v; want what was said last, 1000 and 2000", r.Min, r.Max)
	}
	if got := s.Problems("team"); len(got) != 2 || !strings.Contains(got[0], "a/team: spec.max: ") ||
		!strings.Contains(got[1], "a/team: spec.min: ") {
		t.Errorf("problems %q", got)
	}
	put("1", "3")
	if r, got := report(t, s, "team"), s.Problems("team"); r.Max["cpu"] != 3000 || len(got) != 0 {
		t.Errorf("max %v, problems %q", r.Max, got)
	}
}

// TestStatusDoesNotChangeAQuota: the leader writes status and annotations of a thousand quotas all the time.
func TestStatusDoesNotChangeAQuota(t *testing.T) {
	t.Parallel()
	q := elastic("x", "team", 0, 4)
	written := q.DeepCopy()
	written.ResourceVersion, written.Status.Used = "2", cpus(1)
	written.Annotations = map[string]string{annotation.QuotaRuntime: `{"cpu":"1"}`}
	if !kube.SameQuota(q, written) {
		t.Error("a change of status is one to the account")
	}
	weight := func(text string) func(*v1alpha1.ElasticQuota) {
		return func(q *v1alpha1.ElasticQuota) { q.Annotations[annotation.QuotaSharedWeight] = text }
	}
	for what, change := range map[string]func(*v1alpha1.ElasticQuota){
		"max":                     func(q *v1alpha1.ElasticQuota) { q.Spec.Max = cpus(5) },
		"a weight":                weight(`{"cpu":1}`),
		"a weight that is broken": weight(`{`),
		"the parent":              func(q *v1alpha1.ElasticQuota) { q.Labels[annotation.QuotaParent] = "p" },
		"another object":          func(q *v1alpha1.ElasticQuota) { q.UID = "2" },
	} {
		changed := written.DeepCopy()
		change(changed)
		if kube.SameQuota(q, changed) {
			t.Errorf("a change of %s is none to the account", what)
		}
	}
	delivered := 0
	w := cache.NewSharedIndexInformer(plain{&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &v1alpha1.ElasticQuotaList{Items: []v1alpha1.ElasticQuota{*q}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			f := watch.NewFake()
			go func() {
				larger := written.DeepCopy()
				larger.Spec.Max = cpus(6)
				f.Modify(written)
				f.Modify(larger)
			}()
			return f, nil
		},
	}}, &v1alpha1.ElasticQuota{}, 0, cache.Indexers{})
	_, s := clockAt()
	testkit.Check(t, s.Configure(quota.Config{}, quota.Rules{}))
	i := kube.First(kube.Handler(s.PutQuota, s.RemoveQuota), kube.Distinct(kube.SameQuota, w))
	changed := make(chan int64, 3)
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, updated any) {
		delivered++
		changed <- report(t, s, "team").Max["cpu"]
	}}); err != nil {
		t.Fatal(err)
	}
	start(t, i)
	if got := <-changed; got != 6000 || delivered != 1 {
		t.Errorf("%d updates; at the first the account has a max of %d, want the one that changes it", delivered, got)
	}
}

func TestANominationHoldsRoomAndItsEndIsReported(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	s.PutNode(sized("n", 100))
	s.PutQuota(elastic("x", "team", 0, 4))
	freed := 0
	s.OnFreed(func() { freed++ })
	nominated, other := asking("nominated", "team", "", 3), asking("other", "team", "", 2)
	nominated.Status.NominatedNodeName = "n"
	s.PutPod(nominated)
	s.PutPod(other)
	for name, end := range map[string]func(){
		"withdrawn": func() { s.Update(nominated.UID, func(a *quota.Account) { a.Withdraw(string(nominated.UID)) }) },
		"cleared in the API": func() {
			cleared := nominated.DeepCopy()
			cleared.Status.NominatedNodeName = ""
			s.PutPod(cleared)
		},
	} {
		s.Update(nominated.UID, func(a *quota.Account) { a.Nominate(string(nominated.UID)) })
		s.PutPod(nominated)
		x := admit(s, "other")
		if x == nil || freed != 0 {
			t.Fatalf("%s: beside a nominated pod: %v, %d reports", name, x, freed)
		}
		if end(); freed != 1 || admit(s, "other") != nil {
			t.Errorf("%s: %d reports, then %v", name, freed, admit(s, "other"))
		}
		freed = 0
	}
}

// TestANominationHoldsBeforeTheStatusSaysIt: an update of the pod that was on its way does not end it.
func TestANominationHoldsBeforeTheStatusSaysIt(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	s.PutNode(sized("n", 100))
	s.PutQuota(elastic("x", "team", 0, 4))
	pending := asking("pending", "team", "", 3)
	s.PutPod(pending)
	s.PutPod(asking("other", "team", "", 2))
	s.Update(pending.UID, func(a *quota.Account) { a.Nominate(string(pending.UID)) })
	said := pending.DeepCopy()
	said.Status.Conditions = append(said.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled})
	s.PutPod(said)
	if admit(s, "other") == nil {
		t.Error("another pod gets what is held")
	}
	named := said.DeepCopy()
	named.Status.NominatedNodeName = "n"
	s.PutPod(named)
	s.PutPod(said)
	if x := admit(s, "other"); x != nil {
		t.Errorf("when the status names no node any more: %v", x)
	}
	s.Update(pending.UID, func(a *quota.Account) { a.Nominate(string(pending.UID)) })
	bound := said.DeepCopy()
	bound.Spec.NodeName = "n"
	s.PutPod(bound)
	s.Read(func(a *quota.Account) {
		if m, _ := a.Find(string(pending.UID)); m.Nominated {
			t.Error("a bound pod is nominated")
		}
	})
}

func TestNoAccountIsKeptForProfilesWithoutThePlugin(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	put := func() {
		table := accounts.Accounts{Quotas: s}.Table()
		table.Put(sized("n", 8))
		table.Put(elastic("x", "team", 1, 4))
		table.Put(asking("p", "team", "n", 2))
	}
	put()
	if _, known := s.Report("team"); known || report(t, s, quota.Default).Used["cpu"] != 0 {
		t.Error("the account has what came before Configure")
	}
	_, s = clockAt()
	testkit.Check(t, s.Configure(quota.Config{}, quota.Rules{}))
	put()
	if got := report(t, s, "team"); got.Used["cpu"] != 2000 || got.Runtime["cpu"] != 2000 {
		t.Errorf("after Configure: %+v", got)
	}
}

// TestPodsAskForWhatTheSchedulerCounts is U9.
func TestPodsAskForWhatTheSchedulerCounts(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	s.PutQuota(elastic("x", "team", 0, 100))
	always := corev1.ContainerRestartPolicyAlways
	container := func(n int) corev1.Container {
		return corev1.Container{Name: fmt.Sprint("c", n), Resources: corev1.ResourceRequirements{Requests: cpus(n)}}
	}
	p := asking("p", "team", "", 3)
	sidecar := container(2)
	sidecar.RestartPolicy = &always
	p.Spec.InitContainers = []corev1.Container{sidecar, container(9)}
	p.Spec.Overhead = cpus(1)
	s.PutPod(p)
	if got := report(t, s, "team").Request["cpu"]; got != 12_000 {
		t.Errorf("request %d, want init 9 beside sidecar 2 and overhead 1", got)
	}
	resized := asking("p", "team", "n", 3)
	actual := cpus(5)
	resized.Spec.Containers[0].Name = "c"
	resized.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", AllocatedResources: actual, Resources: &corev1.ResourceRequirements{Requests: actual},
	}}
	s.PutPod(resized)
	if got := report(t, s, "team").Used["cpu"]; got != 5000 {
		t.Errorf("used %d while a pod shrinks from 5 CPUs to 3, want 5000", got)
	}
	s.PutPod(asking("p", "team", "n", 3))
	if got := report(t, s, "team").Used["cpu"]; got != 3000 {
		t.Errorf("used %d after a pod has shrunk from 5 CPUs to 3, want 3000", got)
	}
	alwaysRuns := asking("p", "team", "n", 3)
	alwaysRuns.Spec.InitContainers = []corev1.Container{sidecar}
	alwaysRuns.Generation++
	s.PutPod(alwaysRuns)
	alwaysRuns = alwaysRuns.DeepCopy()
	alwaysRuns.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: sidecar.Name, AllocatedResources: actual, Resources: &corev1.ResourceRequirements{Requests: actual},
	}}
	s.PutPod(alwaysRuns)
	if got := report(t, s, "team").Used["cpu"]; got != 8000 {
		t.Errorf("used %d while a sidecar shrinks from 5 CPUs to 2 beside 3, want 8000", got)
	}
	s.PutPod(asking("p", "team", "n", 4))
	if got := report(t, s, "team").Used["cpu"]; got != 4000 {
		t.Errorf("used %d after a pod has grown from 3 CPUs to 4, want 4000", got)
	}
}

func TestAPendingPodThatLeavesIsReported(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	freed := 0
	s.OnFreed(func() { freed++ })
	s.PutNode(sized("n", 10))
	s.PutQuota(elastic("x", "a", 0, 10))
	s.PutQuota(elastic("x", "b", 0, 10))
	s.PutPod(asking("big", "a", "", 10))
	s.PutPod(asking("p", "b", "", 6))
	x := admit(s, "p")
	if x == nil {
		t.Fatal("ten CPUs are divided in halves, and a pod of six is admitted")
	}
	s.Refuse("p", x)
	if s.Grew("p") || len(s.Grown()) != 0 || freed != 0 {
		t.Fatalf("nothing happened: grew %t, %d reports", s.Grew("p"), freed)
	}
	s.RemovePod(asking("big", "a", "", 10))
	if freed != 1 || !s.Grew("p") || s.Grown()["x/p"] == nil {
		t.Errorf("after the end of the other: %d reports, grew %t", freed, s.Grew("p"))
	}
	if x := s.Reserve("p"); x != nil {
		t.Error(x)
	}
	s.PutPod(asking("p", "b", "n", 6))
	s.RemovePod(asking("p", "b", "n", 6))
	if freed != 1 {
		t.Error("a pod that held its amounts is reported; the queue has an event for it")
	}
}

// TestTheStoreEqualsARebuild is U2 and U4 with API objects: after each of 10,000 events the account equals that of a
// process that starts now, with the reservations that are in flight.
func TestTheStoreEqualsARebuild(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		pods, quotas, nodes := map[string]*corev1.Pod{}, map[string]*v1alpha1.ElasticQuota{}, map[string]*corev1.Node{}
		reserved := map[string]bool{}
		_, s := clockAt()
		names := []string{"a", "b", "c", "x"}
		pick := func(list ...string) string { return list[r.IntN(len(list))] }
		for range 100 {
			switch name := fmt.Sprint("p", r.IntN(8)); r.IntN(9) {
			case 0:
				q := elastic(pick("x", "y"), pick(names...), r.IntN(10), 10+r.IntN(20), annotation.QuotaIsParent,
					pick("true", "false"), annotation.QuotaParent, pick("", "a", "b"))
				if was := quotas[q.Name]; was != nil && was.Namespace != q.Namespace {
					s.RemoveQuota(was)
				}
				limited := corev1.ResourceName(pick("memory", "nvidia.com/gpu", "koordinator.sh/gpu-core"))
				devices(q.Spec.Max, limited, r.Int64N(500))
				quotas[q.Name] = q
				s.PutQuota(q)
			case 1:
				if q := quotas[pick(names...)]; q != nil {
					delete(quotas, q.Name)
					s.RemoveQuota(q)
				}
			case 2:
				n := sized(pick("n", "m"), r.IntN(50))
				maps.Copy(n.Status.Allocatable, gpus(r.IntN(8)))
				nodes[n.Name] = n
				s.PutNode(n)
			case 3: // the members of a gang, which bind or fail later
				members := []string{name, fmt.Sprint("p", r.IntN(8)), fmt.Sprint("p", r.IntN(8)), name}
				if s.Reserve(members...) == nil {
					for _, uid := range members {
						if p := pods[uid]; p != nil && p.Spec.NodeName == "" {
							reserved[uid] = true
						}
					}
				}
			case 4:
				members := []string{name, fmt.Sprint("p", r.IntN(8))}
				for _, uid := range members {
					delete(reserved, uid)
				}
				s.Read(func(a *quota.Account) { a.Release(members...) })
			case 5:
				if p := pods[name]; p != nil {
					delete(pods, name)
					delete(reserved, name)
					s.RemovePod(p)
				}
			case 6: // a resize
				if p := pods[name]; p != nil {
					n := r.IntN(8)
					p = p.DeepCopy()
					p.Generation, p.Spec.Containers[0].Resources.Requests = generation(n), cpus(n)
					maps.Copy(p.Spec.Containers[0].Resources.Requests, gpus(n))
					pods[name] = p
					s.PutPod(p)
				}
			default:
				n := r.IntN(8)
				p := asking(name, pick("", "a", "b", "absent"), pick("", "n"), n)
				maps.Copy(p.Spec.Containers[0].Resources.Requests, gpus(n))
				if was := pods[name]; was != nil && was.Spec.NodeName != "" {
					p.Spec.NodeName = was.Spec.NodeName
				}
				if p.Spec.NodeName != "" {
					delete(reserved, name)
				}
				pods[name] = p
				s.PutPod(p)
				s.PutPod(p.DeepCopy())
			}
			_, again := clockAt()
			for _, uid := range slices.Sorted(maps.Keys(reserved)) { // nothing limits them yet
				again.PutPod(pods[uid])
				again.Reserve(uid)
			}
			for _, uid := range slices.Sorted(maps.Keys(pods)) {
				again.PutPod(pods[uid])
			}
			for _, name := range slices.Sorted(maps.Keys(quotas)) {
				again.PutQuota(quotas[name])
			}
			for _, n := range nodes {
				again.PutNode(n)
			}
			if live, rebuilt := hash(s), hash(again); live != rebuilt {
				t.Fatalf("(-rebuilt +live):\n%s", cmp.Diff(again.Reports(), s.Reports()))
			}
		}
	})
}

// TestReadersAndWritersDoNotWaitForEachOther: all methods at once, and one that is called when pods leave calls the
// store itself. In the end the account is what the objects say.
//
// Q7: a lock is taken twice when a quota is deleted. Q27: readers that wait for a writer that waits for a reader.
func TestReadersAndWritersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	s.OnFreed(func() { s.Grown() })
	const rounds = 200
	var all sync.WaitGroup
	for w := range 4 {
		name := fmt.Sprint("q", w)
		all.Go(func() {
			for i := range rounds {
				s.PutNode(sized(fmt.Sprint("n", i%3), 10+i%7))
				s.PutQuota(elastic("x", name, 1, 5+i%5, annotation.QuotaParent, fmt.Sprint("q", (w+i)%5)))
				p := asking(fmt.Sprint(w, "-", i%5), name, "", 1)
				s.PutPod(p)
				if x := s.Reserve(string(p.UID)); x != nil {
					s.Refuse(string(p.UID), x)
				}
				s.Update(p.UID, func(a *quota.Account) { a.Release(string(p.UID)) })
				s.RemovePod(p)
				s.RemoveQuota(elastic("x", name, 1, 1))
			}
		})
		all.Go(func() {
			for i := range rounds {
				uid := fmt.Sprint(w, "-", i%5)
				s.Reports()
				s.Problems(name)
				s.Limits(asking(uid, name, "", 1))
				s.Misses(asking(uid, name, "", 1))
				if x := kube.Ask(s, func(a *quota.Account) *quota.Trial { return a.Try(uid) }); x != nil {
					s.Read(func(a *quota.Account) { a.Take(x, uid) })
					kube.Ask(s, func(a *quota.Account) *quota.Excess { return a.AdmitTrial(x) })
				}
				s.Grew(uid)
				s.Read(func(a *quota.Account) { a.VictimNodes(uid) })
				kube.Ask(s, func(a *quota.Account) bool { return a.MayPreempt(uid, fmt.Sprint(w, "-0")) })
				s.Expire()
			}
		})
	}
	all.Wait()
	for i := range 3 {
		s.PutNode(sized(fmt.Sprint("n", i), 10))
	}
	_, again := clockAt()
	for i := range 3 {
		again.PutNode(sized(fmt.Sprint("n", i), 10))
	}
	if live, rebuilt := hash(s), hash(again); live != rebuilt {
		t.Errorf("(-rebuilt +live):\n%s", cmp.Diff(again.Reports(), s.Reports()))
	}
}

func hash(s *kube.Quotas) (h uint64) {
	s.Read(func(a *quota.Account) { h = a.Hash() })
	return h
}

// BenchmarkPlainPod is the life of a pod that no quota limits: it comes, is reserved, bound, and goes.
func BenchmarkPlainPod(b *testing.B) {
	for _, n := range []int{0, 1000} {
		b.Run(fmt.Sprintf("quotas=%d", n), func(b *testing.B) {
			_, s := clockAt()
			s.PutNode(sized("n", 1_000_000))
			for i := range n {
				s.PutQuota(elastic("quotas", fmt.Sprint("q", i), 1, 100))
			}
			waiting, bound := asking("p", "", "", 1), asking("p", "", "n", 1)
			b.ReportAllocs()
			for b.Loop() {
				s.PutPod(waiting)
				if s.Limits(waiting) || s.Reserve("p") != nil {
					b.Fatal("a plain pod is limited")
				}
				s.PutPod(bound)
				s.RemovePod(bound)
			}
		})
	}
}

// TestAPodRemainsInTheQuotaThatItWasBoundIn: its label is removed while no webhook is there, and all programs restart.
func TestAPodRemainsInTheQuotaThatItWasBoundIn(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	lists := elastic("a", "lists", 0, 10)
	lists.Annotations = map[string]string{annotation.QuotaNamespaces: `["x"]`}
	for _, q := range []*v1alpha1.ElasticQuota{elastic("a", "team", 0, 10), lists, elastic("a", quota.Default, 0, 10)} {
		s.PutQuota(q)
	}
	for label, want := range map[string]string{
		"team": "team", "": "lists", quota.System: "", quota.Default: "", "absent": "",
	} {
		p := asking("p-"+label, label, "", 2)
		s.PutPod(p)
		if got := s.Record(p); got[annotation.QuotaBound] != want || (got != nil) != (want != "") {
			t.Errorf("a pod that names %q is bound with %v, want %q", label, got, want)
		}
	}
	if got := s.Record(asking("unknown", "team", "", 2)); got != nil {
		t.Errorf("a pod that the account does not know is bound with %v", got)
	}
	_, restarted := clockAt()
	restarted.PutQuota(elastic("a", "team", 0, 10))
	p := asking("p", "", "n", 2)
	delete(p.Labels, annotation.QuotaName)
	p.Annotations = map[string]string{annotation.QuotaBound: "team"}
	restarted.PutPod(p)
	if got := report(t, restarted, "team").Used["cpu"]; got != 2000 {
		t.Errorf("used %d after the label was removed, want 2000", got)
	}
	if got := convert.PodsOf(p); got != (quota.PodsOf{Namespace: "x", Bound: "team"}) {
		t.Errorf("the webhooks look for %+v", got)
	}
	p.Spec.NodeName = "" // a copied manifest
	if got := convert.PodsOf(p); got.Bound != "" {
		t.Errorf("a pod that is not bound looks for %+v", got)
	}
}

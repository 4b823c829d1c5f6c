package grouping

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
)

// world is an API server with objects of operators, pods and PodGroups, and a manager with webhook and controller.
type world struct {
	t      *testing.T
	client *fake.FakeDynamicClient
	events *events.FakeRecorder
	groups cache.SharedIndexInformer
	pods   cache.SharedIndexInformer
	o      Options
	reads  int

	mu         sync.Mutex // guards the rest
	namespaces map[string]map[string]string
	forbidden  map[string]bool // resources that may not be read
	uid        int
}

var (
	podResource   = corev1.SchemeGroupVersion.WithResource("pods")
	groupResource = v1alpha1.PodGroupResource(v1alpha1.GroupName)
)

// run starts a manager on a world for as long as f runs.
func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mapper := meta.NewDefaultRESTMapper(nil)
		lists := map[schema.GroupVersionResource]string{groupResource: "PodGroupList", podResource: "PodList"}
		for kind, group := range map[string]string{
			"RayCluster": "ray.io/v1", "RayJob": "ray.io/v1", "JobSet": "jobset.x-k8s.io/v1alpha2", "Job": "batch/v1",
			"StatefulSet": "apps/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1", "PyTorchJob": "kubeflow.org/v1",
			"Pod": "v1", "Platform": "example.com/v1",
		} {
			gv, err := schema.ParseGroupVersion(group)
			testkit.Check(t, err)
			mapper.Add(gv.WithKind(kind), meta.RESTScopeNamespace)
			lists[gv.WithResource(strings.ToLower(kind)+"s")] = kind + "List"
		}
		for _, r := range workload.Builtin().Rules() {
			for _, version := range r.Versions {
				gv := schema.GroupVersion{Group: r.Group, Version: version}
				mapper.Add(gv.WithKind(r.Kind), meta.RESTScopeNamespace)
				lists[gv.WithResource(strings.ToLower(r.Kind)+"s")] = r.Kind + "List"
			}
		}
		w := &world{
			t: t, client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists),
			events: events.NewFakeRecorder(1000), namespaces: map[string]map[string]string{"default": {}},
			forbidden: map[string]bool{},
		}
		w.client.PrependReactor("*", "*", w.guard)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		start := func(at schema.GroupVersionResource, into func() runtime.Object, indexers cache.Indexers,
		) cache.SharedIndexInformer {
			i := dynamicinformer.NewFilteredDynamicInformer(w.client, at, metav1.NamespaceAll, 0, indexers,
				nil).Informer()
			testkit.Check(t, i.SetTransform(func(object any) (any, error) {
				u, isUnread := object.(*unstructured.Unstructured)
				if !isUnread {
					return object, nil
				}
				typed := into()
				return typed, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed)
			}))
			running.Go(func() { i.RunWithContext(ctx) })
			return i
		}
		w.pods = start(podResource, func() runtime.Object { return &corev1.Pod{} }, cache.Indexers{})
		w.groups = start(groupResource, func() runtime.Object { return &v1alpha1.PodGroup{} }, IndexGroups())
		owners := NewOwners(w.client, mapper, func(namespace, name string) *corev1.Pod {
			return kube.Get[corev1.Pod](w.pods, namespace+"/"+name)
		}, time.Now)
		w.o = Options{
			Grouper: &Grouper{
				Table: workload.Builtin(), Schedulers: []string{"tenon-scheduler"}, Grouping: workload.Declared,
				Owners: owners, Cluster: w,
			},
			Pods: w.pods, Made: w.groups, Client: w.client, Events: w.events,
		}
		running.Go(func() { testkit.Check(t, owners.Start(ctx)) })
		synctest.Wait() // a fake API server shows a watch only what comes after it
		running.Go(func() { testkit.Check(t, New(w.o).Start(ctx)) })
		synctest.Wait()
		f(w)
	})
}

// guard refuses what may not be read, and gives objects their UIDs.
func (w *world) guard(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := action.GetResource()
	if action.GetVerb() == "get" {
		w.reads++
	}
	if slices.Contains([]string{"get", "list", "watch"}, action.GetVerb()) && w.forbidden[at.GroupResource().String()] {
		return true, nil, apierrors.NewForbidden(at.GroupResource(), "", nil)
	}
	if create, ok := action.(clienttesting.CreateAction); ok {
		o := create.GetObject().(*unstructured.Unstructured)
		if w.uid++; o.GetUID() == "" {
			o.SetUID(types.UID(fmt.Sprint("uid-", w.uid)))
		}
	}
	return false, nil, nil
}

func (w *world) PodGroups(namespace, name string) []*v1alpha1.PodGroup {
	if g := kube.Get[v1alpha1.PodGroup](w.groups, namespace+"/"+name); g != nil {
		return []*v1alpha1.PodGroup{g}
	}
	return nil
}

func (w *world) NamespaceLabels(name string) (map[string]string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	labels, known := w.namespaces[name]
	return labels, known
}

func (w *world) Members(gang string) (pods []*corev1.Pod) {
	for _, o := range w.pods.GetStore().List() {
		if p := o.(*corev1.Pod); p.Namespace+"/"+p.Labels[annotation.PodGroup] == gang {
			pods = append(pods, p)
		}
	}
	return pods
}

// idle lets the manager work until nothing is left to do.
func (w *world) idle() {
	synctest.Wait()
	time.Sleep(5 * time.Second) //nolint:forbidigo // the clock is the bubble's
	synctest.Wait()
}

// create creates an object of JSON in namespace default, below an owner if one is given, and returns it.
func (w *world) create(text string, owner *unstructured.Unstructured) *unstructured.Unstructured {
	w.t.Helper()
	o := &unstructured.Unstructured{}
	testkit.Check(w.t, json.Unmarshal([]byte(text), &o.Object))
	o.SetNamespace("default")
	if owner != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{reference(owner)})
	}
	at, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	made, err := w.client.Resource(at).Namespace("default").Create(w.t.Context(), o, metav1.CreateOptions{})
	testkit.Check(w.t, err)
	w.idle()
	return made
}

// patch changes an object by a merge patch.
func (w *world) patch(o *unstructured.Unstructured, text string) {
	w.t.Helper()
	at, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	_, err := w.client.Resource(at).Namespace("default").Patch(w.t.Context(), o.GetName(), types.MergePatchType,
		[]byte(text), metav1.PatchOptions{})
	testkit.Check(w.t, err)
	w.idle()
}

func (w *world) remove(at schema.GroupVersionResource, name string) {
	w.t.Helper()
	testkit.Check(w.t, w.client.Resource(at).Namespace("default").Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	w.idle()
}

// member is a pod of Tenon with labels, below an owner.
func member(name string, owner *unstructured.Unstructured, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: maps.Clone(labels)},
		Spec:       corev1.PodSpec{SchedulerName: "tenon-scheduler"},
	}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{reference(owner)}
	}
	return p
}

// admit creates a pod as the webhook leaves it.
func (w *world) admit(p *corev1.Pod) *unstructured.Unstructured {
	w.t.Helper()
	name, rule, err := w.o.Mark(w.t.Context(), p)
	testkit.Check(w.t, err)
	if name != "" {
		p = admission.Join(p, name, rule)
	}
	return w.add(p)
}

// add creates a pod that the webhook is not asked about.
func (w *world) add(p *corev1.Pod) *unstructured.Unstructured {
	w.t.Helper()
	content, err := json.Marshal(p)
	testkit.Check(w.t, err)
	o := &unstructured.Unstructured{}
	testkit.Check(w.t, json.Unmarshal(content, &o.Object))
	made, err := w.client.Resource(podResource).Namespace("default").Create(w.t.Context(), o, metav1.CreateOptions{})
	testkit.Check(w.t, err)
	w.idle()
	return made
}

// shown are all PodGroups: NAME MIN of OWNER, with what they list.
func (w *world) shown() []string {
	list, err := w.client.Resource(groupResource).Namespace("default").List(w.t.Context(), metav1.ListOptions{})
	testkit.Check(w.t, err)
	var all []string
	for _, o := range list.Items {
		least, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "minMember")
		text := fmt.Sprintf("%s %v", o.GetName(), least)
		if ref := metav1.GetControllerOfNoCopy(&o); ref != nil {
			text += " of " + ref.Name
		}
		if joined, _, _ := annotation.ParseGangGroups(o.GetAnnotations()[annotation.GangGroups]); len(joined) > 0 {
			text += " with " + strings.Join(joined, ",")
		}
		if policy := o.GetAnnotations()[annotation.GangMatchPolicy]; policy != "" {
			text += " " + policy
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

func (w *world) want(what string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.shown()); diff != "" {
		w.t.Errorf("%s: PodGroups (-want +got):\n%s", what, diff)
	}
}

// gangOf returns the label of a pod.
func (w *world) gangOf(name string) string {
	w.t.Helper()
	p, err := w.client.Resource(podResource).Namespace("default").Get(w.t.Context(), name, metav1.GetOptions{})
	testkit.Check(w.t, err)
	return p.GetLabels()[annotation.PodGroup]
}

// said are the Events since the last call.
func (w *world) said() (all []string) {
	for {
		select {
		case text := <-w.events.Events:
			all = append(all, text)
		default:
			return all
		}
	}
}

// ray is a RayCluster with a head and a group a, whose spec has more fields, and workers in its list.
func ray(spec, groups string) string {
	return `{"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": {` + spec +
		`"headGroupSpec": {"template": {"spec": {"schedulerName": "tenon-scheduler"}}},
		"workerGroupSpecs": [` + groups + `]}}`
}

func group(name string, replicas, least int) string {
	return fmt.Sprintf(`{"groupName": %q, "replicas": %d, "minReplicas": %d, "template": {"spec": {"schedulerName":
		"tenon-scheduler"}}}`, name, replicas, least)
}

func rayPod(name string, owner *unstructured.Unstructured, role string) *corev1.Pod {
	kind := "worker"
	if role == "headgroup" {
		kind = "head"
	}
	return member(name, owner, map[string]string{
		"ray.io/cluster": "r", "ray.io/group": role, "ray.io/node-type": kind,
	})
}

// TestARayClusterFromItsCreationToItsEnd: the pods get their gangs at creation, and the PodGroups follow the object.
func TestARayClusterFromItsCreationToItsEnd(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		r := w.create(ray("", group("a", 2, 0)), nil)
		w.want("before the first pod")
		w.admit(rayPod("head", r, "headgroup"))
		both := []string{
			"r-a 2 of r with default/r-headgroup,default/r-a",
			"r-headgroup 1 of r with default/r-headgroup,default/r-a",
		}
		w.want("with the head", both...)
		a0, a1 := w.admit(rayPod("a0", r, "a")), w.admit(rayPod("a1", r, "a"))
		if w.gangOf("head") != "r-headgroup" || w.gangOf("a0") != "r-a" || w.gangOf("a1") != "r-a" {
			t.Error("the pods have other labels")
		}
		if diff := cmp.Diff([]string{
			"Normal Grouped RayCluster r: gangs r-headgroup 1, r-a 2, by rule ray.io/RayCluster; label " +
				"tenon.sh/gang=off stops it",
		}, w.said()); diff != "" {
			t.Errorf("Events (-want +got):\n%s", diff)
		}
		for _, p := range []string{"head", "a0", "a1"} {
			w.patch(w.pod(p), `{"spec": {"nodeName": "n"}}`)
		}
		w.want("once all are on nodes", both...)
		w.patch(r, `{"spec": {"workerGroupSpecs": [`+group("a", 3, 0)+`,`+group("b", 2, 0)+`]}}`)
		w.want("with more pods and a role that comes later", "r-a 3 of r with default/r-headgroup,default/r-a",
			"r-b 2 of r", both[1])
		w.patch(r, `{"spec": {"suspend": true}}`)
		for _, p := range []string{"head", "a0", "a1"} {
			w.remove(podResource, p)
		}
		w.want("suspended", "r-a 3 of r with default/r-headgroup,default/r-a", "r-b 2 of r", both[1])
		w.patch(r, `{"spec": {"suspend": false}}`)
		const all = " of r with default/r-headgroup,default/r-a,default/r-b"
		w.want("resumed", "r-a 3"+all, "r-b 2"+all, "r-headgroup 1"+all)
		w.patch(r, `{"spec": {"workerGroupSpecs": [`+group("a", 1, 0)+`]}}`)
		w.want("without a role, and smaller", "r-a 1 of r with default/r-headgroup,default/r-a", both[1])
		_, _ = a0, a1
	})
}

func (w *world) pod(name string) *unstructured.Unstructured {
	w.t.Helper()
	p, err := w.client.Resource(podResource).Namespace("default").Get(w.t.Context(), name, metav1.GetOptions{})
	testkit.Check(w.t, err)
	return p
}

// TestPodsThatAreLeftAlone: none of them changes, and no PodGroup is made.
func TestPodsThatAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		object    string
		change    func(p *corev1.Pod)
		namespace map[string]string
		setting   workload.Grouping
	}{
		"another scheduler": {change: func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" }},
		"no scheduler":      {change: func(p *corev1.Pod) { p.Spec.SchedulerName = "" }},
		"a gang of its own": {change: func(p *corev1.Pod) { p.Labels[annotation.PodGroup] = "mine" }},
		"a PodGroup of the community": {change: func(p *corev1.Pod) {
			p.Labels[annotation.CommunityPodGroup] = "mine"
		}},
		"a gang in annotations": {change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{annotation.GangName: "mine"}
		}},
		"a PodGroup of Volcano": {change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{"scheduling.k8s.io/group-name": "mine"}
		}},
		"a PodGroup of Kubernetes": {change: func(p *corev1.Pod) {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("mine")}
		}},
		"the label off":                 {change: func(p *corev1.Pod) { p.Labels[annotation.GangLabel] = "off" }},
		"no owner":                      {change: func(p *corev1.Pod) { p.OwnerReferences = nil }},
		"an owner that controls it not": {change: func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }},
		"an owner that was replaced":    {change: func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }},
		"an owner that is gone":         {change: func(p *corev1.Pod) { p.OwnerReferences[0].Name = "other" }},
		"a namespace that opts out":     {namespace: map[string]string{annotation.GangLabel: "off"}},
		"a namespace that does not ask": {setting: workload.OptIn},
		"the setting Off":               {setting: workload.Off},
		"two controllers, of which the first is gone": {change: func(p *corev1.Pod) {
			gone := p.OwnerReferences[0]
			gone.Name = "other"
			p.OwnerReferences = append([]metav1.OwnerReference{gone}, p.OwnerReferences...)
		}},
		"an object that opts out": {object: strings.Replace(ray("", group("a", 2, 0)), `"name": "r"`,
			`"name": "r", "labels": {"tenon.sh/gang": "off"}`, 1)},
		"an object that is being deleted": {object: strings.Replace(ray("", group("a", 2, 0)), `"name": "r"`,
			`"name": "r", "deletionTimestamp": "2026-01-01T00:00:00Z"`, 1)},
		"a value that cannot be read": {object: ray("", group("a", -2, 0))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				w.namespaces["default"] = c.namespace
				if c.setting != "" {
					w.o.Grouping = c.setting
				}
				text := c.object
				if text == "" {
					text = ray("", group("a", 2, 0))
				}
				r := w.create(text, nil)
				p := rayPod("a0", r, "a")
				if c.change != nil {
					c.change(p)
				}
				before, err := json.Marshal(p)
				testkit.Check(t, err)
				if name, rule, err := w.o.Mark(w.t.Context(), p); name != "" || err != nil {
					t.Errorf("the webhook puts it into %q by %q, %v", name, rule, err)
				}
				made := w.add(p)
				after, err := json.Marshal(p)
				testkit.Check(t, err)
				now := w.pod("a0")
				if string(before) != string(after) || !cmp.Equal(made.Object, now.Object) {
					t.Errorf("the pod changed: %s", cmp.Diff(made.Object, now.Object))
				}
				if c.object == "" && c.namespace == nil && c.setting == "" {
					return // the object may have gangs for other pods
				}
				w.want("none")
			})
		})
	}
}

// TestLateLabels: the webhook was away. Pods on nodes count too, and ended ones do not.
func TestLateLabels(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		r := w.create(ray("", group("a", 2, 0)), nil)
		bound := rayPod("head", r, "headgroup")
		bound.Spec.NodeName = "n"
		ended := rayPod("a-old", r, "a")
		ended.Status.Phase = corev1.PodFailed
		w.add(bound)
		w.add(rayPod("a0", r, "a"))
		w.add(ended)
		if w.gangOf("head") != "r-headgroup" || w.gangOf("a0") != "r-a" || w.gangOf("a-old") != "" {
			t.Errorf("labels are %q, %q, %q", w.gangOf("head"), w.gangOf("a0"), w.gangOf("a-old"))
		}
		late := 0
		for _, text := range w.said() {
			if strings.HasPrefix(text, "Warning GroupedLate in gang r-") {
				late++
			}
		}
		if late != 2 || len(w.shown()) != 2 {
			t.Errorf("%d late Events, PodGroups %v", late, w.shown())
		}
	})
}

// TestForeignPodGroups: one of the name is neither adopted nor changed, and the gang has another name.
func TestForeignPodGroups(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.create(`{"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "r-a",
			"annotations": {"tenon.sh/gang-rule": "copied"}}, "spec": {"minMember": 7}}`, nil)
		r := w.create(ray("", group("a", 2, 0)), nil)
		w.admit(rayPod("a0", r, "a"))
		label := w.gangOf("a0")
		if !strings.HasPrefix(label, "r-a-") || len(label) != len("r-a-12345678") {
			t.Errorf("the pod is in gang %q", label)
		}
		joined := " of r with default/r-headgroup,default/" + label
		w.want("beside a foreign one", "r-a 7", label+" 2"+joined, "r-headgroup 1"+joined)
	})
}

// TestNamesThatAreTooLong: the label and the PodGroup agree, for each role.
func TestNamesThatAreTooLong(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		long := strings.Repeat("n", 70)
		r := w.create(strings.Replace(ray("", group("a", 2, 0)), `"name": "r"`, `"name": "`+long+`"`, 1), nil)
		p := rayPod("a0", r, "a")
		p.Labels["ray.io/cluster"] = long
		w.admit(p)
		label := w.gangOf("a0")
		if len(label) != 63 || w.PodGroups("default", label) == nil || len(w.shown()) != 2 {
			t.Errorf("the pod is in gang %q, PodGroups are %v", label, w.shown())
		}
	})
}

// TestRestartsOfAJobSet: a new attempt needs its minimum again, and the PodGroup of the last one goes with its pods.
func TestRestartsOfAJobSet(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		js := w.create(`{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"},
			"spec": {"replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": 2, "completions": 2,
			"template": {"spec": {"schedulerName": "tenon-scheduler"}}}}}]}}`, nil)
		job := w.create(`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j-w-0"}, "spec": {}}`, js)
		labels := map[string]string{
			"jobset.sigs.k8s.io/jobset-name": "j", "jobset.sigs.k8s.io/replicatedjob-name": "w",
			"jobset.sigs.k8s.io/job-index": "0", "jobset.sigs.k8s.io/restart-attempt": "0",
		}
		w.admit(member("first", job, labels))
		w.want("the first attempt", "j-w-0 2 of j")
		labels["jobset.sigs.k8s.io/restart-attempt"] = "1"
		w.admit(member("second", job, labels)) // before the object says so
		if got := w.gangOf("second"); got != "j-w-1" {
			t.Errorf("the pod of the second attempt is in %q", got)
		}
		w.want("before the object shows the second attempt", "j-w-0 2 of j")
		w.patch(js, `{"status": {"restarts": 1}}`)
		w.want("while pods of the first one end", "j-w-0 1 of j", "j-w-1 2 of j")
		w.remove(podResource, "first")
		w.want("when they have ended", "j-w-1 2 of j")
	})
}

// TestLeaderWorkerSets: a worker is below a StatefulSet of its leader; a group more than was read is asked for.
func TestLeaderWorkerSets(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		l := w.create(`{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
			"metadata": {"name": "l"}, "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate":
			{"spec": {"schedulerName": "tenon-scheduler"}}}}}`, nil)
		leaders := w.create(`{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "l"}}`, l)
		pod := func(name string, owner *unstructured.Unstructured, index, worker string) *corev1.Pod {
			return member(name, owner, map[string]string{
				"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": index,
				"leaderworkerset.sigs.k8s.io/worker-index": worker,
			})
		}
		leader := w.admit(pod("l-0", leaders, "0", "0"))
		workers := w.create(`{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "l-0"}}`, leader)
		w.admit(pod("l-0-1", workers, "0", "1"))
		if w.gangOf("l-0") != "l-0" || w.gangOf("l-0-1") != "l-0" {
			t.Errorf("leader and worker are in %q and %q", w.gangOf("l-0"), w.gangOf("l-0-1"))
		}
		w.want("one group", "l-0 2 of l waiting-and-running")
		w.patch(l, `{"spec": {"replicas": 2}}`)
		w.admit(pod("l-1", leaders, "1", "0"))
		w.want("two groups", "l-0 2 of l waiting-and-running", "l-1 2 of l waiting-and-running")
	})
}

// TestAPodGroupThatIsDeletedComesBack: a pod that names it would wait for ever.
func TestAPodGroupThatIsDeletedComesBack(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		r := w.create(ray("", group("a", 2, 0)), nil)
		w.admit(rayPod("a0", r, "a"))
		before := w.shown()
		w.remove(groupResource, "r-a")
		w.want("deleted", before...)
		w.patch(r, `{"spec": {"workerGroupSpecs": []}}`)
		w.remove(groupResource, "r-a")
		w.want("deleted while only a pod needs it", "r-a 1 of r")
		w.remove(podResource, "a0")
		w.want("without that pod")
	})
}

// TestOptingOutLater: the pods that there are start one by one, and new ones name no gang.
func TestOptingOutLater(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		r := w.create(ray("", group("a", 2, 0)), nil)
		w.admit(rayPod("a0", r, "a"))
		w.patch(r, `{"metadata": {"labels": {"tenon.sh/gang": "off"}}}`)
		w.want("with the label", "r-a 1 of r")
		w.admit(rayPod("a1", r, "a"))
		if got := w.gangOf("a1"); got != "" {
			t.Errorf("a new pod is in %q", got)
		}
	})
}

// TestAnOwnerThatGoesBetweenTwoReads: the cache still has the object, without the role of the pod; the API server has
// it no more.
func TestAnOwnerThatGoesBetweenTwoReads(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		r := w.create(ray("", group("a", 2, 0)), nil)
		w.admit(rayPod("a0", r, "a"))
		w.client.PrependReactor("get", "rayclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "rayclusters"}, "r")
		})
		if name, rule, err := w.o.Mark(w.t.Context(), rayPod("b0", r, "b")); name != "" || rule != "" || err != nil {
			t.Errorf("the pod is put into %q by %q, %v", name, rule, err)
		}
		if name, _, err := w.o.Mark(w.t.Context(), rayPod("a1", r, "a")); name != "r-a" || err != nil {
			t.Errorf("a pod of a role that the cache has is put into %q, %v", name, err)
		}
	})
}

// TestTheSettingOffLater: a manager that starts with Off has no right to read objects or to delete PodGroups. What
// exists keeps its minimum, and new pods are in no gang.
func TestTheSettingOffLater(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		r := w.create(ray("", group("a", 2, 0)), nil)
		w.admit(rayPod("a0", r, "a"))
		w.said()
		w.forbidden["rayclusters.ray.io"] = true
		before := w.o.Owners
		w.o.Grouper.Owners = NewOwners(w.client, before.mapper, before.pod, time.Now)
		w.o.Grouper.Grouping = workload.Off
		groups := w.client.Resource(groupResource).Namespace("default")
		made, err := groups.Get(w.t.Context(), "r-a", metav1.GetOptions{})
		testkit.Check(t, err)
		w.patch(made, `{"metadata": {"labels": {"seen": "again"}}}`)
		w.patch(w.pod("a0"), `{"metadata": {"labels": {"seen": "again"}}}`)
		w.want("with Off", "r-a 2 of r with default/r-headgroup,default/r-a",
			"r-headgroup 1 of r with default/r-headgroup,default/r-a")
		w.admit(rayPod("a1", r, "a"))
		if got, said := w.gangOf("a1"), w.said(); got != "" || len(said) > 0 {
			t.Errorf("a new pod is in %q; Events: %v", got, said)
		}
	})
}

// TestRightsTakenAway: without the right to read a kind, its pods start one by one, an Event says why, and the API
// server is asked once a minute.
func TestRightsTakenAway(t *testing.T) {
	t.Parallel()
	table := workload.Builtin()
	for _, r := range table.Rules() {
		version := r.Versions[0]
		if table.Ignores(r.Group, version, r.Kind) {
			continue // their pods are left alone unread
		}
		apiVersion, kind := r.Group+"/"+version, r.Kind
		resource := strings.ToLower(kind) + "s." + r.Group
		t.Run(apiVersion+" "+kind, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				o := w.create(fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": "x"}}`, apiVersion,
					kind), nil)
				w.forbidden[resource] = true
				w.reads = 0
				for i := range 20 {
					w.admit(rayPod(fmt.Sprint("p", i), o, "a"))
				}
				reads := w.reads
				if w.want("none"); reads > 4 {
					t.Errorf("the API server was asked %d times", reads)
				}
				said := w.said()
				if len(said) == 0 || !strings.HasPrefix(said[0], "Warning NotGrouped read the owner "+o.GetKind()) ||
					!strings.Contains(said[0], "is forbidden") {
					t.Errorf("Events: %v", said)
				}
				delete(w.forbidden, resource)
				time.Sleep(2 * refusalTime) //nolint:forbidigo // the clock is the bubble's
				w.admit(rayPod("later", o, "a"))
				if _, err := w.o.Owners.resourceOf(linkOf(o)); err != nil {
					t.Errorf("the kind is still not read: %v", err)
				}
			})
		})
	}
}

// TestAJobOfAPodIsReadOrLeft: the one with the UID of the reference, from the API server where a cache does not have
// it yet. A Job that cannot be read is as none.
func TestAJobOfAPodIsReadOrLeft(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		job := func(name, spec string) *unstructured.Unstructured {
			return w.create(fmt.Sprintf(`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": %q,
				"annotations": {"tenon.sh/expected-runtime": "1h"}}, "spec": %s}`, name, spec), nil)
		}
		read, odd := job("a", `{"activeDeadlineSeconds": 60}`), job("odd", `{"activeDeadlineSeconds": "soon"}`)
		gone, other := job("gone", "{}"), w.create(ray("", group("a", 2, 0)), nil)
		gone.SetUID("another")
		w.reads = 0
		for range 5 {
			j := w.o.Owners.JobOf(w.t.Context(), rayPod("p", read, ""))
			if j == nil || *j.Spec.ActiveDeadlineSeconds != 60 || j.Annotations[annotation.ExpectedRuntime] != "1h" {
				t.Errorf("got %v", j)
			}
			w.idle()
		}
		if w.reads > 1 {
			t.Errorf("the API server was asked %d times", w.reads)
		}
		for name, owner := range map[string]*unstructured.Unstructured{
			"a deadline of another type": odd, "created again": gone, "another kind": other,
		} {
			if j := w.o.Owners.JobOf(w.t.Context(), rayPod("p", owner, "")); j != nil {
				t.Errorf("%s: got %v", name, j)
			}
		}
		if j := w.o.Owners.JobOf(w.t.Context(), &corev1.Pod{}); j != nil {
			t.Errorf("without a controller: got %v", j)
		}
	})
	run(t, func(w *world) {
		j := w.create(`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}}`, nil)
		w.forbidden["jobs.batch"] = true
		w.reads = 0
		for range 20 {
			if got := w.o.Owners.JobOf(w.t.Context(), rayPod("p", j, "")); got != nil {
				t.Errorf("without the right: got %v", got)
			}
		}
		if w.reads > 1 {
			t.Errorf("the API server was asked %d times", w.reads)
		}
		delete(w.forbidden, "jobs.batch")
		time.Sleep(2 * refusalTime) //nolint:forbidigo // the clock is the bubble's
		if got := w.o.Owners.JobOf(w.t.Context(), rayPod("p", j, "")); got == nil {
			t.Error("with the right: no Job")
		}
	})
}

// TestNamespacesThatRequireGangs: a pod whose owner cannot be read is refused there, and only there.
func TestNamespacesThatRequireGangs(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		r := w.create(ray("", group("a", 2, 0)), nil)
		w.forbidden["rayclusters.ray.io"] = true
		if _, _, err := w.o.Mark(w.t.Context(), rayPod("a0", r, "a")); err != nil {
			t.Errorf("elsewhere: %v", err)
		}
		w.namespaces["default"] = map[string]string{annotation.GangsLabel: annotation.GangsRequired}
		_, _, err := w.o.Mark(w.t.Context(), rayPod("a0", r, "a"))
		if err == nil || !strings.Contains(err.Error(), "the gang of the pod is not known: read the owner") {
			t.Errorf("got %v", err)
		}
		delete(w.forbidden, "rayclusters.ray.io")
		time.Sleep(2 * refusalTime) //nolint:forbidigo // the clock is the bubble's
		if name, _, err := w.o.Mark(w.t.Context(), rayPod("a0", r, "a")); err != nil || name != "r-a" {
			t.Errorf("with the right: %q, %v", name, err)
		}
	})
}

// TestFollowedKindsAreNotAskedForEachPod: the API server is asked about the first pod of a kind.
func TestFollowedKindsAreNotAskedForEachPod(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		r := w.create(ray("", group("a", 50, 0)), nil)
		w.admit(rayPod("a0", r, "a"))
		w.reads = 0
		for i := range 20 {
			w.admit(rayPod(fmt.Sprint("a", i+1), r, "a"))
		}
		if w.reads > 0 {
			t.Errorf("the API server was asked %d times", w.reads)
		}
	})
}

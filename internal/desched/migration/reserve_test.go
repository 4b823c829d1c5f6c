package migration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// placeOf returns the Reservation that a job for a pod creates.
func placeOf(t *testing.T, pod *corev1.Pod, change func(*v1alpha1.PodMigrationJob)) *reservation.Reservation {
	t.Helper()
	p := usual()
	p.scheduled = -1
	c := newCluster(t, p)
	c.bond = gang.Bond{Least: 1}
	added := c.addPod("p", "old", source)
	pod.ObjectMeta.Name, pod.Namespace, pod.UID = added.Name, added.Namespace, added.UID
	pod.OwnerReferences, pod.Status = added.OwnerReferences, added.Status
	pod.CreationTimestamp = added.CreationTimestamp
	pod.Spec.NodeName = source
	c.other(func() error { return c.pods.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "a") })
	c.addJob("j", "p", change)
	c.run(3 * time.Second)
	r := c.place(c.job("j"))
	if r == nil {
		t.Fatalf("the job has no Reservation: %+v", c.job("j").Status)
	}
	return r
}

func keepJob(*v1alpha1.PodMigrationJob) {}

// A Reservation with the old pod's CPUs, devices, node, owner or gang would hold the old place, or none.
func TestReservationHasNothingOfTheOldPlace(t *testing.T) {
	t.Parallel()
	pod := object.Pod("p", object.Scheduler("tenon-scheduler"), object.Both("cpu", "4"), object.Class("LSR"),
		object.CPUs("0-3"), object.Annotation(annotation.DeviceAllocatedKey, `{"gpu":[]}`),
		object.Annotation(annotation.ReservationAllocatedKey, `{"name":"r","uid":"u"}`),
		object.Annotation(annotation.BindTimestampKey, "1"),
		object.Annotation(annotation.ResourceSpecKey, `{"preferredCPUBindPolicy":"FullPCPUs"}`),
		object.Gang("g", "1"), object.Label(annotation.PodGroup, "g"), object.Label("app", "web"))
	pod.Finalizers = []string{"example.com/f"}
	r := placeOf(t, pod, keepJob)
	want := metav1.ObjectMeta{
		Namespace: "a", Labels: map[string]string{"app": "web", annotation.QoSClass: "LSR"},
		Annotations: map[string]string{
			annotation.ResourceSpecKey:  `{"preferredCPUBindPolicy":"FullPCPUs"}`,
			annotation.GangMinAvailable: "1",
		},
	}
	if diff := cmp.Diff(want, r.Spec.Template.ObjectMeta); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	if node := r.Spec.Template.Spec.NodeName; node != "" {
		t.Errorf("the template is for node %s", node)
	}
	wantOwners := []reservation.ReservationOwner{{Controller: &reservation.ReservationController{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "w", UID: "w", Namespace: "a", Controller: new(true),
	}}}
	if diff := cmp.Diff(wantOwners, r.Spec.Owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if r.Spec.AllocateOnce == nil || !*r.Spec.AllocateOnce || r.Spec.TTL.Duration != 5*time.Minute {
		t.Errorf("allocateOnce %v, ttl %v; want true, 5m", r.Spec.AllocateOnce, r.Spec.TTL)
	}
}

func TestReservationIsKeptOffTheNodeOfThePod(t *testing.T) {
	t.Parallel()
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	pod := object.Pod("p", object.Scheduler("tenon-scheduler"))
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{zone}}, {},
			},
		},
	}}
	r := placeOf(t, pod, keepJob)
	off := []corev1.NodeSelectorRequirement{{
		Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{source},
	}}
	want := []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{zone}, MatchFields: off}, {MatchFields: off},
	}
	got := r.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("terms (-want +got):\n%s", diff)
	}
}

func TestReservationIsMadeFromTheTemplateOfTheJob(t *testing.T) {
	t.Parallel()
	pod := object.Pod("p", object.Scheduler("tenon-scheduler"), object.Requests("cpu", "4"))
	r := placeOf(t, pod, func(j *v1alpha1.PodMigrationJob) {
		j.Spec.ReservationOptions = &v1alpha1.PodMigrateReservationOptions{Template: &runtime.RawExtension{Raw: []byte(
			`{"metadata":{"name":"mine","labels":{"team":"a"}},"spec":{"ttl":"1h","allocateOnce":false}}`)}}
	})
	if r.Name != "migration-j" || r.Labels["team"] != "a" || r.Spec.TTL.Duration != time.Hour ||
		!*r.Spec.AllocateOnce || len(r.Spec.Template.Spec.Containers) != 1 {
		t.Errorf("the Reservation is %+v", r)
	}
}

// own creates a Reservation of a user for pods of the workload.
func own(c *cluster, change func(*reservation.Reservation)) {
	r := &reservation.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	r.Spec.Template = &corev1.PodTemplateSpec{Spec: object.Pod("p", object.Requests("cpu", "2")).Spec}
	r.Spec.TTL, r.Spec.AllocateOnce = &metav1.Duration{Duration: time.Hour}, new(true)
	r.Spec.Owners = []reservation.ReservationOwner{{Controller: &reservation.ReservationController{
		Kind: "ReplicaSet", Name: "w", APIVersion: "apps/v1", Namespace: "a",
	}}}
	change(r)
	c.other(func() error { return c.client.Create(c.t.Context(), r) })
}

func named(j *v1alpha1.PodMigrationJob) {
	j.Spec.ReservationOptions = &v1alpha1.PodMigrateReservationOptions{
		ReservationRef: &corev1.ObjectReference{Name: "mine"},
	}
}

func TestReservationOfAUser(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*reservation.Reservation)
		want   end
	}{
		"for the pods of the workload": {func(*reservation.Reservation) {}, succeeded()},
		"for many pods": {
			func(r *reservation.Reservation) { r.Spec.AllocateOnce = new(false) },
			end{
				Phase: "Failed", Reason: "ForbiddenMigratePod", Stage: "ReservationScheduled", Place: true,
				Message: "reservation mine: allocateOnce must be true: the room is for one pod",
			},
		},
		"for other pods": {
			func(r *reservation.Reservation) { r.Spec.Owners[0].Controller.Name = "other" },
			end{
				Phase: "Failed", Reason: "ForbiddenMigratePod", Stage: "ReservationScheduled", Place: true,
				Message: "reservation mine is not for pods like a/p: owners, taints or keys of the pod exclude them",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, usual())
			c.addPod("p", "old", source)
			own(c, test.change)
			c.addJob("j", "p", named)
			c.run(time.Minute)
			if diff := cmp.Diff(test.want, c.end("j")); diff != "" {
				t.Errorf("job (-want +got):\n%s", diff)
			}
		})
	}
}

// addUser adds a pod on the target, whose UID is its name, and lets it use a Reservation.
func (c *cluster) addUser(name string, r *reservation.Reservation, options ...object.PodOption) {
	used := annotation.Encode(annotation.ReservationAllocated{Name: r.Name, UID: r.UID})
	c.addPod(name, name, target, append(options, object.Annotation(annotation.ReservationAllocatedKey, used))...)
	r.Status.Phase = reservation.ReservationSucceeded
	r.Status.CurrentOwners = []corev1.ObjectReference{{Namespace: "a", Name: name, UID: types.UID(name)}}
	c.other(func() error { return c.client.Status().Update(c.t.Context(), r) })
}

// Another pod of the owner may take the place while the old pod runs, as after a scale-up: another one is reserved.
func TestPlaceThatAnotherPodTakesFirst(t *testing.T) {
	t.Parallel()
	p := usual()
	p.refusedBefore = 20 * time.Second
	c := newCluster(t, p)
	c.addPod("p", "old", source)
	c.addJob("j", "p")
	c.run(5 * time.Second)
	r := c.place(c.job("j"))
	if r.Status.Phase != reservation.ReservationAvailable {
		t.Fatalf("the Reservation is %+v", r.Status)
	}
	c.addUser("more", r)
	c.run(time.Minute)
	if diff := cmp.Diff(succeeded(), c.end("j")); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

// TestPlaceFollowsTheJobsOfTheWorkload: the Reservation of a job excluded the nodes of jobs that had long ended, and
// the job ended as Unschedulable.
func TestPlaceFollowsTheJobsOfTheWorkload(t *testing.T) {
	t.Parallel()
	p := usual()
	p.target, p.replicas = "", 40
	c := newCluster(t, p)
	c.addPod("p", "old-p", source)
	c.addPod("q", "old-q", target)
	c.addJob("a", "p")
	c.addJob("b", "q")
	c.run(5 * time.Second)
	excluded := func() []string { return convert.ExcludedNodes(&c.place(c.job("a")).Spec.Template.Spec) }
	if got, want := excluded(), []string{source, target}; !slices.Equal(got, want) {
		t.Fatalf("while the other job runs, the Reservation excludes %v, want %v", got, want)
	}
	j, want := c.job("a"), "0/2 nodes are available (the job excludes node n0 of the pod, and by ReturnWindow those "+
		"that pods of the workload leave or have left: n1)"
	if got := convert.MigrationJob(j).Status.Find(move.ReservationScheduled).Message; got != want {
		t.Errorf("got the message %q, want %q", got, want)
	}
	stopped := c.job("b")
	metav1.SetMetaDataAnnotation(&stopped.ObjectMeta, annotation.AbortMigration, "true")
	c.other(func() error { return c.client.Update(t.Context(), stopped) })
	c.run(5 * time.Second)
	if got, want := excluded(), []string{source}; !slices.Equal(got, want) {
		t.Fatalf("after the other job the Reservation excludes %v, want %v", got, want)
	}
	c.plan.target = target
	c.run(time.Minute)
	if got := c.end("a"); got.Phase != "Succeeded" {
		t.Errorf("job a ends as %+v", got)
	}
}

// TestPlaceOnANodeThatAnotherJobLeaves: a place that was kept on a node which another pod of the workload leaves since
// then was held until the job failed.
func TestPlaceOnANodeThatAnotherJobLeaves(t *testing.T) {
	t.Parallel()
	p := usual()
	p.refusedBefore, p.replicas = 20*time.Second, 40
	c := newCluster(t, p)
	c.addPod("p", "old-p", source)
	c.addPod("q", "old-q", target)
	c.addJob("a", "p")
	c.run(5 * time.Second)
	if r := c.place(c.job("a")); r.Status.NodeName != target {
		t.Fatalf("the Reservation is on node %q, want %s", r.Status.NodeName, target)
	}
	c.plan.target = "n3"
	c.addJob("b", "q", func(j *v1alpha1.PodMigrationJob) {
		j.Annotations = map[string]string{
			annotation.PassedArbitration: "true",
			annotation.MigrationStartKey: annotation.Encode(annotation.MigrationStart{
				Time: metav1.NewTime(c.now), Node: target, Workload: evict.Key("a", "ReplicaSet", "w"),
			}),
		}
		j.Spec.Mode = v1alpha1.EvictDirectly
	})
	c.run(time.Minute)
	if got := c.job("a").Status; got.Phase != v1alpha1.PodMigrationJobSucceeded || got.NodeName != "n3" {
		t.Errorf("job a ends as %+v, want Succeeded on node n3", got)
	}
}

// newPair is a cluster with the jobs a and b for the pods p and q of one owner, which have had time to reserve.
func newPair(t *testing.T, p plan) *cluster {
	t.Helper()
	c := newCluster(t, p)
	c.addPod("p", "old-p", source)
	c.addPod("q", "old-q", source)
	c.addJob("a", "p")
	c.addJob("b", "q")
	c.run(5 * time.Second)
	return c
}

// The successor of a pod may get the place of another job of its owner, whose pod still runs. It counts for the first
// job, which gives its own place up, and the other job reserves another one.
func TestSuccessorInThePlaceOfAnotherJob(t *testing.T) {
	t.Parallel()
	p := usual()
	p.refusedBefore, p.bound = 20*time.Second, -1
	c := newPair(t, p)
	r := c.place(c.job("b"))
	if c.place(c.job("a")) == nil || r.Status.Phase != reservation.ReservationAvailable {
		t.Fatalf("the Reservation is %+v", r.Status)
	}
	if err := c.terminate(c.pod("p")); err != nil { // another client deletes the pod
		t.Fatal(err)
	}
	c.now = c.now.Add(time.Second)
	c.addUser("new", r, object.Created(c.now))
	c.run(10 * time.Second)
	c.plan.bound = 2
	c.run(2 * time.Minute)
	a, b := c.end("a"), c.end("b")
	if a.Phase != "Succeeded" || a.New != "new" || a.Place || b.Phase != "Succeeded" || b.New != "new-q" || !b.Place {
		t.Errorf("job a ends as %+v, job b as %+v", a, b)
	}
}

// A job gives its own place up where another pod counts for it. The scheduler may still place a pod there before it
// knows: no Reservation shows that pod, and it counts for the job that waits for one. A pod that came before does not.
func TestSuccessorInAPlaceThatIsGone(t *testing.T) {
	t.Parallel()
	p := usual()
	p.refusedBefore, p.bound, p.replicas = 20*time.Second, -1, 40
	c := newPair(t, p)
	given, r := c.place(c.job("a")), c.place(c.job("b"))
	testkit.Check(t, c.terminate(c.pod("p")))
	c.now = c.now.Add(time.Second)
	c.addUser("new", r, object.Created(c.now))
	used := object.Annotation(annotation.ReservationAllocatedKey,
		annotation.Encode(annotation.ReservationAllocated{Name: given.Name, UID: given.UID}))
	c.addPod("aged", "aged", target, used)
	c.run(10 * time.Second)
	c.addPod("more", "more", target, object.Created(c.now), used)
	c.run(time.Minute)
	if a, b := c.end("a"), c.end("b"); a.New != "new" || a.Place || c.pod("q") != nil || b.Phase != "Running" {
		t.Fatalf("before the pod of job b has a successor, job a is %+v and job b %+v", a, b)
	}
	early := metav1.NewTime(c.now.Add(-time.Hour))
	c.addPod("other", "other", target, object.Created(c.now))
	c.addJob("of-another-workload", "other", func(j *v1alpha1.PodMigrationJob) { // its successor has come only now
		j.Annotations = map[string]string{annotation.MigrationStartKey: annotation.Encode(annotation.MigrationStart{
			Time: early, Node: source, Workload: "another",
		})}
		j.Status.Phase, j.Status.PodRef = v1alpha1.PodMigrationJobSucceeded, j.Spec.PodRef
		j.Status.Conditions = []v1alpha1.PodMigrationJobCondition{{
			Type: move.Eviction, Status: metav1.ConditionTrue, Reason: move.EvictComplete, LastProbeTime: early,
		}}
	})
	c.run(10 * time.Second)
	if b := c.end("b"); b.New != "" {
		t.Fatalf("a pod that came before the eviction counts for job b: %+v", b)
	}
	c.addPod("late", "late", target, object.Created(c.now), used)
	c.run(10 * time.Second)
	if b := c.end("b"); b.Phase != "Succeeded" || b.New != "late" || b.Place {
		t.Errorf("job b ends as %+v", b)
	}
	for _, a := range c.pods.Actions() {
		if get, ok := a.(clienttesting.GetAction); ok && get.GetName() == "aged" {
			t.Fatal("a pod that came before all evictions is read")
		}
	}
}

// A pod in the place of a third job counts for one of two jobs that wait, also after that job gave its own place up.
func TestSuccessorOfAJobThatGaveItsPlaceUpIsNotThatOfAnother(t *testing.T) {
	t.Parallel()
	p := usual()
	p.refusedBefore, p.bound, p.replicas = 20*time.Second, -1, 40
	c := newCluster(t, p)
	for name, node := range map[string]string{"a": source, "b": source, "c": "n2"} {
		c.addPod("pod-"+name, "old-"+name, node)
		c.addJob(name, "pod-"+name)
	}
	c.run(5 * time.Second)
	r := c.place(c.job("c"))
	if c.place(c.job("a")) == nil || c.place(c.job("b")) == nil || r.Status.Phase != reservation.ReservationAvailable {
		t.Fatalf("the Reservation is %+v", r.Status)
	}
	for _, name := range []string{"a", "b"} {
		testkit.Check(t, c.terminate(c.pod("pod-"+name))) // another client deletes the pods
	}
	c.now = c.now.Add(time.Second)
	c.addUser("new", r, object.Created(c.now))
	c.run(10 * time.Second)
	a, b := c.end("a"), c.end("b")
	if a.Phase != "Succeeded" || a.New != "new" || a.Place || b.Phase != "Running" || b.New != "" || !b.Place {
		t.Errorf("while no other pod is there, job a is %+v and job b %+v", a, b)
	}
	c.plan.bound = 2
	c.run(2 * time.Minute)
	if b := c.end("b"); b.Phase != "Succeeded" || b.New != "new-pod-b" {
		t.Errorf("job b ends as %+v", b)
	}
}

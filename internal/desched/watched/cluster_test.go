package watched_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/desched/watched"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// set returns a cluster with a StatefulSet of four pods that serve, web-0 to web-3.
func set(t *testing.T) *watched.Cluster {
	t.Helper()
	c := watched.Empty()
	for _, r := range readRecorded(t) {
		if r.Name == "a StatefulSet at rest" {
			c.PutOwner(&unstructured.Unstructured{Object: r.Object})
		}
	}
	for _, name := range []string{"web-0", "web-1", "web-2", "web-3"} {
		c.PutPod(ownedPod(name, "apps/v1", "StatefulSet", "web"))
	}
	return c
}

func budget(name string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

func job(name, pod string, options ...func(*migration.PodMigrationJob)) *migration.PodMigrationJob {
	j := &migration.PodMigrationJob{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
		},
		Spec: migration.PodMigrationJobSpec{PodRef: &corev1.ObjectReference{Namespace: "default", Name: pod}},
	}
	for _, o := range options {
		o(j)
	}
	return j
}

// started is a job that runs since a minute ago.
func started(j *migration.PodMigrationJob) {
	j.Status.Phase = migration.PodMigrationJobRunning
	j.Spec.PodRef.UID = types.UID(j.Spec.PodRef.Name)
	j.Annotations = map[string]string{
		annotation.PassedArbitration: "true",
		annotation.MigrationStartKey: annotation.Encode(annotation.MigrationStart{
			Time: metav1.NewTime(now.Add(-time.Minute)), Node: "n0", Workload: "StatefulSet default/web",
		}),
	}
}

// TestWhatIsObservedRefuses: each kind of object has its effect, and none after it is gone.
func TestWhatIsObservedRefuses(t *testing.T) {
	t.Parallel()
	pod := func(change func(p *corev1.Pod)) func(c *watched.Cluster) {
		return func(c *watched.Cluster) {
			p := ownedPod("web-0", "apps/v1", "StatefulSet", "web")
			change(p)
			c.PutPod(p)
		}
	}
	atRest := pod(func(*corev1.Pod) {})
	none := func(*watched.Cluster) {}
	scaler := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "h"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
			APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web",
		}},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 4, DesiredReplicas: 3},
	}
	fast := evict.Policy{
		MaxMigratingPerWorkload:   evict.IntOrPercent{Number: 3},
		MaxUnavailablePerWorkload: evict.IntOrPercent{Number: 3},
	}
	tests := map[string]struct {
		put, remove func(c *watched.Cluster)
		settings    evict.Policy
		want        string
	}{
		"nothing refuses a pod that serves": {put: none, remove: none},
		"a budget of zero": {
			put:    func(c *watched.Cluster) { c.PutBudget(budget("b", 0)) },
			remove: func(c *watched.Cluster) { c.RemoveBudget(budget("b", 0)) }, want: "PDBViolation",
		},
		"two budgets, whatever they allow": {
			put: func(c *watched.Cluster) {
				c.PutBudget(budget("a", 9))
				c.PutBudget(budget("b", 9))
			},
			remove: func(c *watched.Cluster) { c.RemoveBudget(budget("b", 0)) }, want: "PDBViolation",
		},
		"a budget that another started job uses": {
			put: func(c *watched.Cluster) {
				c.PutBudget(budget("b", 1))
				c.PutJob(job("j", "web-1", started))
			},
			remove:   func(c *watched.Cluster) { c.RemoveJob(job("j", "web-1")) },
			settings: fast, want: "PDBViolation",
		},
		"an autoscaler that scales down": {
			put:    func(c *watched.Cluster) { c.PutScaler(scaler) },
			remove: func(c *watched.Cluster) { c.RemoveScaler(scaler) }, want: "ScalingDown",
		},
		"a DaemonSet's pod": {
			put: pod(func(p *corev1.Pod) {
				p.OwnerReferences[0].Kind = "DaemonSet"
			}), remove: atRest, want: "Protected BarePod",
		},
		"a static pod": {
			put: pod(func(p *corev1.Pod) {
				object.Annotate(p, corev1.MirrorPodAnnotationKey, "x")
			}), remove: atRest, want: "Protected BarePod",
		},
		"an eviction cost that forbids it": {
			put: pod(func(p *corev1.Pod) {
				object.Annotate(p, annotation.EvictionCost, "2147483647")
			}), remove: atRest, want: "Protected",
		},
		"an eviction cost that cannot be read": {
			put: pod(func(p *corev1.Pod) {
				object.Annotate(p, annotation.EvictionCost, "+7")
			}), remove: atRest, want: "LookupFailed",
		},
		"local storage": {
			put: pod(func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{
					{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				}
			}), remove: pod(func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{
					{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				}
				object.Annotate(p, annotation.Evictable, "false")
			}), want: "LocalStorage",
		},
		"a claimed volume where such pods are refused": {
			put: pod(func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
				}}}
			}), remove: atRest, settings: evict.Policy{IgnorePVCPods: true}, want: "PVC",
		},
		"an owner of another uid": {
			put:    pod(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "gone" }),
			remove: atRest, want: "LookupFailed",
		},
		"the only member of a gang moves as a whole gang": {
			put: pod(func(p *corev1.Pod) {
				object.Annotate(p, annotation.GangName, "g", annotation.GangMinAvailable, "1")
			}), remove: atRest, want: "",
		},
		"a pod that terminates": {
			put:    pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }),
			remove: atRest, want: "AlreadyEvicting",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := set(t)
			test.put(c)
			if got := codes(t, c, "web-0", test.settings); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if test.remove(c); codes(t, c, "web-0", test.settings) != "" {
				t.Errorf("after it is gone: got %q, want none", codes(t, c, "web-0", test.settings))
			}
		})
	}
}

// TestJobsAreReadFromTheirObjects: when a job started, and what it was about, is in its annotation; when it evicted and
// ended is in its conditions. Whole seconds are rounded against the descheduler.
func TestJobsAreReadFromTheirObjects(t *testing.T) {
	t.Parallel()
	at := func(seconds int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(seconds) * time.Second)) }
	c := set(t)
	waiting := job("a", "web-1")
	ended := job("b", "web-0", started, func(j *migration.PodMigrationJob) {
		j.Status = migration.PodMigrationJobStatus{
			Phase: migration.PodMigrationJobSucceeded, NodeName: "n7",
			Conditions: []migration.PodMigrationJobCondition{
				{
					Type: move.Eviction, Status: metav1.ConditionTrue,
					Reason: move.EvictComplete, LastProbeTime: at(-50), LastTransitionTime: at(-40),
				},
				{Type: "Ended", Status: metav1.ConditionTrue, LastTransitionTime: at(-30)},
			},
		}
	})
	c.PutJob(waiting)
	c.PutJob(ended)
	want := map[string]move.Job{
		"a": {
			UID: "a", Name: "a", PodUID: "web-1", PodName: "web-1", Namespace: "default",
			Workload: "StatefulSet default/web", Source: "n0", Created: now.Add(-time.Minute),
		},
		"b": {
			UID: "b", Name: "b", PodUID: "web-0", PodName: "web-0", Namespace: "default",
			Workload: "StatefulSet default/web", Source: "n0", Created: now.Add(-time.Minute),
			Started: now.Add(-time.Minute), Passed: true, Status: convert.MigrationJob(ended).Status,
		},
	}
	c.Read(func(s *evict.State) {
		for uid, w := range want {
			got, _ := s.Job(uid)
			if diff := cmp.Diff(w, got); diff != "" {
				t.Errorf("job %s (-want +got):\n%s", uid, diff)
			}
		}
	})
}

// TestAStaleStateOfAJobIsIgnored: the answer to a write is put at once, and an event of the time before comes later.
func TestAStaleStateOfAJobIsIgnored(t *testing.T) {
	t.Parallel()
	c := set(t)
	versioned := func(version string, options ...func(*migration.PodMigrationJob)) *migration.PodMigrationJob {
		j := job("a", "web-1", options...)
		j.ResourceVersion = version
		return j
	}
	c.PutJob(versioned("9"))
	c.PutJob(versioned("10", started))
	c.PutJob(versioned("9"))
	c.Read(func(s *evict.State) {
		if j, _ := s.Job("a"); !j.IsRunning() {
			t.Errorf("got %+v, want that the job has started", j)
		}
	})
}

// TestNothingIsEvictedBeforeTheCachesAreSynced: each kind that is not synced is named.
func TestNothingIsEvictedBeforeTheCachesAreSynced(t *testing.T) {
	t.Parallel()
	c, err := watched.New(&rest.Config{Host: "http://server.invalid"}, fake.NewClientset())
	testkit.Check(t, err)
	if got := codes(t, c, "web-0", evict.Policy{}); got != "LookupFailed" {
		t.Errorf("got %q, want LookupFailed", got)
	}
	if got := c.Unsynced(); len(got) != 11 {
		t.Errorf("got %d unsynced kinds %v, want 11", len(got), got)
	}
}

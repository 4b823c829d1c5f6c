package grouping

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
)

// TestObjectsThatKueueSuspends: an object is created suspended, admitted, evicted and admitted again, with selectors of
// nodes and less parallelism where Kueue writes these. Its PodGroups are created with the first admission. They keep
// their minimum without pods, and have that of the object when it is admitted again.
func TestObjectsThatKueueSuspends(t *testing.T) {
	t.Parallel()
	const spec = `"spec": {"schedulerName": "tenon-scheduler"}`
	for name, c := range map[string]struct {
		object, admit, again string // a suspended object, and the patches that admit it
		labels               func(i int) map[string]string
		pod                  string // the gang of pod 0
		first, second        []string
	}{
		"a PyTorchJob": {
			`{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "p", "labels":
			{"kueue.x-k8s.io/queue-name": "q"}}, "spec": {"runPolicy": {"suspend": true}, "pytorchReplicaSpecs":
			{"Worker": {"replicas": 3, "template": {` + spec + `}}}}}`,
			`{"spec": {"runPolicy": {"suspend": false}}}`,
			`{"spec": {"runPolicy": {"suspend": false}, "pytorchReplicaSpecs": {"Worker": {"template": {"spec":
			{"nodeSelector": {"cloud": "b"}}}}}}}`,
			func(i int) map[string]string {
				return map[string]string{
					"training.kubeflow.org/job-name": "p", "training.kubeflow.org/replica-type": "worker",
					"training.kubeflow.org/replica-index": fmt.Sprint(i),
				}
			},
			"p-worker",
			[]string{"p-worker 3 of p"},
			[]string{"p-worker 3 of p"},
		},
		"a JobSet": {
			`{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}, "spec": {
			"suspend": true, "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {"parallelism": 3,
			"completions": 3, "template": {` + spec + `}}}}]}}`,
			`{"spec": {"suspend": false}}`,
			`{"spec": {"suspend": false, "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {
			"parallelism": 3, "completions": 3, "template": {"spec": {"schedulerName": "tenon-scheduler",
			"nodeSelector": {"cloud": "b"}}}}}}]}}`,
			func(int) map[string]string {
				return map[string]string{
					"jobset.sigs.k8s.io/jobset-name": "j", "jobset.sigs.k8s.io/replicatedjob-name": "w",
					"jobset.sigs.k8s.io/job-index": "0", "jobset.sigs.k8s.io/restart-attempt": "0",
				}
			},
			"j-w-0",
			[]string{"j-w-0 3 of j"},
			[]string{"j-w-0 3 of j"},
		},
		"a Job that wants a gang and is admitted in part": {
			`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b", "annotations": {"tenon.sh/gang-min":
			"all", "kueue.x-k8s.io/job-min-parallelism": "2"}}, "spec": {"suspend": true, "parallelism": 3,
			"completions": 3, "completionMode": "Indexed", "template": {` + spec + `}}}`,
			`{"spec": {"suspend": false}}`, `{"spec": {"suspend": false, "parallelism": 2}}`,
			func(int) map[string]string { return map[string]string{"batch.kubernetes.io/job-name": "b"} },
			"b",
			[]string{"b 3 of b"},
			[]string{"b 2 of b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				suspended := `{"spec": {"suspend": true}}`
				o := w.create(c.object, nil)
				if o.GetKind() == "PyTorchJob" {
					suspended = `{"spec": {"runPolicy": {"suspend": true}}}`
				}
				owner := o
				if o.GetKind() == "JobSet" {
					owner = w.create(`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j-w-0"}, `+
						`"spec": {}}`, o)
				}
				create := func(round string, n int) {
					for i := range n {
						p := member(fmt.Sprint(round, i), owner, c.labels(i))
						p.Labels["kueue.x-k8s.io/podset"] = "main"
						w.admit(p)
						if got := w.gangOf(p.Name); got != c.pod {
							t.Errorf("%s is in %q, want %s", p.Name, got, c.pod)
						}
					}
				}
				w.want("created suspended")
				w.patch(o, c.admit)
				create("first", 3)
				w.want("admitted", c.first...)
				w.patch(o, suspended) // Kueue evicts it
				for i := range 3 {
					w.remove(podResource, fmt.Sprint("first", i))
				}
				w.want("evicted", c.first...)
				w.patch(o, c.again)
				create("second", 2)
				w.want("admitted again", c.second...)
			})
		})
	}
}

// TestPodsWithGatesOfKueue: gates do not change in which gang a pod is, and taking them away changes no label.
func TestPodsWithGatesOfKueue(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		r := w.create(ray("", group("a", 2, 0)), nil)
		p := rayPod("a0", r, "a")
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}}
		before := w.admit(p)
		if got := w.gangOf("a0"); got != "r-a" {
			t.Errorf("with a gate the pod is in %q", got)
		}
		w.patch(before, `{"spec": {"schedulingGates": null, "nodeSelector": {"kubernetes.io/hostname": "n0"}}}`)
		after := w.pod("a0")
		if after.GetLabels()[annotation.PodGroup] != "r-a" || len(after.GetLabels()) != len(before.GetLabels()) {
			t.Errorf("without the gate its labels are %v", after.GetLabels())
		}
		w.want("with and without gates", "r-a 2 of r with default/r-headgroup,default/r-a",
			"r-headgroup 1 of r with default/r-headgroup,default/r-a")
	})
}

// TestPlainPodGroupsOfKueue: they have no owner, and the scheduler itself reads their group.
func TestPlainPodGroupsOfKueue(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		p := member("k0", nil, map[string]string{annotation.KueueGroup: "k"})
		p.Annotations = map[string]string{annotation.KueueGroupTotal: "3"}
		w.admit(p)
		if got := w.gangOf("k0"); got != "" {
			t.Errorf("the pod is in %q", got)
		}
		w.want("of a plain pod group")
	})
}

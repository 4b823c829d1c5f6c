package simoperator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/testkit"
)

// withObjects returns an operator of a cluster with some objects, whose informers have them.
func withObjects(t *testing.T, objects ...*unstructured.Unstructured) *Operator {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for _, k := range append(kinds(), created()...) {
		lists[k.resource()] = k.kind + "List"
	}
	given := make([]runtime.Object, len(objects))
	for i, u := range objects {
		given[i] = u
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, given...)
	o := newOperator(client, func(text string) { t.Log(text) })
	for _, u := range objects {
		o.see(t, u)
	}
	return o
}

// see adds an object to the cache of its kind.
func (o *Operator) see(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	testkit.Check(t, o.informers[u.GroupVersionKind().GroupKind()].GetStore().Add(u))
}

func parsed(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	content, err := yaml.YAMLToJSON([]byte(text))
	testkit.Check(t, err)
	testkit.Check(t, u.UnmarshalJSON(content)) // whole numbers are int64
	u.SetNamespace("default")
	u.SetUID(types.UID("uid-of-" + u.GetName()))
	return u
}

// shown describes what an object should have: KIND/NAME of each child, with its owner where that is another object, and
// labels by the end of their keys.
func (o *Operator) shown(t *testing.T, u *unstructured.Unstructured, labels ...string) string {
	t.Helper()
	children, err := o.wanted(u)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, c := range children {
		text := keyOf(c.Unstructured)
		if c.owner != u {
			text += " of " + c.owner.GetName()
		}
		if c.waits {
			text += " waits"
		}
		all := c.GetLabels()
		if template, has, _ := unstructured.NestedStringMap(c.Object, "spec", "template", "metadata", "labels"); has {
			all = template
		}
		for key, value := range all {
			if slices.Contains(labels, key[strings.LastIndex(key, "/")+1:]) {
				text += fmt.Sprintf(" %s", value)
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// run adds a pod in a phase to the cache of pods.
func run(t *testing.T, o *Operator, owner *unstructured.Unstructured, name, phase string) {
	t.Helper()
	u := parsed(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, status: {phase: %s}}", name, phase))
	u.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	o.see(t, u)
}

const template = `template: {spec: {containers: [{name: c, image: i}]}}`

func TestPodsOfThemselves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ object, label, want string }{
		"a PyTorchJob": {
			`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: p}, spec: {pytorchReplicaSpecs: {
			Master: {` + template + `}, Worker: {replicas: 2, ` + template + `}}}}`, "replica-type",
			"Pod/p-master-0 master, Pod/p-worker-0 worker, Pod/p-worker-1 worker",
		},
		"a RayCluster": {
			`{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: r}, spec: {headGroupSpec: {` + template + `},
			workerGroupSpecs: [{groupName: a, replicas: 2, ` + template + `}]}}`, "group",
			"Pod/r-head-0 headgroup, Pod/r-a-worker-0 a, Pod/r-a-worker-1 a",
		},
		"one that is suspended": {
			`{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: r}, spec: {suspend: true,
			headGroupSpec: {` + template + `}}}`, "", "",
		},
		"one without a template": {
			`{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: r}, spec: {headGroupSpec: {}}}`, "",
			"the template of the pods of role headgroup is missing",
		},
		"Jobs of a JobSet": {
			`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j}, spec: {replicatedJobs: [
			{name: d, template: {spec: {` + template + `}}},
			{name: w, replicas: 2, template: {spec: {parallelism: 3, completions: 3, ` + template + `}}}]}}`,
			"job-index",
			"Job/j-d-0 0, Job/j-w-0 0, Job/j-w-1 1",
		},
		"Jobs in order": {
			`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j}, spec: {
			startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [
			{name: d, template: {spec: {` + template + `}}}, {name: w, template: {spec: {` + template + `}}}]}}`, "",
			"Job/j-d-0, Job/j-w-0 waits",
		},
		"a TrainJob without its runtime": {
			`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: f}, spec: {
			runtimeRef: {name: torch}}}`, "", "ClusterTrainingRuntime torch does not exist",
		},
		"a TrainJob of a kind that no runtime has": {
			`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: f}, spec: {
			runtimeRef: {kind: Thing, name: torch}}}`, "", `spec.runtimeRef.kind: "Thing" is not allowed`,
		},
	} {
		o := withObjects(t)
		if got := o.shown(t, parsed(t, c.object), c.label); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestALauncherWaitsForItsWorkers(t *testing.T) {
	t.Parallel()
	job := parsed(t, `{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: m}, spec: {
		launcherCreationPolicy: WaitForWorkersReady,
		mpiReplicaSpecs: {Launcher: {`+template+`}, Worker: {replicas: 2, `+template+`}}}}`)
	o := withObjects(t, job)
	if got, want := o.shown(t, job), "Pod/m-worker-0, Pod/m-worker-1, Job/m-launcher waits"; got != want {
		t.Errorf("at first: got %s, want %s", got, want)
	}
	run(t, o, job, "m-worker-0", "Running")
	run(t, o, job, "m-worker-1", "Pending")
	if got := o.shown(t, job); !strings.HasSuffix(got, "waits") {
		t.Errorf("with a worker that is pending: got %s", got)
	}
	run(t, o, job, "m-worker-1", "Running")
	if got := o.shown(t, job); strings.HasSuffix(got, "waits") {
		t.Errorf("with all workers: got %s", got)
	}
}

func TestASubmitterWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	job := parsed(t, `{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j}, spec: {
		rayClusterSpec: {headGroupSpec: {`+template+`}}}}`)
	o := withObjects(t, job)
	if got, want := o.shown(t, job), "RayCluster/j, Job/j waits"; got != want {
		t.Errorf("at first: got %s, want %s", got, want)
	}
	cluster := parsed(t, `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: j}, spec: {headGroupSpec: {`+
		template+`}}}`)
	o.see(t, cluster)
	if got := o.shown(t, job); !strings.HasSuffix(got, "waits") {
		t.Errorf("without a head: got %s", got)
	}
	run(t, o, cluster, "j-head-0", "Running")
	if got := o.shown(t, job); strings.HasSuffix(got, "waits") {
		t.Errorf("with a head: got %s", got)
	}
}

func TestATrainJobBecomesAJobSet(t *testing.T) {
	t.Parallel()
	job := parsed(t, `{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: f}, spec: {
		runtimeRef: {name: torch}, trainer: {numNodes: 3}}}`)
	runtime := parsed(t, `{apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime,
		metadata: {name: torch}, spec: {template: {spec: {replicatedJobs: [{name: node, template: {
		metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {`+template+`}}}]}}}}`)
	runtime.SetNamespace("")
	o := withObjects(t, job, runtime)
	if got := o.shown(t, job); got != "JobSet/f" {
		t.Fatalf("got %s", got)
	}
	children, err := o.wanted(job)
	testkit.Check(t, err)
	if got := o.shown(t, children[0].Unstructured); got != "Job/f-node-0" {
		t.Errorf("its JobSet has %s", got)
	}
}

func TestTheWorkersOfALeader(t *testing.T) {
	t.Parallel()
	object := func(policy string) *unstructured.Unstructured {
		return parsed(t, `{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: l}, spec: {
			replicas: 2, startupPolicy: `+policy+`, leaderWorkerTemplate: {size: 3, workerTemplate: {spec: {
			containers: [{name: c, image: i}]}}}}}`)
	}
	for policy, phases := range map[string]map[string]string{
		"LeaderCreated": {"Pending": "StatefulSet/l 0, StatefulSet/l-1 of l-1 1"},
		"LeaderReady": {
			"Pending": "StatefulSet/l 0, StatefulSet/l-1 of l-1 waits 1",
			"Running": "StatefulSet/l 0, StatefulSet/l-1 of l-1 1",
		},
	} {
		set := object(policy)
		o := withObjects(t, set)
		if got := o.shown(t, set, "worker-index", "group-index"); got != "StatefulSet/l 0" {
			t.Errorf("%s: without a leader: got %s", policy, got)
		}
		for phase, want := range phases {
			run(t, o, set, "l-1", phase)
			if got := o.shown(t, set, "worker-index", "group-index"); got != want {
				t.Errorf("%s: got %s, want %s", policy, got, want)
			}
		}
	}
}

func TestTheExecutorsOfADriver(t *testing.T) {
	t.Parallel()
	app := parsed(t, `{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, metadata: {name: s}, spec: {
		batchScheduler: tenon-scheduler, driver: {cores: 1, memory: 512m},
		executor: {instances: 2, coreRequest: 1500m, memory: 2g, memoryOverhead: 1g}}}`)
	o := withObjects(t, app)
	if got, want := o.shown(t, app), "PodGroup/spark-s-pg, Pod/s-driver"; got != want {
		t.Errorf("at first: got %s, want %s", got, want)
	}
	children, err := o.wanted(app)
	testkit.Check(t, err)
	least, _, _ := unstructured.NestedStringMap(children[0].Object, "spec", "minResources")
	if least["cpu"] != "4" || least["memory"] != "7040Mi" {
		t.Errorf("its PodGroup requires %v", least)
	}
	if name, _, _ := unstructured.NestedString(children[1].Object, "spec", "schedulerName"); name != "tenon-scheduler" {
		t.Errorf("the driver has the scheduler %q", name)
	}
	run(t, o, app, "s-driver", "Running")
	want := "PodGroup/spark-s-pg, Pod/s-driver driver, Pod/s-exec-1 of s-driver executor, " +
		"Pod/s-exec-2 of s-driver executor"
	if got := o.shown(t, app, "spark-role"); got != want {
		t.Errorf("with a driver: got %s, want %s", got, want)
	}
	for text, want := range map[string]string{
		"512m": "512Mi", "2g": "2Gi", "1GB": "1Gi", "300": "300Mi", "64k": "64Ki",
	} {
		if got, err := sparkMemory(text); err != nil || got.String() != want {
			t.Errorf("%s is read as %s, %v, want %s", text, got.String(), err, want)
		}
	}
}

// TestObjectsFollowTheirOwner creates, scales down and deletes through a client.
func TestObjectsFollowTheirOwner(t *testing.T) {
	t.Parallel()
	cluster := parsed(t, `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: r}, spec: {
		headGroupSpec: {`+template+`}, workerGroupSpecs: [{groupName: a, replicas: 1, `+template+`}]}}`)
	o := withObjects(t, cluster)
	if !o.syncAll(t.Context()) {
		t.Fatal("pods are not created")
	}
	pods := func() (names []string) {
		list, err := o.client.Resource(kind{"", "v1", "Pod", false}.resource()).List(t.Context(), metav1.ListOptions{})
		testkit.Check(t, err)
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
			o.see(t, &list.Items[i])
		}
		slices.Sort(names)
		return names
	}
	if got := strings.Join(pods(), " "); got != "r-a-worker-0 r-head-0" {
		t.Errorf("got %s", got)
	}
	cluster.Object["spec"].(map[string]any)["suspend"] = true
	if !o.syncAll(t.Context()) || len(pods()) > 0 {
		t.Errorf("a suspended cluster has %v", pods())
	}
}

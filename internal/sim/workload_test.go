package sim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

const (
	cpuTemplate = `{spec: {schedulerName: tenon-scheduler, restartPolicy: Never, containers: [{name: c, image: i, ` +
		`resources: {requests: {cpu: 1}}}]}}`
	torchJob    = "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: p%s}, spec: {%s}}\n---\n"
	mpiJob      = "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: m}, spec: {%s}}\n---\n"
	rayCRD      = "{apiVersion: ray.io/v1, kind: %s, metadata: {name: r%s}, spec: {%s}}\n---\n"
	batchObject = "{apiVersion: batch/v1, kind: %s, metadata: {name: b, uid: u}, spec: {%s}, status: {%s}}\n---\n"
	jobSetCRD   = "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: js%s}, spec: {%s}}\n---\n"
)

// volcanoJob is a Job of Volcano whose one task names no scheduler.
func volcanoJob(field string) string {
	return "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: v}, spec: {" + field +
		"minAvailable: 4, tasks: [{name: w, replicas: 4, template: " +
		strings.Replace(cpuTemplate, "schedulerName: tenon-scheduler, ", "", 1) + "}]}}"
}

// oneNode is a node with so many CPUs.
func oneNode(cpus int) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {allocatable: {cpu: %d, memory: "+
		"64Gi, "+
		"pods: \"200\"}}}\n---\n", cpus)
}

func replicas(role string, n int) string {
	return fmt.Sprintf("%s: {replicas: %d, template: %s}", role, n, cpuTemplate)
}

func workers(name, more string) string {
	return fmt.Sprintf("{groupName: %s, %s, template: %s}", name, more, cpuTemplate)
}

func rayCluster(meta, flags string, groups ...string) string {
	return fmt.Sprintf(rayCRD, "RayCluster", meta, flags+"headGroupSpec: {template: "+cpuTemplate+"}, "+
		"workerGroupSpecs: ["+
		strings.Join(groups, ", ")+"]")
}

// statesOf are name, state and reason of each pod, those of equal state together.
func statesOf(r Result) string {
	byState := map[string][]string{}
	var states []string
	for _, p := range r.Pods {
		state := p.State
		for _, reason := range p.Reasons {
			if reason.Code.String() != "NoVictims" {
				state += " " + reason.Code.String()
			}
		}
		if byState[state] == nil {
			states = append(states, state)
		}
		byState[state] = append(byState[state], p.Name)
	}
	slices.Sort(states)
	var parts []string
	for _, state := range states {
		parts = append(parts, state+": "+strings.Join(byState[state], " "))
	}
	return strings.Join(parts, "; ")
}

// TestObjectsOfOperators expands objects as their operators would, in gangs of their roles. says are lines of standard
// error.
func TestObjectsOfOperators(t *testing.T) {
	t.Parallel()
	const waits = "Waiting GangSiblingFailed: "
	trainer := "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: %s, metadata: {name: %s}, spec: {%s}}\n---\n"
	runtime := fmt.Sprintf(trainer, "ClusterTrainingRuntime", "torch",
		"mlPolicy: {numNodes: 1}, template: {spec: {replicatedJobs: "+
			"[{name: init, template: {spec: {template: "+cpuTemplate+"}}}, {name: node, dependsOn: [{name: init, "+
			"status: Complete}], "+
			"template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: "+
			strings.Replace(cpuTemplate, "name: c", "name: node", 1)+"}}}]}}")
	for name, c := range map[string]struct {
		cpus     int
		in, want string
		says     []string
	}{
		"a PyTorchJob with room for 3 of 4": {
			3, fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {"+replicas("Master", 1)+", "+replicas("Worker", 3)+"}"),
			waits + "p-master-0 p-worker-0 p-worker-1 p-worker-2",
			[]string{"PyTorchJob p: gangs p-master 1, p-worker 3, by rule kubeflow.org/PyTorchJob; label " +
				"tenon.sh/gang=off stops it"},
		},
		"a PyTorchJob that opts out": {
			3, fmt.Sprintf(torchJob, ", labels: {tenon.sh/gang: \"off\"}",
				"pytorchReplicaSpecs: {"+replicas("Master", 1)+", "+replicas("Worker", 3)+"}"),
			"Scheduled: p-master-0 p-worker-0 p-worker-1; Unschedulable InsufficientCPU: p-worker-2", nil,
		},
		"a namespace that opts out": {
			3, "{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {tenon.sh/gang: \"off\"}}}\n---\n" +
				fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {"+replicas("Worker", 4)+"}"),
			"Scheduled: p-worker-0 p-worker-1 p-worker-2; Unschedulable InsufficientCPU: p-worker-3", nil,
		},
		"an MPIJob whose launcher comes later": {
			2, fmt.Sprintf(mpiJob, "launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: "+
				"{"+replicas("Launcher", 1)+", "+
				replicas("Worker", 2)+"}"),
			"Scheduled: m-launcher-0; Waiting GangSiblingFailed: m-worker-0 m-worker-1",
			[]string{"MPIJob m: gangs m-worker 2, by rule kubeflow.org/MPIJob; label tenon.sh/gang=off stops it"},
		},
		"a RayCluster with an autoscaler": {
			3, rayCluster("", "enableInTreeAutoscaling: true, ", workers("a", "replicas: 3, minReplicas: 1"),
				workers("b", "replicas: 2, minReplicas: 0")),
			"Scheduled: r-a-worker-0 r-a-worker-1 r-head-0; Unschedulable InsufficientCPU: r-a-worker-2 " +
				"r-b-worker-0 r-b-worker-1",
			[]string{
				"RayCluster r: spec.enableInTreeAutoscaling is not read in full: the head lacks the autoscaler's " +
					"container",
				"RayCluster r: gangs r-headgroup 1, r-a 1 of 3, by rule ray.io/RayCluster; label " +
					"tenon.sh/gang=off stops it",
			},
		},
		"a RayCluster without an autoscaler": {
			5, rayCluster("", "", workers("a", "replicas: 3, minReplicas: 1"), workers("b",
				"replicas: 2, minReplicas: 0")),
			waits + "r-a-worker-0 r-a-worker-1 r-a-worker-2 r-b-worker-0 r-b-worker-1 r-head-0", nil,
		},
		"a group that is suspended": {
			4, rayCluster("", "", workers("a", "replicas: 3"), workers("b", "replicas: 2, suspend: true")),
			"Scheduled: r-a-worker-0 r-a-worker-1 r-a-worker-2 r-head-0", nil,
		},
		"a RayCluster that is suspended": {
			4, rayCluster("", "suspend: true, ", workers("a", "replicas: 3")), "",
			[]string{"RayCluster r is suspended and has no pods"},
		},
		"a RayJob": {
			8, fmt.Sprintf(rayCRD, "RayJob", "", "rayClusterSpec: {headGroupSpec: {template: "+cpuTemplate+"}, "+
				"workerGroupSpecs: ["+
				workers("a", "replicas: 2")+"]}"),
			"Scheduled: r-a-worker-0 r-a-worker-1 r-head-0 r-submitter-0",
			[]string{"RayCluster r: gangs r-headgroup 1, r-a 2, by rule ray.io/RayCluster; label tenon.sh/gang=off " +
				"stops it"},
		},
		"a JobSet": {
			4, fmt.Sprintf(jobSetCRD, "", "replicatedJobs: [{name: driver, template: {spec: "+
				"{template: "+cpuTemplate+"}}}, {name: workers, "+
				"replicas: 2, template: {spec: {parallelism: 2, completions: 2, completionMode: Indexed, "+
				"template: "+cpuTemplate+"}}}]"),
			waits + "js-driver-0-0 js-workers-0-0 js-workers-0-1 js-workers-1-0 js-workers-1-1",
			[]string{"JobSet js: gangs js-driver-0 1, js-workers-0 4, by rule jobset.x-k8s.io/JobSet; label " +
				"tenon.sh/gang=off stops it"},
		},
		"a JobSet whose workers depend on the driver": {
			4, fmt.Sprintf(jobSetCRD, "", "replicatedJobs: [{name: driver, template: {spec: "+
				"{template: "+cpuTemplate+"}}}, {name: workers, "+
				"dependsOn: [{name: driver, status: Ready}], replicas: 2, template: {spec: {parallelism: 2, "+
				"completions: 2, template: "+
				cpuTemplate+"}}}]"),
			"Scheduled: js-driver-0-0; Waiting GangSiblingFailed: js-workers-0-0 js-workers-0-1 js-workers-1-0 " +
				"js-workers-1-1", nil,
		},
		"a JobSet that asks for a gang": {
			3, fmt.Sprintf(jobSetCRD, ", annotations: {tenon.sh/gang-min: all}",
				"replicatedJobs: [{name: w, template: {spec: "+
					"{parallelism: 4, completions: 5, template: "+cpuTemplate+"}}}]"),
			waits + "js-w-0-0 js-w-0-1 js-w-0-2 js-w-0-3", nil,
		},
		"a Job": {
			3, "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 4, completions: 4, " +
				"template: " + cpuTemplate + "}}",
			"Scheduled: j-0 j-1 j-2; Unschedulable InsufficientCPU: j-3",
			[]string{"Job j: pods start one by one; tenon.sh/gang-min starts them together"},
		},
		"a Job that asks for a gang": {
			3, "{apiVersion: batch/v1, kind: Job, metadata: {name: j, annotations: {tenon.sh/gang-min: all}}, spec: " +
				"{parallelism: 4, template: " + cpuTemplate + "}}",
			waits + "j-0 j-1 j-2 j-3",
			[]string{"Job j: gangs j 4, by rule batch/Job; label tenon.sh/gang=off stops it"},
		},
		"a StatefulSet that asks for a gang and is created in order": {
			3, "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s, annotations: {tenon.sh/gang-min: " +
				"all}}, spec: " +
				"{replicas: 4, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
				"{containers: " +
				"[{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}}",
			"Scheduled: s-0 s-1 s-2; Unschedulable InsufficientCPU: s-3",
			[]string{"StatefulSet s: pods start one by one: its pods are created one after the other"},
		},
		"a TrainJob": {
			3, fmt.Sprintf(trainer, "TrainJob", "t", "runtimeRef: {name: torch}, trainer: {numNodes: 2, "+
				"resourcesPerNode: "+
				"{requests: {cpu: 2}}}") + runtime,
			"Scheduled: t-init-0-0; Waiting GangSiblingFailed: t-node-0-0 t-node-0-1",
			[]string{"JobSet t: gangs t-node-0 2, by rule jobset.x-k8s.io/JobSet; label tenon.sh/gang=off stops it"},
		},
		"a TrainJob whose runtime is not there": {
			3, fmt.Sprintf(trainer, "TrainJob", "t", "runtimeRef: {name: torch}"), "",
			[]string{"TrainJob t: ClusterTrainingRuntime torch is not in the input"},
		},
		"a TrainJob that changes its pods": {
			3, runtime + fmt.Sprintf(trainer, "TrainJob", "t", "runtimeRef: {name: torch}, "+
				"runtimePatches: [{manager: m}], podTemplateOverrides: []"),
			"Scheduled: t-init-0-0 t-node-0-0",
			[]string{"TrainJob t: spec.runtimePatches is not read in full: its pods lack what it changes"},
		},
		"an AppWrapper": {
			1, "{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: aw}, spec: " +
				"{components: [{template: " +
				strings.TrimSuffix(fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {"+replicas("Worker", 2)+"}"),
					"\n---\n") + "}]}}",
			waits + "p-worker-0 p-worker-1", nil,
		},
		"a MiniCluster": {
			3, "{apiVersion: flux-framework.org/v1alpha2, kind: MiniCluster, metadata: {name: f}, spec: {size: 4, " +
				"containers: " +
				"[{image: i, command: sleep 9, resources: {requests: {cpu: 1}}}], pod: {schedulerName: " +
				"tenon-scheduler}}}",
			waits + "f-0 f-1 f-2 f-3", nil,
		},
		"a Volcano Job for Tenon": {
			3, "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: v}, spec: {minAvailable: 4, " +
				"tasks: " +
				"[{name: w, replicas: 4, template: " + cpuTemplate + "}]}}",
			waits + "v-w-0 v-w-1 v-w-2 v-w-3", nil,
		},
		"a LeaderWorkerSet whose leader takes a rack before its workers are created": {
			2, "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: l, annotations: " +
				"{leaderworkerset.sigs.k8s.io/exclusive-topology: rack}}, spec: {leaderWorkerTemplate: {size: 3, " +
				"workerTemplate: " + cpuTemplate + "}}}\n---\n",
			"Scheduled: l-0; Waiting GangSiblingFailed: l-0-1 l-0-2",
			[]string{"LeaderWorkerSet l: gangs l-0 2, by rule leaderworkerset.x-k8s.io/LeaderWorkerSet; label " +
				"tenon.sh/gang=off stops it"},
		},
		"a JobSet whose first pods take a rack each before the others are created": {
			1, fmt.Sprintf(jobSetCRD, ", annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}",
				"replicatedJobs: [{name: w, template: {spec: {parallelism: 2, completions: 2, template: "+
					cpuTemplate+"}}}]"),
			"Scheduled: js-w-0-0; Unschedulable InsufficientCPU: js-w-0-1", nil,
		},
		"a Volcano Job that names Tenon for tasks without a scheduler": {
			3, volcanoJob("schedulerName: tenon-scheduler, "),
			waits + "v-w-0 v-w-1 v-w-2 v-w-3",
			[]string{"Job v: gangs v-w 4, by rule batch.volcano.sh/Job; label tenon.sh/gang=off stops it"},
		},
		"a Volcano Job that names Volcano": {
			4, volcanoJob("schedulerName: volcano, "), "Unschedulable NoScheduler: v-w-0 v-w-1 v-w-2 v-w-3", nil,
		},
		"a Volcano Job without a scheduler": {
			4, volcanoJob(""), "Unschedulable NoScheduler: v-w-0 v-w-1 v-w-2 v-w-3", nil,
		},
		"a Job that is suspended": {
			4, fmt.Sprintf(batchObject, "Job", "parallelism: 2, suspend: true, template: "+cpuTemplate, ""), "",
			[]string{"Job b is suspended and creates no pods"},
		},
		"a Job that has finished": {
			4, fmt.Sprintf(batchObject, "Job", "parallelism: 2, template: "+cpuTemplate,
				"conditions: [{type: Complete, status: \"True\"}]"), "",
			[]string{"Job b has finished and creates no pods"},
		},
		"a CronJob that is suspended": {
			4, fmt.Sprintf(batchObject, "CronJob", "schedule: \"@daily\", suspend: true, jobTemplate: {spec: "+
				"{template: "+cpuTemplate+"}}", ""), "",
			[]string{"CronJob b is suspended and creates no Jobs"},
		},
		"a CronJob of suspended Jobs": {
			4, fmt.Sprintf(batchObject, "CronJob", "schedule: \"@daily\", jobTemplate: {spec: {suspend: true, "+
				"template: "+cpuTemplate+"}}", ""), "",
			[]string{"CronJob b: its Jobs are suspended and create no pods"},
		},
		"a CronJob one of whose Jobs runs": {
			4, fmt.Sprintf(batchObject, "CronJob", "schedule: \"@daily\", jobTemplate: {spec: {template: "+cpuTemplate+
				"}}", "") + "{apiVersion: batch/v1, kind: Job, metadata: {name: b-1, ownerReferences: [{apiVersion: " +
				"batch/v1, kind: CronJob, name: b, uid: u, controller: true}]}, spec: {suspend: true, template: " +
				cpuTemplate + "}}\n---\n", "",
			[]string{
				"CronJob b: one of its Jobs has not finished, so no other one is added",
				"Job b-1 is suspended and creates no pods",
			},
		},
		"pods of a scheduler that is not served": {
			9, fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {Worker: {replicas: 2, template: {spec: "+
				"{schedulerName: other, "+
				"containers: [{name: c, image: i}]}}}}"),
			"Unschedulable NoScheduler: p-worker-0 p-worker-1", nil,
		},
	} {
		r, warn := simulate(t, oneNode(c.cpus)+c.in, "-")
		if diff := cmp.Diff(c.want, statesOf(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		want := strings.Join(c.says, "\n")
		if got := strings.TrimSpace(warn); c.says != nil && got != want {
			t.Errorf("%s: standard error\n%swant\n%s", name, warn, want)
		}
	}
}

// TestPodsThatAnOperatorHasMade: they count, with their Jobs and StatefulSets between, and are members of the gangs.
func TestPodsThatAnOperatorHasMade(t *testing.T) {
	t.Parallel()
	made := func(kind, owner, uid, name, labels, node string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, uid: u-%[1]s, labels: {%s}, "+
			"ownerReferences: [{%s, "+
			"name: %s, uid: %q, controller: true}]}, spec: {schedulerName: tenon-scheduler, priority: 0, nodeName: "+
			"%q, "+
			"containers: [{name: c, image: i, resources: {requests: {cpu: "+
			"1}}}]}}\n---\n", name, labels, kind, owner, uid, node)
	}
	const ray = "apiVersion: ray.io/v1, kind: RayCluster"
	head := made(ray, "r", "cluster", "r-head-xyz", "ray.io/cluster: r, ray.io/group: headgroup, ray.io/node-type: "+
		"head", "n0")
	one := made(ray, "r", "cluster", "r-a-xyz", "ray.io/cluster: r, ray.io/group: a, ray.io/node-type: worker", "")
	cluster := rayCluster(", uid: cluster", "", workers("a", "replicas: 3"))
	job := "{apiVersion: batch/v1, kind: Job, metadata: {name: js-w-0, ownerReferences: [{apiVersion: " +
		"jobset.x-k8s.io/v1alpha2, " +
		"kind: JobSet, name: js, uid: set, controller: true}]}, spec: {parallelism: 3, completions: 3, " +
		"completionMode: Indexed, " +
		"template: {metadata: {labels: {jobset.sigs.k8s.io/jobset-name: js, jobset.sigs.k8s.io/replicatedjob-name: " +
		"w, " +
		"jobset.sigs.k8s.io/job-index: \"0\", jobset.sigs.k8s.io/restart-attempt: \"0\"}}, " + cpuTemplate[1:] +
		"}}\n---\n"
	group := func(meta string) string {
		return "{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: r-a" + meta +
			"}, spec: {minMember: 1}}\n---\n"
	}
	for name, c := range map[string]struct {
		cpus           int
		in, want, gang string
	}{
		"all but two are missing, and fit": {
			4, cluster + head + one, "Existing: r-head-xyz; Scheduled: r-a-worker-0 r-a-worker-1 r-a-xyz",
			"default/r-a 3/3, default/r-headgroup 1/1",
		},
		"one does not fit": {
			3, cluster + head + one, "Existing: r-head-xyz; Waiting GangSiblingFailed: r-a-worker-0 r-a-worker-1 " +
				"r-a-xyz",
			"default/r-a 3/3, default/r-headgroup 1/1",
		},
		"a pod of another cluster": {
			4, cluster + made(ray, "r", "other", "r-a-old", "ray.io/cluster: r, ray.io/group: a, ray.io/node-type: "+
				"worker", ""),
			"Scheduled: r-a-worker-0 r-a-worker-1 r-a-worker-2 r-head-0; Unschedulable InsufficientCPU: r-a-old",
			"default/r-a 3/3, default/r-headgroup 1/1",
		},
		"the Job of a JobSet": {
			2, fmt.Sprintf(jobSetCRD, ", uid: set", "replicatedJobs: [{name: w, template: {spec: {parallelism: 3, "+
				"completions: 3, template: "+
				cpuTemplate+"}}}]") + job,
			"Waiting GangSiblingFailed: js-w-0-0 js-w-0-1 js-w-0-2", "default/js-w-0 3/3",
		},
		"a PodGroup of another writer": {
			4, group("") + rayCluster("", "", workers("a", "replicas: 3")),
			"Scheduled: r-a-worker-0 r-a-worker-1 r-a-worker-2 r-head-0", "default/r-a 0/1, default/r-a-HASH 3/3, " +
				"default/r-headgroup 1/1",
		},
		"the PodGroup of the same object": {
			2, group(", ownerReferences: [{apiVersion: ray.io/v1, kind: RayCluster, name: r, uid: u, controller: "+
				"true}]") +
				rayCluster("", "", workers("a", "replicas: 3")),
			"Scheduled: r-a-worker-0 r-head-0; Unschedulable InsufficientCPU: r-a-worker-1 r-a-worker-2",
			"default/r-a 3/1, default/r-headgroup 1/1",
		},
	} {
		r, _ := simulate(t, oneNode(c.cpus)+c.in, "-")
		if diff := cmp.Diff(c.want, statesOf(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		var gangs []string
		for _, g := range r.Gangs {
			id := g.Name
			if rest, ok := strings.CutPrefix(id, "default/r-a-"); ok && len(rest) == 8 {
				id = "default/r-a-HASH"
			}
			gangs = append(gangs, fmt.Sprintf("%s %d/%d", id, g.Members, g.MinMember))
		}
		if got := strings.Join(gangs, ", "); got != c.gang {
			t.Errorf("%s: gangs %s, want %s", name, got, c.gang)
		}
	}
}

// TestGangsOfPlainPods: pods of a group of Kueue start together.
func TestGangsOfPlainPods(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	for i := range 4 {
		fmt.Fprintf(&in, "{apiVersion: v1, kind: Pod, metadata: {name: k%d, labels: "+
			"{kueue.x-k8s.io/pod-group-name: kg}, "+
			"annotations: {kueue.x-k8s.io/pod-group-total-count: \"4\"}}, %s\n---\n", i, cpuTemplate[1:])
	}
	r, _ := simulate(t, oneNode(3)+in.String(), "-")
	if got, want := statesOf(r), "Waiting GangSiblingFailed: k0 k1 k2 k3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestObjectsOfOperatorsThatCannotBeRead: each is bad input, with its place.
func TestObjectsOfOperatorsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"a negative number": {
			rayCluster("", "", workers("a", "replicas: -3")),
			"document 2 (RayCluster r): spec.workerGroupSpecs[0].replicas: must be a whole number from 0 to " +
				"2147483647, is -3",
		},
		"an unknown field of a template": {
			fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {Worker: {template: {spec: {containers: [{name: c, "+
				"imag: i}]}}}}"),
			`document 2 (PyTorchJob p, spec.pytorchReplicaSpecs.Worker.template): unknown field ` +
				`"spec.containers[0].imag"`,
		},
		"a pod that the API server refuses": {
			fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {Worker: {template: {spec: {containers: [{name: C, "+
				"image: i}]}}}}"),
			"document 2 (PyTorchJob p, spec.pytorchReplicaSpecs.Worker.template): spec.containers[0].name: Invalid " +
				"value",
		},
		"a role without a template": {
			fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {Worker: {replicas: 2}}"),
			"document 2 (PyTorchJob p): the template of the pods of role worker is missing",
		},
		"a template that names a node": {
			fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {Worker: {template: {spec: {nodeName: n0, containers: "+
				"[{name: c, image: i}]}}}}"),
			"a template that names a node is not supported",
		},
		"claim templates that are numbers": {
			fmt.Sprintf(jobSetCRD, "", "volumeClaimPolicies: [{templates: [3]}], replicatedJobs: [{name: w, template: "+
				"{spec: {template: "+cpuTemplate+"}}}]"),
			"document 2 (JobSet js): claim templates of role w: json: cannot unmarshal number",
		},
		"too many pods": {
			fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {Worker: {replicas: 200000, template: "+cpuTemplate+"}}"),
			"has 200000 pods: supported up to 100000",
		},
		"an object twice": {
			rayCluster("", "") + rayCluster("", ""), `document 3 (RayCluster r): metadata.name: Duplicate value "r"`,
		},
		"a child that is not an object": {
			fmt.Sprintf(rayCRD, "RayJob", "", "rayClusterSpec: 3"), "document 2 (RayJob r): spec.rayClusterSpec: " +
				"must be an object, is 3",
		},
		"a runtime without a template": {
			"{apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime, metadata: {name: x}}\n---\n" +
				"{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: t}, spec: " +
				"{runtimeRef: {name: x}}}",
			"document 3 (TrainJob t): ClusterTrainingRuntime x: spec.template is missing",
		},
		"an object without a name": {
			"{apiVersion: ray.io/v1, kind: RayCluster, spec: {}}", "metadata.name: Required value",
		},
	} {
		_, err := Run(t.Context(), Input{
			Paths: []string{"-"}, Stdin: strings.NewReader(oneNode(4) + c.in),
			Warn: io.Discard,
		})
		var bad *InputError
		if !errors.As(err, &bad) || !strings.Contains(bad.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// TestOwnersInACycle: the pods are in no gang, and a warning says so.
func TestOwnersInACycle(t *testing.T) {
	t.Parallel()
	ref := func(name string) string {
		return "ownerReferences: [{apiVersion: example.com/v1, kind: Thing, name: " + name +
			", uid: \"u\", controller: true}]"
	}
	thing := func(name, owner string) string {
		return "{apiVersion: example.com/v1, kind: Thing, metadata: {name: " + name + ", uid: u, " + ref(owner) +
			"}, spec: {}}\n---\n"
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.Check(t, os.WriteFile(rules, []byte("workloads:\n  rules:\n  - {group: example.com, versions: [v1], "+
		"kind: Thing, "+
		"default: Parent, roles: [{at: spec.pods}]}\n"), 0o600))
	table, err := readRules(rules)
	testkit.Check(t, err)
	var warn strings.Builder
	r, err := Run(t.Context(), Input{
		Paths: []string{"-"}, Warn: &warn, Rules: table, Stdin: strings.NewReader(oneNode(4) + thing("a", "b") +
			thing("b", "a") +
			"{apiVersion: v1, kind: Pod, metadata: {name: p, " + ref("a") + "}, " + cpuTemplate[1:]),
	})
	testkit.Check(t, err)
	if got := statesOf(r); got != "Scheduled: p" {
		t.Errorf("got %s", got)
	}
	if want := "warning: Pod default/p: the owners of pod p are a cycle: Thing a is above itself: the pod is in no " +
		"gang\n"; warn.String() != want {
		t.Errorf("warnings %q, want %q", warn.String(), want)
	}
}

// TestRulesOfAFile adds a kind, and refuses a file with line and path.
func TestRulesOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(rules string) {
		testkit.Check(t, os.WriteFile(file, []byte("workloads:\n  rules:\n"+rules), 0o600))
	}
	write(`  - group: example.com
    versions: [v1]
    kind: Sweep
    default: Grouped
    gang: "{owner}"
    roles:
    - at: spec
      name: trial
      count: {at: trials}
      template: template
`)
	table, err := readRules(file)
	testkit.Check(t, err)
	var warn strings.Builder
	r, err := Run(t.Context(), Input{
		Paths: []string{"-"}, Warn: &warn, Rules: table, Stdin: strings.NewReader(oneNode(2) +
			"{apiVersion: example.com/v1, kind: Sweep, metadata: {name: s}, spec: {trials: 3, template: " +
			cpuTemplate + "}}"),
	})
	testkit.Check(t, err)
	if got, want := statesOf(r), "Waiting GangSiblingFailed: s-trial-0 s-trial-1 s-trial-2"; got != want {
		t.Errorf("got %s, want %s; %s", got, want, warn.String())
	}
	for rules, want := range map[string]string{
		"  - {group: example.com, versions: [v1], kind: K, default: " +
			"Maybe}\n": `rules.yaml:3:51: workloads.rules[0].default: "Maybe" is ` +
			`not allowed`,
		"  - group: example.com\n    kinds: " +
			"K\n": "rules.yaml:4:5: " +
			"workloads.rules[0].kinds: ",
		"  - kind: K\n    versions: [v1]\n    default: Never\n    suspended:\n    - {at: a..b, equals: " +
			"true}\n": "rules.yaml:7:8: workloads.rules[0].suspended[0].at: path \"a..b\"",
		"  - {kind: K, versions: [v1], default: Never}\n  - {kind: K, versions: [v1], default: " +
			"Never}\n": "rules.yaml:4:6: workloads.rules[1].kind: version v1 of K has the rule [0] too",
		"  - {kind: K, versions: v1, default: " +
			"Never}\n": "workloads.rules[0].versions: " +
			"\"v1\" is not allowed: use a list",
		"  -\n": "workloads.rules: the rule [0] is empty",
	} {
		write(rules)
		if _, err := readRules(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", rules, err, want)
		}
	}
}

package sim

import (
	"fmt"
	"strings"
	"testing"
)

// written are the PodGroup that an operator writes for its object, and pods with its label.
func written(owner, name, spec string, pods ...string) string {
	var in strings.Builder
	fmt.Fprintf(&in, "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: %s, "+
		"ownerReferences: [{%s, uid: u, controller: true}]}, spec: {%s}}\n---\n", name, owner, spec)
	for _, p := range pods {
		fmt.Fprintf(&in, "{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {scheduling.x-k8s.io/pod-group: %s"+
			"}, ownerReferences: [{%s, uid: u, controller: true}]}, %s\n---\n", p, name, owner, cpuTemplate[1:])
	}
	return in.String()
}

// TestPodGroupsThatOperatorsWrite has the objects that operators create with Tenon as their named scheduler: the
// training operator with --gang-scheduler-name, the MPI operator with --gang-scheduling, and the Spark operator with
// --kube-scheduler-names. Each pod requests 1 CPU.
func TestPodGroupsThatOperatorsWrite(t *testing.T) {
	t.Parallel()
	const (
		torch = "apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: p"
		mpi   = "apiVersion: kubeflow.org/v2beta1, kind: MPIJob, name: m"
		spark = "apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, name: s"
		waits = "Waiting GangSiblingFailed: "
	)
	for name, c := range map[string]struct {
		cpus     int
		in, want string
	}{
		"the training operator, with room": {
			3, written(torch, "p", "minMember: 3, minResources: {cpu: 3}", "p-master-0", "p-worker-0", "p-worker-1"),
			"Scheduled: p-master-0 p-worker-0 p-worker-1",
		},
		"the training operator, with room for 2 of 3": {
			2, written(torch, "p", "minMember: 3", "p-master-0", "p-worker-0", "p-worker-1"),
			waits + "p-master-0 p-worker-0 p-worker-1",
		},
		"the training operator, with minAvailable": {
			2, written(torch, "p", "minMember: 2", "p-master-0", "p-worker-0", "p-worker-1"),
			"Scheduled: p-master-0 p-worker-0; Unschedulable InsufficientCPU: p-worker-1",
		},
		"the MPI operator": {
			3, written(mpi, "m", "minMember: 3, scheduleTimeoutSeconds: 0, minResources: {cpu: 3}", "m-launcher",
				"m-worker-0", "m-worker-1"),
			"Scheduled: m-launcher m-worker-0 m-worker-1",
		},
		"the MPI operator, whose launcher waits for the workers (mpi-operator 608)": {
			3, written(mpi, "m", "minMember: 3, scheduleTimeoutSeconds: 0", "m-worker-0", "m-worker-1"),
			"Waiting GangNotReady: m-worker-0 m-worker-1",
		},
		"the same, with minAvailable 2": {
			2, written(mpi, "m", "minMember: 2, scheduleTimeoutSeconds: 0", "m-worker-0", "m-worker-1"),
			"Scheduled: m-worker-0 m-worker-1",
		},
		"the Spark operator: the driver starts where its executors fit, too": {
			3, written(spark, "s-pg", "minMember: 1, minResources: {cpu: 3}", "s-driver"),
			"Scheduled: s-driver",
		},
		"the Spark operator: not all executors fit": {
			2, written(spark, "s-pg", "minMember: 1, minResources: {cpu: 3}", "s-driver"),
			waits + "s-driver",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := simulate(t, oneNode(c.cpus)+c.in, "-")
			if got := statesOf(r); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestKubernetesOwnGangsComeBeforeRules: pods whose template names a PodGroup of scheduling.k8s.io are in that gang
// alone, though a rule groups objects of their kind.
func TestKubernetesOwnGangsComeBeforeRules(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1alpha2", "v1beta1"} {
		kubernetesOwnGangsComeBeforeRules(t, version)
	}
}

func kubernetesOwnGangsComeBeforeRules(t *testing.T, version string) {
	t.Helper()
	group := "{apiVersion: scheduling.k8s.io/" + version + ", kind: PodGroup, metadata: {name: own}, spec: {" +
		"schedulingPolicy: {gang: {minCount: %d}}}}\n---\n"
	job := strings.ReplaceAll(fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {"+replicas("Worker", 3)+"}"),
		"restartPolicy: Never", "schedulingGroup: {podGroupName: own}, restartPolicy: Never")
	for name, c := range map[string]struct {
		minCount int
		want     string
	}{
		"fewer than the rule's": {2, "Scheduled: p-worker-0 p-worker-1; Unschedulable InsufficientCPU: p-worker-2"},
		"as many":               {3, "Waiting GangSiblingFailed: p-worker-0 p-worker-1 p-worker-2"},
	} {
		r, says := simulate(t, oneNode(2)+fmt.Sprintf(group, c.minCount)+job, "-")
		if got := statesOf(r); got != c.want {
			t.Errorf("%s, %s: got %s, want %s", version, name, got, c.want)
		}
		if len(r.Gangs) != 1 || r.Gangs[0].Name != "default/own" || r.Gangs[0].MinMember != c.minCount {
			t.Errorf("%s: gangs %+v, want default/own alone", name, r.Gangs)
		}
		if strings.Contains(says, "by rule") {
			t.Errorf("%s: %s", name, says)
		}
	}
}

package doctor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	scheduling "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/testkit"
)

// read returns the object of a YAML.
func read[T any](t *testing.T, text string) (o T) {
	t.Helper()
	testkit.Check(t, yaml.Unmarshal([]byte(text), &o))
	return o
}

// TestWhatOperatorsAndKueueWrite has objects as Kueue, the MPI operator, KubeRay and Volcano write them.
func TestWhatOperatorsAndKueueWrite(t *testing.T) {
	t.Parallel()
	// ofKueue is a pod of a job that Kueue has admitted.
	ofKueue := func(name, workload string, priority int, more string) string {
		return fmt.Sprintf("{metadata: {namespace: ns, name: %s, labels: {kueue.x-k8s.io/podset: main%s}, "+
			"annotations: {kueue.x-k8s.io/workload: %s, "+
			"kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname}}, "+
			"spec: {priority: %d, nodeSelector: {kubernetes.io/hostname: n1}}}", name, more, workload, priority)
	}
	quotas := []quota.Spec{{Name: "team", Namespace: "ns"}, {Name: "other", Namespace: "elsewhere"}}
	mpi := func(policy, minMember string) (job, group string) {
		return "{metadata: {namespace: ns, name: m}, spec: {" + policy +
				"mpiReplicaSpecs: {Worker: {replicas: 2}}}}",
			"{metadata: {namespace: ns, name: m, ownerReferences: [{kind: MPIJob, name: m, controller: true}]}, " +
				"spec: {minMember: " + minMember + "}}"
	}
	waiting, groupOf3 := mpi("launcherCreationPolicy: WaitForWorkersReady, ", "3")
	_, groupOf2 := mpi("", "2")
	atStartup, _ := mpi("", "3")
	const refused = ", status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, " +
		"message: no room}]}"
	onNode := strings.TrimSuffix(ofKueue("p", "w", 0, ""), "}") + refused + "}"
	workload := func(name string, priority int) string {
		return fmt.Sprintf("{metadata: {namespace: ns, name: %s}, spec: {priority: %d}}", name, priority)
	}
	for name, c := range map[string]struct {
		pods, workloads, mpiJobs, groups, volcanoJobs []string
		quotas                                        []quota.Spec
		want                                          []string // of what is not well
	}{
		"nothing": {},
		"pods of Kueue without a quota": {
			pods: []string{ofKueue("a", "w", 0, "")}, quotas: quotas[1:],
		},
		"pods of Kueue in a quota": {
			pods: []string{ofKueue("b", "w", 0, ""), ofKueue("a", "w", 0, "")}, quotas: quotas,
			want: []string{
				"two-quotas warn ElasticQuota team: counts ns/a and 1 more, as a ClusterQueue of Kueue does",
			},
		},
		"a pod of Kueue in a quota that has ended": {
			pods:   []string{strings.TrimSuffix(ofKueue("a", "w", 0, ""), "}") + ", status: {phase: Succeeded}}"},
			quotas: quotas,
		},
		"other pods in a quota": {
			pods: []string{"{metadata: {namespace: ns, name: a}}"}, quotas: quotas,
		},
		"a pod that is refused on the node that Kueue chose": {
			pods: []string{onNode},
			want: []string{"kueue-node warn pod ns/p: node n1 was chosen by Kueue's topology assignment"},
		},
		"a pod that is bound on it": {
			pods: []string{strings.Replace(onNode, "spec: {", "spec: {nodeName: n1, ", 1)},
		},
		"a pod that Kueue still holds": {
			pods: []string{strings.Replace(onNode, "reason: Unschedulable", "reason: SchedulingGated", 1)},
		},
		"priorities in one order": {
			workloads: []string{workload("v", 1), workload("w", 2)},
			pods:      []string{ofKueue("a", "v", 5, ""), ofKueue("b", "w", 5, "")},
		},
		"equal priorities in Kueue": {
			workloads: []string{workload("v", 1), workload("w", 1)},
			pods:      []string{ofKueue("a", "v", 7, ""), ofKueue("b", "w", 5, "")},
		},
		"priorities in the other order": {
			workloads: []string{workload("w", 2), workload("v", 1)},
			pods:      []string{ofKueue("a", "v", 7, ""), ofKueue("b", "w", 5, "")},
			want: []string{"priorities warn Workloads ns/w and ns/v: in Kueue the first has the higher priority (2, " +
				"1), and its pods have the lower one (5, 7)"},
		},
		"priorities in the other order, of pods that evict none": {
			workloads: []string{workload("w", 2), workload("v", 1)},
			pods: []string{
				strings.Replace(ofKueue("a", "v", 7, ""), "spec: {", "spec: {preemptionPolicy: Never, ", 1),
				ofKueue("b", "w", 5, ""),
			},
		},
		"an MPIJob whose launcher waits for the workers": {
			mpiJobs: []string{waiting}, groups: []string{groupOf3},
			want: []string{"mpi-launcher fail MPIJob ns/m: spec.launcherCreationPolicy is WaitForWorkersReady, and " +
				"its PodGroup requires 3 members"},
		},
		"the same with minAvailable":         {mpiJobs: []string{waiting}, groups: []string{groupOf2}},
		"an MPIJob that starts its launcher": {mpiJobs: []string{atStartup}, groups: []string{groupOf3}},
		"a PodGroup whose MPIJob is gone":    {groups: []string{groupOf3}},
		"a PodGroup of KubeRay": {
			groups: []string{strings.ReplaceAll(groupOf2, "MPIJob", "RayCluster")},
			want:   []string{"ray-podgroup warn RayCluster ns/m: KubeRay has written its PodGroup"},
		},
		"a pending Job of Volcano with another scheduler": {
			volcanoJobs: []string{"{metadata: {namespace: ns, name: j}, spec: {schedulerName: tenon-scheduler}, " +
				"status: {state: {phase: Pending}}}"},
			want: []string{"volcano-job warn Job ns/j of Volcano: is pending, with the scheduler tenon-scheduler"},
		},
		"Jobs of Volcano that run, and with its own scheduler": {volcanoJobs: []string{
			"{metadata: {namespace: ns, name: j}, spec: {schedulerName: tenon-scheduler}, status: " +
				"{state: {phase: Running}}}",
			"{metadata: {namespace: ns, name: k}, spec: {schedulerName: volcano}, status: {state: {phase: Pending}}}",
			"{metadata: {namespace: ns, name: l}, status: {state: {phase: Pending}}}",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := doctor.WorkloadView{Quotas: c.quotas}
			for _, text := range c.pods {
				v.Pods = append(v.Pods, read[corev1.Pod](t, text))
			}
			for _, text := range c.groups {
				v.PodGroups = append(v.PodGroups, read[scheduling.PodGroup](t, text))
			}
			objects := func(texts []string) (all []unstructured.Unstructured) {
				for _, text := range texts {
					json, err := yaml.YAMLToJSON([]byte(strings.Replace(text, "{", "{apiVersion: v1, kind: K, ", 1)))
					testkit.Check(t, err)
					var u unstructured.Unstructured
					testkit.Check(t, u.UnmarshalJSON(json))
					all = append(all, u)
				}
				return all
			}
			v.Workloads, v.VolcanoJobs = objects(c.workloads), objects(c.volcanoJobs)
			v.MPIJobs = objects(c.mpiJobs)
			var got []string
			checks := map[string]bool{}
			for _, f := range doctor.Workloads(v) {
				if checks[f.Check] = true; f.Status != doctor.OK {
					got = append(got, fmt.Sprintf("%s %s %s: %s", f.Check, f.Status, f.Where, f.Found))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" || len(checks) != 6 {
				t.Errorf("of %d checks, want 6 (-want +got):\n%s", len(checks), diff)
			}
		})
	}
}

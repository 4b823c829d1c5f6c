package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestTheNodesOfATrainJob: which replicated jobs have how many pods, and of which CPUs.
func TestTheNodesOfATrainJob(t *testing.T) {
	t.Parallel()
	job := func(name, step string) string {
		return fmt.Sprintf(`{"name": %q, "template": {"metadata": {"labels": {
			"trainer.kubeflow.org/trainjob-ancestor-step": %q}}, "spec": {"template": {"spec":
			{"containers": [{"name": "node"}]}}}}}`, name, step)
	}
	torch := `"mlPolicy": {"numNodes": 2, "torch": {}}, "template": {"spec": {"replicatedJobs": [` +
		job("model", "model-initializer") + `, ` + job("node", "trainer") + `]}}`
	mpi := func(policy string) string {
		return `"mlPolicy": {"numNodes": 1, "mpi": {` + policy + `}}, "template": {"spec": {"replicatedJobs": [` +
			job("node", "") + `, ` + job("launcher", "trainer") + `]}}`
	}
	const launches = `"runLauncherAsNode": true`
	for name, c := range map[string]struct{ runtime, trainer, want string }{
		"the number of the runtime":      {torch, "", "model -, node 2"},
		"that of the TrainJob":           {torch, `"numNodes": 5`, "model -, node 5"},
		"resources of each node":         {torch, `"resourcesPerNode": {"cpu": 3}`, "model -, node 2 cpu 3"},
		"MPI, without a number":          {mpi(""), "", "node -, launcher 1"},
		"MPI, with a launcher beside":    {mpi(""), `"numNodes": 4`, "node 4, launcher 1"},
		"MPI, where the launcher is one": {mpi(launches), `"numNodes": 4`, "node 3, launcher 1"},
		"MPI, where the launcher is all": {mpi(launches), `"numNodes": 1`, "node 1, launcher 1"},
		"MPI, with resources of the node": {
			mpi(launches), `"resourcesPerNode": {"cpu": 3}`, "node - cpu 3, launcher 1 cpu 3",
		},
		"MPI, with those of the launcher": {mpi(""), `"resourcesPerNode": {"cpu": 3}`, "node -, launcher 1 cpu 3"},
	} {
		var runtime, trainJob unstructured.Unstructured
		testkit.Check(t, runtime.UnmarshalJSON([]byte(`{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind":
			"ClusterTrainingRuntime", "spec": {`+c.runtime+`}}`)))
		testkit.Check(t, trainJob.UnmarshalJSON([]byte(`{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind":
			"TrainJob", "metadata": {"name": "t"}, "spec": {"trainer": {`+c.trainer+`}}}`)))
		jobSet, err := convert.TrainJobSet(trainJob.Object, runtime.Object)
		testkit.Check(t, err)
		jobs, _, err := unstructured.NestedSlice(jobSet, "spec", "replicatedJobs")
		testkit.Check(t, err)
		var got []string
		for _, one := range jobs {
			job := one.(map[string]any)
			text := fmt.Sprint(job["name"], " -")
			if n, has, _ := unstructured.NestedInt64(job, "template", "spec", "parallelism"); has {
				text = fmt.Sprint(job["name"], " ", n)
			}
			containers, _, _ := unstructured.NestedSlice(job, "template", "spec", "template", "spec", "containers")
			if cpu, has, _ := unstructured.NestedInt64(containers[0].(map[string]any), "resources", "cpu"); has {
				text += fmt.Sprint(" cpu ", cpu)
			}
			got = append(got, text)
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

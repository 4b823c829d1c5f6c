package sim

import (
	"fmt"
	"strings"
	"testing"
)

// TestFilesOfHelmAndLists: empty documents, comments, lists and hooks do not change what objects of operators become.
func TestFilesOfHelmAndLists(t *testing.T) {
	t.Parallel()
	items := func(docs ...string) string {
		var all []string
		for _, doc := range docs {
			all = append(all, strings.TrimSuffix(doc, "\n---\n"))
		}
		return strings.Join(all, ", ")
	}
	ray := rayCluster("", "", workers("gpu", "replicas: 2"))
	torch := fmt.Sprintf(torchJob, "", "pytorchReplicaSpecs: {"+replicas("Worker", 2)+"}")
	const (
		made = "RayCluster r: gangs r-headgroup 1, r-gpu 2, by rule ray.io/RayCluster; label tenon.sh/gang=off stops " +
			"it\n"
		both = made + "PyTorchJob p: gangs p-worker 2, by rule kubeflow.org/PyTorchJob; label tenon.sh/gang=off " +
			"stops it\n"
		inRay = "r-gpu-worker-0 r-gpu-worker-1 r-head-0"
		all   = "Scheduled: p-worker-0 p-worker-1 " + inRay
	)
	hook := func(kind, name, on string) string {
		spec := fmt.Sprintf("spec: {template: %s}", cpuTemplate)
		version := "batch/v1"
		if kind == "Pod" {
			version, spec = "v1", strings.TrimSuffix(strings.TrimPrefix(cpuTemplate, "{"), "}")
		}
		return fmt.Sprintf("# Source: app/templates/%s.yaml\n{apiVersion: %s, kind: %s, metadata: {name: %s, "+
			"annotations: {helm.sh/hook: %q}}, %s}\n---\n", name, version, kind, name, on, spec)
	}
	helm := "---\n# Source: app/templates/empty.yaml\n---\n# Source: app/templates/ray.yaml\n" + ray + "\n\n---\n" +
		"# before\n" + torch + "# after\n---\nnull\n--- # with a comment\n"
	for name, c := range map[string]struct{ in, want, says string }{
		"a List": {"{apiVersion: v1, kind: List, items: [" + items(ray, torch) + "]}", all, both},
		"a list of a kind": {
			"{apiVersion: ray.io/v1, kind: RayClusterList, items: [" + items(ray) + "]}", "Scheduled: " + inRay, made,
		},
		"a file of Helm":       {helm, all, both},
		"with ends of Windows": {strings.ReplaceAll(helm, "\n", "\r\n"), all, both},
		"an end of the stream": {items(ray) + "\n...\n", "Scheduled: " + inRay, made},
		"hooks, which kubectl creates as other objects": {
			ray + hook("Job", "before", "pre-install,pre-upgrade") + hook("Pod", "check", "test"),
			"Scheduled: before-0 check " + inRay, made,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, says := simulate(t, oneNode(64)+c.in, "-")
			if got := statesOf(r); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if says != c.says {
				t.Errorf("got the lines %q, want %q", says, c.says)
			}
			var warn strings.Builder
			refused, err := Check(t.Context(), []string{"-"}, strings.NewReader(c.in), &warn)
			if err != nil || len(refused) > 0 || warn.String() != c.says {
				t.Errorf("check manifest: %q, %v, %q, want %q", refused, err, warn.String(), c.says)
			}
		})
	}
}

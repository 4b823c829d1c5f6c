package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// anOperatorsPodsStartTogether stands in for the operator of a RayCluster: it creates a head and three workers, with
// the labels and the owner that KubeRay sets, and nothing about gangs. The third worker has no room, so that none
// starts. With two workers all of them start, and the PodGroups go with the object.
func anOperatorsPodsStartTogether(t *testing.T, l *local) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	testkit.Check(t, err)
	objects, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	l.apply(t, definition("ray.io", "v1", "RayCluster", "Namespaced"))
	clusters := objects.Resource(schema.GroupVersionResource{
		Group: "ray.io", Version: "v1", Resource: "rayclusters",
	}).Namespace(metav1.NamespaceDefault)
	template := map[string]any{"spec": map[string]any{"schedulerName": "tenon-scheduler"}}
	var r *unstructured.Unstructured
	waitFor(t, time.Minute, "the kind to be served", func() (err error) {
		r, err = clusters.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": map[string]any{"name": "r"},
			"spec": map[string]any{
				"headGroupSpec": map[string]any{"template": template},
				"workerGroupSpecs": []any{map[string]any{
					"groupName": "gpu", "replicas": int64(3), "template": template,
				}},
			},
		}}, metav1.CreateOptions{})
		return err
	})
	member := func(name, role, cpus string) *corev1.Pod {
		p := pod(name, object.Requests("cpu", cpus))
		p.Labels = map[string]string{"ray.io/cluster": "r", "ray.io/group": "gpu", "ray.io/node-type": role}
		if role == "head" {
			p.Labels["ray.io/group"] = "headgroup"
		}
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "ray.io/v1", Kind: "RayCluster", Name: "r", UID: r.GetUID(), Controller: ptr.To(true),
		}}
		return p
	}
	create := func(name, role, cpus string) { l.submit(t, member(name, role, cpus)) }
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	waitFor(t, time.Minute, "the manager to follow the kind, which is new", func() error {
		p, err := pods.Create(t.Context(), member("r-head", "head", "1"), metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll},
		})
		if err == nil && p.Labels[annotation.PodGroup] == "" {
			err = errors.New("it labels no pod")
		}
		return err
	})
	create("r-head", "head", "1")
	for i := range 3 {
		create(fmt.Sprint("r-worker-", i), "worker", "25")
	}
	waitFor(t, time.Minute, "all pods to wait for the worker without room", func() error {
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		testkit.Check(t, err)
		for i := range list.Items {
			p := &list.Items[i]
			if p.Spec.NodeName != "" {
				t.Fatalf("%s started alone", p.Name)
			}
			want := map[string]string{"head": "r-headgroup", "worker": "r-gpu"}[p.Labels["ray.io/node-type"]]
			if got := p.Labels[annotation.PodGroup]; got != want {
				return fmt.Errorf("%s is in gang %q, want %s", p.Name, got, want)
			}
			if len(p.Status.Conditions) == 0 ||
				!strings.Contains(p.Status.Conditions[0].Message, "nsufficient") &&
					!strings.Contains(p.Status.Conditions[0].Message, "of gang default/r-gpu only 2 of 3 members fit") {
				return fmt.Errorf("%s says %v", p.Name, p.Status.Conditions)
			}
		}
		return nil
	})
	text, err := l.tenon("gang", "-o", "wide")
	testkit.Check(t, err)
	if !strings.Contains(text, "rule ray.io/RayCluster") || !strings.Contains(text, "r-headgroup") {
		t.Errorf("tenon gang shows\n%s", text)
	}
	_, err = clusters.Patch(t.Context(), "r", types.MergePatchType, []byte(
		`{"spec":{"workerGroupSpecs":[{"groupName":"gpu","replicas":2,"template":{"spec":{"schedulerName":`+
			`"tenon-scheduler"}}}]}}`), metav1.PatchOptions{})
	testkit.Check(t, err)
	testkit.Check(t, pods.Delete(t.Context(), "r-worker-2", metav1.DeleteOptions{}))
	waitFor(t, time.Minute, "the head and two workers to start", func() error {
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		for i := range list.Items {
			if p := &list.Items[i]; p.Spec.NodeName == "" {
				return fmt.Errorf("%s waits", p.Name)
			}
		}
		if err == nil && len(list.Items) != 3 {
			err = fmt.Errorf("%d pods", len(list.Items))
		}
		return err
	})
	testkit.Check(t, clusters.Delete(t.Context(), "r", metav1.DeleteOptions{}))
	groups := objects.Resource(v1alpha1.PodGroupResource(v1alpha1.GroupName)).Namespace(metav1.NamespaceDefault)
	waitFor(t, time.Minute, "the PodGroups to go with the object", func() error {
		list, err := groups.List(t.Context(), metav1.ListOptions{})
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetName(), "r-") {
				return fmt.Errorf("%s is left", o.GetName())
			}
		}
		return err
	})
}

// definition is a CustomResourceDefinition of a kind with any fields.
func definition(group, version, kind, scope string) string {
	plural := strings.ToLower(kind) + "s"
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {
  name: %[1]s.%[2]s, annotations: {api-approved.kubernetes.io: unapproved}}, spec: {group: %[2]s, scope: %[5]s,
  names: {plural: %[1]s, kind: %[4]s}, versions: [{name: %[3]s, served: true, storage: true, schema: {
  openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`, plural, group, version, kind, scope)
}

// apply applies manifests as a user does, once their kinds are served, and returns what the command prints.
func (l *local) apply(t *testing.T, manifests ...string) (said string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	testkit.Check(t, os.WriteFile(file, []byte(strings.Join(manifests, "---\n")), 0o600))
	waitFor(t, time.Minute, "manifests to be applied", func() error {
		out, err := l.tenon("kubectl", "apply", "-f", file)
		if said += out; err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return said
}

// kueueBesideAQuota stands in for Kueue, with its objects: a pod that it holds by a gate is counted by an ElasticQuota
// too. Its creator is warned, and doctor finds it, beside an MPIJob whose operator waits for itself. When the gate is
// removed, the pod starts on the node that Kueue chose.
func kueueBesideAQuota(t *testing.T, l *local) {
	t.Helper()
	const kueue = "kueue.x-k8s.io"
	l.apply(t, definition(kueue, "v1beta1", "ClusterQueue", "Cluster"), definition(kueue, "v1beta1", "LocalQueue",
		"Namespaced"), definition(kueue, "v1beta1", "Workload", "Namespaced"),
		definition("kubeflow.org", "v2beta1", "MPIJob", "Namespaced"))
	nodes, err := l.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	node := nodes.Items[0].Name
	said := l.apply(t, `{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: team}, spec: {}}
`, `{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {name: team}, spec: {clusterQueue: team}}
`, `{apiVersion: kueue.x-k8s.io/v1beta1, kind: Workload, metadata: {name: pod-queued}, spec: {priority: 0}}
`, `{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: queued}, spec: {min: {cpu: 4},
  max: {cpu: 8}}}
`, `{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: itself}, spec: {launcherCreationPolicy:
  WaitForWorkersReady, mpiReplicaSpecs: {Worker: {replicas: 2}}}}
`)
	jobs, err := l.tenon("kubectl", "get", "mpijob", "itself", "-o", "jsonpath={.metadata.uid}")
	testkit.Check(t, err)
	said += l.apply(t, fmt.Sprintf(`{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: itself,
  ownerReferences: [{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, name: itself, uid: %s, controller: true}]},
  spec: {minMember: 3}}
`, strings.TrimSpace(jobs)), `{apiVersion: v1, kind: Pod, metadata: {name: queued, labels: {kueue.x-k8s.io/queue-name:
  team, kueue.x-k8s.io/managed: "true", quota.scheduling.koordinator.sh/name: queued}}, spec: {schedulerName:
  tenon-scheduler, schedulingGates: [{name: kueue.x-k8s.io/admission}], containers: [{name: main, image: app,
  resources: {requests: {cpu: "1"}}}]}}
`)
	const want = `Kueue counts the pod in a ClusterQueue, and Tenon in ElasticQuota "queued"`
	if !strings.Contains(said, want) {
		t.Errorf("its creator reads\n%s\nwant %s", said, want)
	}
	text, err := l.tenon("doctor", "workloads")
	if err == nil {
		t.Error("doctor finds no failure")
	}
	for _, want := range []string{
		"ElasticQuota queued", "default/queued", "MPIJob default/itself", "mpi-operator #608", "minAvailable: 2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("doctor says\n%s\nwant %s", text, want)
		}
	}
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	_, err = pods.Patch(t.Context(), "queued", types.MergePatchType, []byte(`{"spec": {"schedulingGates": null, `+
		`"nodeSelector": {"kubernetes.io/hostname": "`+node+`"}}}`), metav1.PatchOptions{})
	testkit.Check(t, err)
	waitFor(t, time.Minute, "the admitted pod to start on its node", func() error {
		p, err := pods.Get(t.Context(), "queued", metav1.GetOptions{})
		if err == nil && p.Spec.NodeName != node {
			err = fmt.Errorf("it is on %q: %+v", p.Spec.NodeName, p.Status.Conditions)
		}
		return err
	})
	testkit.Check(t, pods.Delete(t.Context(), "queued", metav1.DeleteOptions{}))
	for _, name := range []string{
		"mpijob/itself", "podgroup.scheduling.x-k8s.io/itself", "elasticquota.scheduling.sigs.k8s.io/queued",
	} {
		if out, err := l.tenon("kubectl", "delete", "--ignore-not-found", name); err != nil {
			t.Errorf("delete %s: %v: %s", name, err, out)
		}
	}
	waitFor(t, time.Minute, "doctor to find nothing", func() error {
		text, err := l.tenon("doctor", "workloads")
		if err == nil && strings.Contains(text, "ElasticQuota queued") {
			err = errors.New("it still finds the quota")
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return err
	})
}

package system

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	crds := schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
	_, err = objects.Resource(crds).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "rayclusters.ray.io"},
		"spec": map[string]any{
			"group": "ray.io", "scope": "Namespaced",
			"names": map[string]any{"plural": "rayclusters", "singular": "raycluster", "kind": "RayCluster"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				},
			}},
		},
	}}, metav1.CreateOptions{})
	testkit.Check(t, err)
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
	create := func(name, role, cpus string) {
		p := pod(name, object.Requests("cpu", cpus))
		p.Labels = map[string]string{"ray.io/cluster": "r", "ray.io/group": "gpu", "ray.io/node-type": role}
		if role == "head" {
			p.Labels["ray.io/group"] = "headgroup"
		}
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "ray.io/v1", Kind: "RayCluster", Name: "r", UID: r.GetUID(), Controller: ptr.To(true),
		}}
		l.submit(t, p)
	}
	create("r-head", "head", "1")
	for i := range 3 {
		create(fmt.Sprint("r-worker-", i), "worker", "25")
	}
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
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

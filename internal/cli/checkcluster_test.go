package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"
)

// A user who may neither make ClusterRoles nor list Deployments is asked for both, and all else is read.
func TestWhatIsReadBeforeAnInstallation(t *testing.T) {
	t.Parallel()
	core := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, // a system as that of n
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenon-system", UID: "u"}})
	served := core.Discovery().(*discoveryfake.FakeDiscovery)
	served.FakedServerVersion = &version.Info{GitVersion: "v1.36.3"}
	served.Resources = []*metav1.APIResourceList{{
		GroupVersion: "admissionregistration.k8s.io/v1",
		APIResources: []metav1.APIResource{{Name: "validatingadmissionpolicies"}},
	}}
	core.PrependReactor("create", "selfsubjectaccessreviews",
		func(a clientgotesting.Action) (bool, runtime.Object, error) {
			review := a.(clientgotesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
			review.Status.Allowed = review.Spec.ResourceAttributes.Resource != "clusterroles"
			return true, review, nil
		})
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name": "devices.scheduling.koordinator.sh",
			"annotations": map[string]any{
				"meta.helm.sh/release-name": "koordinator", "meta.helm.sh/release-namespace": "koordinator-system",
			},
		},
	}}
	scheme := runtime.NewScheme()
	_ = appsv1.AddToScheme(scheme) // it knows no reason to fail
	crds := schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{
		crds: "CustomResourceDefinitionList",
	}, crd, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "koordinator-system", Name: "koordlet"}})
	dynamic.PrependReactor("list", "deployments", func(clientgotesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "", errors.New("no"))
	})
	var asked []string
	o, err := cluster{core: core, dynamic: dynamic}.beforeInstallation(t.Context(),
		func(_ context.Context, node string) ([]byte, error) {
			asked = append(asked, node)
			return []byte("# TYPE kubelet_cgroup_version gauge\nkubelet_cgroup_version 2\n"), nil
		})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(o.Version, o.Policies, len(o.Nodes), o.Namespace.UID, o.CRDs, o.Programs, o.Cgroups, asked)
	want := fmt.Sprint("v1.36.3", true, 2, "u", map[string]string{
		"devices.scheduling.koordinator.sh": "koordinator-system/koordinator",
	}, []string{"koordinator-system/koordlet"}, map[string]string{"m": "2"}, []string{"m"})
	if got != want || !reflect.DeepEqual(o.Denied, []string{"create clusterroles", "list deployments"}) {
		t.Errorf("got  %s, denied %q\nwant %s", got, o.Denied, want)
	}
}

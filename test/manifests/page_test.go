package manifests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/testkit/page"
)

const simulated = "another operator's: test/system applies it to a cluster with a simulated operator"

// elsewhere are the API versions whose documents no API server of ours takes, with the reason.
var elsewhere = map[string]string{
	"kustomize.config.k8s.io/v1beta1": "a file: deploy, TestValuesOfThePagesAreAccepted",
	"kubescheduler.config.k8s.io/v1":  "a file: internal/control/admission, TestTheManifestsOfTheGuidesAreAccepted",
	"descheduler/v1alpha2":            "a file: api/config/descheduler, TestTheFilesOfTheGuidesAreAccepted",
	"kubeflow.org/v2beta1":            "another operator's: internal/sim, TestTheGangsOfTheGuideStart",
	"kubeflow.org/v1":                 "another operator's: internal/sim, TestTheGangsOfTheGuideStart",
	"trainer.kubeflow.org/v1alpha1":   simulated,
	"ray.io/v1":                       simulated,
	"sparkoperator.k8s.io/v1beta2":    simulated,
	"jobset.x-k8s.io/v1alpha2":        simulated,
	"leaderworkerset.x-k8s.io/v1":     simulated,
	"scheduling.k8s.io/v1alpha2":      "an alpha API, off by default: internal/sim, TestTheGangsOfTheGuideStart",
}

// refusals are the manifests that a page shows as refused, with a part of the text.
var refusals = map[string]string{"docs/guide/simulate.md Pod half": "the requested CPUs of LSR Pod must be integer"}

// pages applies the manifests of each page of the documentation, strictly, as one after the other becomes possible: a
// quota of a profile comes with its tree, a pod after its priority class.
func (c *cluster) pages(t *testing.T) {
	objects, err := dynamic.NewForConfig(c.config)
	testkit.Check(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	for _, name := range []string{"ml", "team-a"} {
		_, err := c.client.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		testkit.Check(t, err)
		_, err = c.client.CoreV1().ServiceAccounts(name).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
	node, err := c.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "arm", Labels: map[string]string{corev1.LabelArchStable: "arm64"},
	}}, metav1.CreateOptions{})
	testkit.Check(t, err)
	node.Status.Allocatable = object.List("cpu", "64", "memory", "256Gi")
	_, err = c.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	testkit.Check(t, err)

	manifests := map[string][]*unstructured.Unstructured{}
	applied := 0
	for _, block := range page.Blocks(t) {
		if block.Language != "yaml" {
			continue
		}
		for _, doc := range block.Documents() {
			o := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(doc), &o.Object); err != nil {
				t.Fatalf("%s: %v", block, err)
			}
			if o.GetKind() == "" || elsewhere[o.GetAPIVersion()] != "" {
				continue
			}
			manifests[block.File] = append(manifests[block.File], o)
		}
	}
	for file, all := range manifests {
		t.Run(file, func(t *testing.T) {
			var there []*unstructured.Unstructured
			client := func(o *unstructured.Unstructured) dynamic.ResourceInterface {
				gvk := o.GroupVersionKind()
				m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
				testkit.Check(t, err)
				if m.Scope.Name() == meta.RESTScopeNameRoot {
					return objects.Resource(m.Resource)
				}
				if o.GetNamespace() == "" {
					o.SetNamespace("default")
				}
				return objects.Resource(m.Resource).Namespace(o.GetNamespace())
			}
			waiting, last := all, error(nil)
			until := func(what string, done func(context.Context) (bool, error)) {
				t.Helper()
				err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, done)
				if err != nil {
					t.Fatalf("%s: %v; %v", what, err, last)
				}
			}
			until("apply what waits", func(ctx context.Context) (bool, error) {
				var later []*unstructured.Unstructured
				for _, o := range waiting {
					strictly := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
					_, err := client(o).Create(ctx, o, strictly)
					if apierrors.IsAlreadyExists(err) { // the manager creates a NodeMetric for each node
						err = replace(ctx, client(o), o)
					}
					switch refusal := refusals[file+" "+o.GetKind()+" "+o.GetName()]; {
					case err == nil && refusal == "":
						there = append(there, o)
					case err == nil:
						t.Fatalf("%s %s is accepted", o.GetKind(), o.GetName())
					case refusal != "" && strings.Contains(err.Error(), refusal):
						applied++
					case apierrors.IsBadRequest(err):
						t.Fatalf("%s: %s: %v", o.GetKind(), o.GetName(), err)
					default:
						later = append(later, o)
						if ctx.Err() == nil {
							last = fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
						}
					}
				}
				waiting = later
				return len(waiting) == 0, nil
			})
			applied += len(there)
			until("delete what is there", func(ctx context.Context) (bool, error) {
				var left []*unstructured.Unstructured
				for i := len(there) - 1; i >= 0; i-- {
					err := client(there[i]).Delete(ctx, there[i].GetName(),
						metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
					if err != nil && !apierrors.IsNotFound(err) {
						left, last = append([]*unstructured.Unstructured{there[i]}, left...), err
					}
				}
				there = left
				return len(there) == 0, nil
			})
		})
	}
	if applied < 35 {
		t.Errorf("%d manifests of the pages, want 35 or more", applied)
	}
}

// replace updates an object that exists.
func replace(ctx context.Context, c dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	there, err := c.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	o = o.DeepCopy()
	o.SetResourceVersion(there.GetResourceVersion())
	_, err = c.Update(ctx, o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	return err
}

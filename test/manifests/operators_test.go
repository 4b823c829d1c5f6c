package manifests

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
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
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/sim"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/operator"
)

// operators asks the API server about each manifest of internal/testkit/operator: it refuses an object where simulate
// ends with an error, and a pod that simulate calls Refused.
func (c *cluster) operators(t *testing.T) {
	objects, err := dynamic.NewForConfig(c.config)
	testkit.Check(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	for _, namespace := range []string{"kube-system", "team"} { // no controller creates them here
		for _, o := range []map[string]any{
			{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}},
			{
				"apiVersion": "v1", "kind": "ServiceAccount",
				"metadata": map[string]any{"namespace": namespace, "name": "default"},
			},
		} {
			if err := create(t.Context(), objects, mapper, o); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
	}
	cases, err := operator.Cases()
	testkit.Check(t, err)
	for _, one := range cases {
		all, err := one.Objects()
		testkit.Check(t, err)
		var refusal error
		stored := false // an object of a dump, which this API server has not stored
		for _, o := range all {
			u := &unstructured.Unstructured{Object: o}
			if stored = stored || u.GetUID() != ""; stored {
				break
			}
			err := create(t.Context(), objects, mapper, o, metav1.DryRunAll)
			custom := meta.IsNoMatchError(err) && strings.Contains(u.GroupVersionKind().Group, ".")
			ofClass := u.GetKind() == "Pod" && apierrors.IsForbidden(err) // the class is in the case, and not stored
			switch {
			case err == nil || custom || apierrors.IsAlreadyExists(err):
			case ofClass && (strings.Contains(one.Want, "Refused") || hasKind(all, "PriorityClass", "RuntimeClass")):
			default:
				refusal = err
			}
		}
		if want := one.Want == "refused"; !stored && want != (refusal != nil) {
			t.Errorf("%s: simulate says %q, the API server %v", one.Name, one.Want, refusal)
		}
	}
	c.asked(t, cases)
	c.stored(t, objects, mapper)
}

// asked lets simulate answer about each manifest on a cluster with the node of the cases alone, as it does from files:
// pods and nodes of other tests are deleted. test/system asks a scheduler.
func (c *cluster) asked(t *testing.T, cases []operator.Case) {
	nodes, want := c.client.CoreV1().Nodes(), &corev1.Node{}
	testkit.Check(t, yaml.Unmarshal([]byte(operator.Node), want))
	testkit.Check(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers write nodes, too
		node, err := nodes.Get(t.Context(), want.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Labels, node.Spec.Taints = want.Labels, nil // of a node that is not ready
		if node, err = nodes.Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		node.Status.Allocatable = want.Status.Allocatable
		_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		return err
	}))
	others, err := nodes.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=" + want.Name})
	testkit.Check(t, err)
	for i := range others.Items {
		testkit.Check(t, nodes.Delete(t.Context(), others.Items[i].Name, metav1.DeleteOptions{}))
	}
	pods, err := c.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	now := int64(0)
	for i := range pods.Items {
		p := &pods.Items[i]
		err := c.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &now})
		if !apierrors.IsNotFound(err) {
			testkit.Check(t, err)
		}
	}
	for _, one := range cases {
		r, err := sim.RunCluster(t.Context(), c.config, sim.Input{
			Paths: []string{"-"}, Stdin: strings.NewReader(one.Text), Warn: io.Discard,
		})
		got := verdicts(r)
		if err != nil {
			got = "refused"
		}
		if got != one.Want {
			t.Errorf("%s: simulate --cluster says %q, want %q: %v", one.Name, got, one.Want, err)
		}
	}
}

// verdicts are the numbers of pods by state, as operator.Case has them.
func verdicts(r sim.Result) string {
	counts, parts := map[string]int{}, []string(nil)
	for _, p := range r.Pods {
		counts[p.State]++
	}
	for _, state := range []string{sim.Scheduled, sim.Unschedulable, sim.Refused, sim.Existing} {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprint(counts[state], " ", state))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "0")
}

// stored stores pods, changes what they refer to, and lets simulate read the cluster.
func (c *cluster) stored(t *testing.T, objects dynamic.Interface, mapper meta.ResettableRESTMapper) {
	const privileged = `{"securityContext":{"privileged":true},"name":"c","image":"i"}`
	classes, pods := c.client.SchedulingV1().PriorityClasses(), c.client.CoreV1().Pods("default")
	for _, text := range []string{
		`{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"passing"},"value":5}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"stored"},"spec":{"priorityClassName":"passing",` +
			`"schedulerName":"default-scheduler","tolerations":[{"operator":"Exists"}],` +
			`"containers":[` + privileged + `]}}`,
	} {
		u := &unstructured.Unstructured{}
		testkit.Check(t, u.UnmarshalJSON([]byte(text)))
		// The API server admits a pod by a cache of PriorityClasses, which may not have a new one yet.
		testkit.Check(t, wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				err := create(ctx, objects, mapper, u.Object)
				if apierrors.IsForbidden(err) {
					return false, nil
				}
				return true, err
			}))
	}
	pod, err := pods.Get(t.Context(), "stored", metav1.GetOptions{})
	testkit.Check(t, err)
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "i"},
	}}
	_, err = pods.UpdateEphemeralContainers(t.Context(), "stored", pod, metav1.UpdateOptions{})
	testkit.Check(t, err)
	testkit.Check(t, classes.Delete(t.Context(), "passing", metav1.DeleteOptions{}))
	r, err := sim.RunCluster(t.Context(), c.config, sim.Input{Warn: io.Discard})
	testkit.Check(t, err)
	i := slices.IndexFunc(r.Pods, func(p sim.Pod) bool { return p.Name == "stored" })
	if i < 0 || r.Pods[i].State != sim.Scheduled {
		t.Errorf("simulate --cluster: got the pods %+v, want stored Scheduled", r.Pods)
	}
	testkit.Check(t, pods.Delete(t.Context(), "stored", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

func hasKind(all []map[string]any, kinds ...string) bool {
	for _, o := range all {
		for _, kind := range kinds {
			if o["kind"] == kind {
				return true
			}
		}
	}
	return false
}

// create creates an object, strictly.
func create(ctx context.Context, objects dynamic.Interface, mapper meta.ResettableRESTMapper, o map[string]any,
	dryRun ...string,
) error {
	u := &unstructured.Unstructured{Object: o}
	kind := u.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	var to dynamic.ResourceInterface = objects.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := u.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		to = objects.Resource(mapping.Resource).Namespace(namespace)
	}
	_, err = to.Create(ctx, u, metav1.CreateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict})
	return err
}

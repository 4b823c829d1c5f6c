package system

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/operator"
)

// verdicts are numbers of pods, as operator.Case counts them. Pods that were there already count as bound.
type verdicts struct{ bound, unschedulable, refused int }

// wanted reads the Want of a case.
func wanted(text string) (v verdicts) {
	for part := range strings.SplitSeq(text, ", ") {
		n, state := 0, ""
		_, _ = fmt.Sscan(part, &n, &state) // "0" has no state
		switch state {
		case "Scheduled", "Existing":
			v.bound += n
		case "Unschedulable":
			v.unschedulable += n
		case "Refused":
			v.refused += n
		}
	}
	return v
}

// operators asks a cluster of one node about the manifests of internal/testkit/operator.
type operators struct {
	*local
	node    string
	objects dynamic.Interface
	mapper  meta.RESTMapper
}

// TestManifestsOfOperatorsAreAnsweredAsTheClusterDoes: the cluster's own controllers and scheduler make what simulate
// answers of each manifest. internal/sim compares simulate with the same table, test/manifests simulate --cluster.
func TestManifestsOfOperatorsAreAnsweredAsTheClusterDoes(t *testing.T) {
	t.Parallel()
	l := up(t, 1, "--machine", "arm64-1s=1")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	testkit.Check(t, err)
	config.QPS, config.Burst = 2000, 4000
	objects, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	kinds, err := restmapper.GetAPIGroupResources(l.client.Discovery())
	testkit.Check(t, err)
	o := operators{l, "arm64-1s-0", objects, restmapper.NewDiscoveryRESTMapper(kinds)}
	cases, err := operator.Cases()
	testkit.Check(t, err)
	o.namespaces(t, len(cases))
	compared := 0
	for i, c := range cases {
		if c.Want != "refused" && c.Apart == "" {
			compared++
			o.compare(t, i, c)
		}
	}
	if compared < 80 {
		t.Errorf("%d of %d cases were compared, want at least 80", compared, len(cases))
	}
	for i, c := range cases { // by now a controller has had the time
		if c.Want == "0" && c.Apart == "" {
			pods, err := l.client.CoreV1().Pods(caseSpace(i)).List(t.Context(), metav1.ListOptions{})
			testkit.Check(t, err)
			if len(pods.Items) > 0 {
				t.Errorf("%s: the cluster has made %d pods, want none", c.Name, len(pods.Items))
			}
		}
	}
}

func caseSpace(i int) string { return fmt.Sprint("case-", i) }

var nodeOfCases = regexp.MustCompile(`\bn0\b`)

// namespaces makes one namespace for each case, and those that cases name.
func (o operators) namespaces(t *testing.T, cases int) {
	t.Helper()
	names := []string{"team"}
	for i := range cases {
		names = append(names, caseSpace(i))
	}
	for _, name := range names {
		_, err := o.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name},
		}, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
	waitFor(t, time.Minute, "the service accounts of all namespaces", func() error {
		accounts, err := o.client.CoreV1().ServiceAccounts(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{
			FieldSelector: "metadata.name=default",
		})
		if err == nil && len(accounts.Items) < len(names) {
			err = fmt.Errorf("%d of %d", len(accounts.Items), len(names))
		}
		return err
	})
}

// compare creates the objects of a case as a restore does, waits until as many pods have a verdict as are wanted, and
// deletes all of it.
func (o operators) compare(t *testing.T, i int, c operator.Case) {
	t.Helper()
	c.Text = nodeOfCases.ReplaceAllString(c.Text, o.node)
	c.Text = strings.ReplaceAll(c.Text, "namespace: default", "namespace: "+caseSpace(i))
	all, err := c.Objects()
	testkit.Check(t, err)
	spaces, created, refused := map[string]bool{caseSpace(i): true}, []*unstructured.Unstructured{}, 0
	defer func() { o.remove(t, c, spaces, created) }()
	for _, object := range all {
		u := restored(object)
		to, err := o.resource(u, caseSpace(i))
		if meta.IsNoMatchError(err) {
			continue // a custom kind, which no controller reads here
		}
		testkit.Check(t, err)
		if u.GetNamespace() != "" {
			spaces[u.GetNamespace()] = true
		}
		got, err := to.Create(t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore})
		switch {
		case err == nil:
			created = append(created, got)
		case u.GetKind() == "Pod" && apierrors.IsForbidden(err):
			refused++
		case !apierrors.IsAlreadyExists(err):
			t.Errorf("%s: create %s %s: %v", c.Name, u.GetKind(), u.GetName(), err)
		}
	}
	seen := map[types.UID]bool{} // bound, even if they have ended and are gone
	want := wanted(c.Want)
	if want == (verdicts{}) {
		return
	}
	var got verdicts
	var pods string
	for until := time.Now().Add(20 * time.Second); got != want && time.Now().Before(until); {
		got, pods, err = o.verdicts(t.Context(), spaces, seen)
		testkit.Check(t, err)
		got.refused = refused
	}
	if got != want {
		t.Errorf("%s: the cluster has %+v of the pods%s, simulate %+v", c.Name, got, pods, want)
	}
}

// restored is an object without what an API server sets.
func restored(object map[string]any) *unstructured.Unstructured {
	u := (&unstructured.Unstructured{Object: object}).DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "ownerReferences"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "spec", "ephemeralContainers")
	delete(u.Object, "status")
	return u
}

// resource is where an object is created. A namespaced one that names no namespace goes to the one of its case.
func (o operators) resource(u *unstructured.Unstructured, space string) (dynamic.ResourceInterface, error) {
	kind := u.GroupVersionKind()
	mapping, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return o.objects.Resource(mapping.Resource), nil
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(space)
	}
	return o.objects.Resource(mapping.Resource).Namespace(u.GetNamespace()), nil
}

// verdicts counts the pods of some namespaces. seen has those that were ever bound. A pod whose claim names the node
// that was selected is bound but for its volume, which no driver provides here; one of another scheduler waits for
// ever.
func (o operators) verdicts(ctx context.Context, spaces map[string]bool, seen map[types.UID]bool) (
	v verdicts, text string, err error,
) {
	for space := range spaces {
		pods, err := o.client.CoreV1().Pods(space).List(ctx, metav1.ListOptions{})
		if err != nil {
			return v, "", err
		}
		claims, err := o.client.CoreV1().PersistentVolumeClaims(space).List(ctx, metav1.ListOptions{})
		if err != nil {
			return v, "", err
		}
		selected := map[string]bool{}
		for i := range claims.Items {
			c := &claims.Items[i]
			selected[c.Name] = c.Annotations["volume.kubernetes.io/selected-node"] == o.node
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			waits := p.Spec.SchedulerName == "other"
			for _, c := range p.Status.Conditions {
				waits = waits || c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
			}
			bound := p.Spec.NodeName == o.node
			for _, volume := range p.Spec.Volumes {
				bound = bound || volume.PersistentVolumeClaim != nil && selected[volume.PersistentVolumeClaim.ClaimName]
			}
			text += fmt.Sprintf(" %s on %q waits %t", p.Name, p.Spec.NodeName, waits)
			switch {
			case bound:
				seen[p.UID] = true
			case waits:
				v.unschedulable++
			}
		}
	}
	v.bound = len(seen)
	return v, text, nil
}

// remove deletes the objects of a case, and waits until its pods are gone: the next case has the whole node. Of a case
// without pods it keeps what is in its namespace, so that a pod that comes late is seen.
func (o operators) remove(t *testing.T, c operator.Case, spaces map[string]bool, created []*unstructured.Unstructured) {
	t.Helper()
	at, background := int64(0), metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{GracePeriodSeconds: &at, PropagationPolicy: &background}
	for _, u := range created {
		if c.Want == "0" && u.GetNamespace() != "" {
			continue
		}
		to, err := o.resource(u, "")
		testkit.Check(t, err)
		if err := to.Delete(t.Context(), u.GetName(), options); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: delete %s %s: %v", c.Name, u.GetKind(), u.GetName(), err)
		}
	}
	waitFor(t, time.Minute, "the pods of "+c.Name+" to be gone", func() error {
		for space := range spaces {
			pods, err := o.client.CoreV1().Pods(space).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range pods.Items {
				err := o.client.CoreV1().Pods(space).Delete(t.Context(), pods.Items[i].Name, options)
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
			if len(pods.Items) > 0 {
				return fmt.Errorf("%d pods in namespace %s", len(pods.Items), space)
			}
		}
		return nil
	})
}

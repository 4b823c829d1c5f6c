package rights

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	eventsclient "k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/control/scalehelper"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/controlplane"
)

// halves is a node of two NUMA nodes of 4 CPUs, of which each has 2 free.
type halves struct{ t *testing.T }

func (h halves) Account(string) *ledger.View {
	held := func(cpus string) ledger.Entry {
		return ledger.Entry{UID: cpus, Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUList: cpus}
	}
	facts := ledger.Facts{Machine: grid.Machine{Nodes: 2, Cores: 4}.Build(h.t)}
	return ledger.New(facts, held("0-1"), held("4-5")).View()
}

func (halves) Reserved(string) amount.List { return nil }

func (halves) Request(p *corev1.Pod) *place.Request {
	return &place.Request{
		UID: string(p.UID), Class: qos.LSR, Role: qos.ExclusiveWithBE, CPUs: 4, RequestMilli: 4000,
		Topology: hint.SingleNUMANode,
	}
}

// TestTheScaleHelperHasTheRightsItNeeds, by what the chart renders where it is on: it creates, marks and deletes
// helpers in their namespace, which takes no pod with privileges, and creates pods in no other one.
func TestTheScaleHelperHasTheRightsItNeeds(t *testing.T) {
	p := controlplane.Start(t)
	c := &cluster{server: p.Server, admin: asUser(t, p.Config)}
	rendered, err := os.ReadFile(filepath.Join("..", "..", "deploy", "testdata", "ha.golden"))
	testkit.Check(t, err)
	var documents [][]byte
	for _, doc := range strings.Split(string(rendered), "\n---\n") {
		if strings.Contains(doc, "\n  name: "+scalehelper.Namespace+"\n") ||
			strings.Contains(doc, "\n  namespace: "+scalehelper.Namespace+"\n") {
			documents = append(documents, []byte(doc))
		}
	}
	if len(documents) != 3 {
		t.Fatalf("%d documents, want a Namespace, a Role and its binding", len(documents))
	}
	applier, err := install.NewApplier(p.Config)
	testkit.Check(t, err)
	objects, err := install.Parse(append(deploy.RBAC(), documents...)...)
	testkit.Check(t, err)
	testkit.Check(t, applier.Apply(t.Context(), objects))
	c.node(t, "a")
	admin := c.admin.typed.CoreV1()
	for _, name := range []string{"default", scalehelper.Namespace} { // a controller of Kubernetes makes them elsewhere
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		_, err := admin.ServiceAccounts(name).Create(t.Context(), account, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
	waiting := testobject.Pod("default/waits", testobject.Container("c", "4"))
	waiting.Spec.SchedulerName = "tenon-scheduler"
	pod, err := admin.Pods("default").Create(t.Context(), waiting, metav1.CreateOptions{})
	testkit.Check(t, err)
	pod, err = admin.Pods("default").Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(
		`{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable",`+
			`"lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`), metav1.PatchOptions{}, "status")
	testkit.Check(t, err)
	node, err := admin.Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	testkit.Check(t, err)
	node.Spec.Taints = nil // that of a node that is not ready yet
	pods, nodes := cache.NewStore(cache.MetaNamespaceKeyFunc), cache.NewStore(cache.MetaNamespaceKeyFunc)
	testkit.Check(t, errors.Join(pods.Add(pod), nodes.Add(node)))

	config := rest.CopyConfig(p.Config)
	config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":tenon-manager"
	config.Impersonate.Groups = []string{"system:authenticated"}
	manager := asUser(t, config)
	// run makes one round, and waits for what it does.
	run := func(what string, done func(h *corev1.Pod) bool) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- scalehelper.New(scalehelper.Options{
				Pods: pods, Nodes: nodes, Cluster: halves{t}, Schedulers: convert.NewSchedulers("tenon-scheduler"),
				Client: manager.typed, Events: eventsclient.NewFakeRecorder(10),
			}).Start(ctx)
		}()
		c.await(t, what, func(ctx context.Context) error {
			list, err := admin.Pods(scalehelper.Namespace).List(ctx, metav1.ListOptions{})
			if err == nil && (len(list.Items) == 0 && !done(nil) || len(list.Items) == 1 && !done(&list.Items[0])) {
				err = errors.New("not yet")
			}
			return err
		})
		cancel()
		testkit.Check(t, <-ended)
	}
	var helper *corev1.Pod
	run("the helper is marked", func(h *corev1.Pod) bool {
		helper = h
		return h != nil && len(h.Status.Conditions) == 1 && h.Status.Conditions[0].Reason == "Unschedulable"
	})
	testkit.Check(t, errors.Join(pods.Add(helper), pods.Delete(pod)))
	run("the helper is deleted", func(h *corev1.Pod) bool { return h == nil })

	privileged := testobject.Pod(scalehelper.Namespace+"/privileged", testobject.Container("c", "1"))
	privileged.Spec.HostPID = true
	_, err = manager.typed.CoreV1().Pods(scalehelper.Namespace).Create(t.Context(), privileged, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a pod with privileges: %v", err)
	}
	_, err = manager.typed.CoreV1().Pods(namespace).Create(t.Context(), testobject.Pod(namespace+"/any"),
		metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a pod in another namespace: %v", err)
	}
}

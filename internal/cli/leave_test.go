package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// unused is a Node that has nothing of Tenon, with what others write into it.
func unused(name string) *corev1.Node {
	n := testobject.Node(name, map[string]string{"team": "a"}, "cpu", "7")
	n.Annotations["kept"] = "yes"
	n.Status.Capacity = testobject.List("cpu", "8", "koordinator.sh/batch-cpu", "1")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// used is a Node with all that Tenon writes.
func used(name string) *corev1.Node {
	n := unused(name)
	n.Labels[annotation.GPUModelLabel] = "A100"
	n.Status.Capacity[annotation.ResourceGPUCore] = resource.MustParse("100")
	n.Status.Allocatable[annotation.ResourceGPUCore] = resource.MustParse("100")
	for _, e := range event.List() {
		if e.Condition && e.Name != event.NodeLeft.String() {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeConditionType(convert.ConditionPrefix + e.Name), Status: corev1.ConditionFalse,
			})
		}
	}
	fields := metav1.NewFieldsV1
	n.ManagedFields = []metav1.ManagedFieldsEntry{
		{
			Manager: convert.CapacityManager, Operation: "Apply", APIVersion: "v1", Subresource: "status",
			FieldsType: "FieldsV1", FieldsV1: fields(`{"f:status":{"f:capacity":{"f:koordinator.sh/gpu-core":{}}}}`),
		},
		{
			Manager: convert.CapacityManager, Operation: "Apply", APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: fields(`{"f:metadata":{"f:labels":{"f:` + annotation.GPUModelLabel + `":{}}}}`),
		},
	}
	return n
}

// leaving is a cluster with an installation of Tenon: node a is used and b is not, both with an agent, and c had one.
type leaving struct {
	*testing.T
	leaver
	core    *fake.Clientset
	objects *dynamicfake.FakeDynamicClient
}

func newLeaving(t *testing.T) *leaving {
	t.Helper()
	object := func(r schema.GroupVersionResource, kind, name, writer string) runtime.Object {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(r.GroupVersion().WithKind(kind))
		u.SetName(name)
		if r.Group == "apps" {
			u.SetNamespace(agentNamespace)
		}
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: writer}})
		return u
	}
	agent := func(node string) *corev1.Pod {
		return testobject.Pod(agentNamespace+"/agent-"+node, testobject.Label(componentLabel, view.AgentName),
			testobject.On(node))
	}
	hooks := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	l := &leaving{
		T: t, core: fake.NewClientset(used("a"), unused("b"), used("c"), agent("a"), agent("b")),
		objects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{
				v1alpha2.Resource(): "NodeResourceTopologyList", devicev1alpha1.Resource(): "DeviceList",
				nodeinfo.Resource(): "NumatopologyList",
				v1alpha2.Resource().GroupResource().WithVersion("v1alpha1"): "NodeResourceTopologyList",
			},
			object(v1alpha2.Resource(), "NodeResourceTopology", "a", view.AgentName),
			object(v1alpha2.Resource(), "NodeResourceTopology", "b", "another-exporter"),
			object(devicev1alpha1.Resource(), "Device", "a", view.AgentName),
			object(nodeinfo.Resource(), "Numatopology", "c", view.AgentName),
			object(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, "DaemonSet",
				view.AgentName, "helm"),
			object(hooks.WithResource(""), "MutatingWebhookConfiguration", "tenon", "helm"),
			object(hooks.WithResource(""), "ValidatingWebhookConfiguration", "tenon", "helm"),
		),
	}
	l.leaver = leaver{
		cluster: cluster{core: l.core, dynamic: l.objects}, removed: map[string][]string{},
		answers: map[string]string{}, blocked: map[string]bool{},
	}
	return l
}

// next is one step, with what it found by check, and whether all is done.
func (l *leaving) next() (map[string]string, bool) {
	l.Helper()
	answer, err := l.step(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range answer.Findings {
		found[f.Check] = f.Found
	}
	return found, answer.Healthy()
}

// says is an agent's answer.
func (l *leaving) says(node, reason, message string) {
	l.Helper()
	n := l.get(node)
	n.Status.Conditions = append(slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return string(c.Type) == event.NodeLeft.Condition()
	}), corev1.NodeCondition{
		Type: corev1.NodeConditionType(event.NodeLeft.Condition()), Status: corev1.ConditionTrue, Reason: reason,
		Message: message,
	})
	if _, err := l.core.CoreV1().Nodes().Update(l.Context(), n, metav1.UpdateOptions{}); err != nil {
		l.Fatal(err)
	}
}

func (l *leaving) get(node string) *corev1.Node {
	l.Helper()
	n, err := l.core.CoreV1().Nodes().Get(l.Context(), node, metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	return n
}

// TestAClusterIsLeft: nothing of Tenon remains in any Node, what others wrote does, and no agent ends before its node
// is left.
func TestAClusterIsLeft(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	first, done := l.next()
	if answer, err := l.step(t.Context()); err != nil || answer.Healthy() || slices.ContainsFunc(answer.Findings,
		func(f view.Finding) bool { return f.Status == view.CheckFail }) {
		t.Errorf("in progress: %+v, %v, want no failure, and not done", answer, err)
	}
	if done || first["a"] != "asked its agent" || !strings.Contains(first["c"], "removed numatopologies/c") {
		t.Fatalf("first step: %v, done: %v", first, done)
	}
	l.says("a", event.Left, "left; no longer on exclusive CPUs: default/x")
	l.says("b", "AgentNeeded", "containers of default/y need it")
	l.next()
	statuses := map[string]view.CheckStatus{}
	under, err := l.step(t.Context())
	testkit.Check(t, err)
	for _, f := range under.Findings {
		statuses[f.Check] = f.Status
	}
	if statuses["a"] == view.CheckFail || statuses["b"] != view.CheckFail {
		t.Errorf("while pods of b need the agent: %v, want a failure of b alone", statuses)
	}
	waits, done := l.next()
	if done || waits["b"] != "containers of default/y need it" || !strings.HasPrefix(waits["a"], "left;") {
		t.Errorf("while pods of b need the agent: %v, done: %v", waits, done)
	}
	for _, a := range l.objects.Actions() {
		if a.Matches("delete", "daemonsets") {
			t.Error("the agents are removed while pods need one")
		}
	}
	l.says("b", event.Left, "left")
	l.next()
	waits, _ = l.next()
	if waits["installation"] != "agents have not ended yet" {
		t.Errorf("before the agents have ended: %v", waits)
	}
	for _, name := range []string{"agent-a", "agent-b"} {
		testkit.Check(t, l.core.CoreV1().Pods(agentNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	l.next()
	answer, err := l.step(t.Context())
	if err != nil || !answer.Healthy() {
		t.Errorf("after all: %+v, %v", answer, err)
	}
	var text strings.Builder
	testkit.Check(t, answer.Print(&text, 0))
	golden(t, "leave.txt", text.String())
	for _, name := range []string{"a", "b", "c"} {
		n := l.get(name)
		n.ManagedFields = nil // the server's affair
		if diff := cmp.Diff(unused(name), n); diff != "" {
			t.Errorf("Node %s (-before the installation +now):\n%s", name, diff)
		}
	}
	if _, err := l.objects.Resource(v1alpha2.Resource()).Get(t.Context(), "b", metav1.GetOptions{}); err != nil {
		t.Errorf("the topology of another exporter: %v", err)
	}
}

// TestANodeIsLeftAlone: the others and the installation go on, and the annotation keeps the node left.
func TestANodeIsLeftAlone(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	l.name = "a"
	l.says("a", event.Left, "of an earlier time")
	if found, _ := l.next(); found["a"] != "asked its agent" || len(found) != 1 {
		t.Errorf("an answer of an earlier time counts: %v", found)
	}
	if waits, _ := l.next(); !strings.Contains(waits["a"], "tenon doctor --node a") {
		t.Errorf("while the agent does not answer: %v", waits)
	}
	l.says("a", event.Left, "left")
	l.next()
	if found, done := l.next(); !done || len(found) != 1 {
		t.Errorf("once it is left: %v, done: %v", found, done)
	}
	_, remain := convert.Clean(l.get("a"), func(string) bool { return false })
	want := []string{"condition " + event.NodeLeft.Condition(), "annotation " + annotation.LeaveKey}
	if !slices.Equal(remain, want) {
		t.Errorf("%v remain in the Node, want %v", remain, want)
	}
	if l.get("b").Annotations[annotation.LeaveKey] != "" {
		t.Error("another node is left, too")
	}
}

// TestAllNodesAreLeftOnlyWhenSomeoneSaysSo: without a terminal --yes or --node is needed, and on one the answer counts.
func TestAllNodesAreLeftOnlyWhenSomeoneSaysSo(t *testing.T) {
	t.Parallel()
	closed, err := os.Open(os.DevNull)
	testkit.Check(t, err)
	defer closed.Close()
	nodes := make([]corev1.Node, 22)
	for i := range nodes {
		nodes[i].Name = fmt.Sprintf("n%d", i)
	}
	for name, test := range map[string]struct {
		in   io.Reader
		want string // in the error; "" for none
	}{
		"a script": {
			closed, "leave without --node acts on all nodes of https://c: add --yes, or name one with --node",
		},
		"yes":               {strings.NewReader("y\n"), ""},
		"yes, in full":      {strings.NewReader("Yes\n"), ""},
		"only a line break": {strings.NewReader("\n"), "nothing was changed"},
		"no":                {strings.NewReader("n\n"), "nothing was changed"},
		"the end":           {strings.NewReader(""), "nothing was changed"},
	} {
		var asked bytes.Buffer
		err := confirm(genericiooptions.IOStreams{In: test.in, ErrOut: &asked}, "https://c", nodes)
		question := asked.String()
		names := strings.Contains(question, "n0, n1") && strings.Contains(question, "n19, and 2 more")
		if test.in != io.Reader(closed) && !names || strings.Contains(question, "n20") {
			t.Errorf("%s: the question is %q", name, &asked)
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestADryRunOfLeaveSaysWhatWouldBeDoneAndWritesNothing: node b has an agent and nothing else, node c has no agent.
func TestADryRunOfLeaveSaysWhatWouldBeDoneAndWritesNothing(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	answer, err := l.plan(t.Context())
	testkit.Check(t, err)
	found := map[string]string{}
	for _, f := range answer.Findings {
		found[f.Check] = f.Found
	}
	const ask = "would ask its agent to return the containers' cgroups; "
	for check, want := range map[string]string{
		"a": ask + "would remove ", "b": ask + "would find nothing to remove", "c": "would remove ",
		"installation": "would remove the webhooks and the agents",
	} {
		if !strings.HasPrefix(found[check], want) {
			t.Errorf("%s: %q, want it to begin with %q", check, found[check], want)
		}
	}
	for check, part := range map[string]string{"a": "devices/a", "c": "numatopologies/c"} {
		amount := strings.Contains(found[check], string(annotation.ResourceGPUCore))
		if !strings.Contains(found[check], part) || !amount {
			t.Errorf("%s: %q names not all that would be removed", check, found[check])
		}
	}
	actions := l.core.Actions()
	for _, a := range append(actions, l.objects.Actions()...) {
		if !slices.Contains([]string{"get", "list"}, a.GetVerb()) {
			t.Errorf("a dry run does %s on %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
	l.name = "b"
	if answer, err = l.plan(t.Context()); err != nil || len(answer.Findings) != 1 {
		t.Errorf("one node: %v, %v, want one finding", answer.Findings, err)
	}
}

// TestBadInputOfLeave: each right that is missing is named, and an unknown node with those that exist.
func TestBadInputOfLeave(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ verb, resource, subresource, want string }{
		"nodes":       {"list", "nodes", "", "list on nodes"},
		"agents":      {"list", "pods", "", "list on pods of namespace tenon-system"},
		"the Node":    {"patch", "nodes", "status", "patch on nodes/status"},
		"look":        {"list", "noderesourcetopologies", "", "list on noderesourcetopologies.topology.node.k8s.io"},
		"reports":     {"delete", "devices", "", "delete on devices.scheduling.koordinator.sh"},
		"agents' end": {"delete", "daemonsets", "", "delete on daemonsets.apps"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeaving(t)
			refuse := func(a clienttesting.Action) (bool, runtime.Object, error) {
				if a.Matches(test.verb, test.resource) && a.GetSubresource() == test.subresource {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: test.resource}, "x", nil)
				}
				return false, nil, nil
			}
			l.core.PrependReactor("*", "*", refuse)
			l.objects.PrependReactor("*", "*", refuse)
			var err error
			for i := 0; i < 4 && err == nil; i++ {
				if _, err = l.step(t.Context()); err == nil {
					l.says("a", event.Left, "left")
					l.says("b", event.Left, "left")
				}
			}
			code := exitCode(err)
			if err == nil || !strings.HasPrefix(err.Error(), test.want+" is missing") || code != ExitUnreachable {
				t.Errorf("%v (exit %d), want %s is missing, exit %d", err, code, test.want, ExitUnreachable)
			}
		})
	}
	l := newLeaving(t)
	l.name = "aa"
	if _, err := l.step(t.Context()); !errors.Is(err, errNoNode) || exitCode(err) != ExitUsage ||
		!strings.Contains(err.Error(), `did you mean "a"?`) {
		t.Errorf("an unknown node: %v, want a suggestion", err)
	}
	if got := l.get("a").Annotations[annotation.LeaveKey]; got != "" {
		t.Error("a node is left all the same")
	}
}

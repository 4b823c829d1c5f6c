package rights

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/api/annotation"
	device "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/controlplane"
)

// patience bounds a wait for something that takes a moment; it is long because machines may be slow.
const patience = 2 * time.Minute

// namespace is where the agents run.
const namespace = "tenon-system"

// cluster is an API server with the manifests of deploy, two nodes a and b, and an agent's pod on each.
type cluster struct {
	server kubeconf.Cluster
	admin  user
}

// user is an account with clients.
type user struct {
	typed   kubernetes.Interface
	objects dynamic.Interface
	config  *rest.Config
}

func asUser(t *testing.T, config *rest.Config) user {
	t.Helper()
	config.QPS = -1
	typed, err := kubernetes.NewForConfig(config)
	testkit.Check(t, err)
	objects, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	return user{typed, objects, config}
}

func start(t *testing.T) *cluster {
	t.Helper()
	p := controlplane.Start(t)
	c := &cluster{server: p.Server, admin: asUser(t, p.Config)}
	c.install(t)
	return c
}

// install applies the manifests and makes two nodes with all that belongs to them.
func (c *cluster) install(t *testing.T) {
	t.Helper()
	applier, err := install.NewApplier(c.admin.config)
	testkit.Check(t, err)
	for _, docs := range [][][]byte{deploy.CRDs(), deploy.RBAC()} {
		objects, err := install.Parse(docs...)
		testkit.Check(t, err)
		testkit.Check(t, applier.Apply(t.Context(), objects))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		testkit.Check(t, applier.AwaitEstablished(ctx, objects))
		cancel()
	}
	for _, name := range []string{"a", "b"} {
		c.node(t, name)
		for _, gvr := range []schema.GroupVersionResource{
			v1alpha2.Resource(), nodeinfo.Resource(), slo.NodeMetrics(),
		} {
			if name == "a" && gvr != slo.NodeMetrics() {
				continue // its agent makes them
			}
			_, err := c.admin.objects.Resource(gvr).Create(t.Context(), object(gvr, name), metav1.CreateOptions{})
			testkit.Check(t, err)
		}
		agent := testobject.Pod(namespace+"/agent-"+name, testobject.On(name), testobject.Container("agent", "x"))
		agent.Spec.ServiceAccountName, agent.Spec.AutomountServiceAccountToken = "tenon-agent", new(bool)
		_, err := c.admin.typed.CoreV1().Pods(namespace).Create(t.Context(), agent, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
}

// node makes a Node with a full status, as a large one has.
func (c *cluster) node(t *testing.T, name string) {
	t.Helper()
	nodes := c.admin.typed.CoreV1().Nodes()
	n, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"kubernetes.io/hostname": name},
		Annotations: map[string]string{"x/y": "z"},
	}}, metav1.CreateOptions{})
	testkit.Check(t, err)
	n.Status = corev1.NodeStatus{
		Capacity:        testobject.List("cpu", "96", "x/gpu", "8"),
		Allocatable:     testobject.List("cpu", "94", "pods", "110"),
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo:        corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", BootID: "boot"},
	}
	for i := range 20 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(fmt.Sprintf("example.com/Check%d", i)), Status: corev1.ConditionTrue,
			Reason: "Fine", Message: strings.Repeat("all is well ", 20), LastHeartbeatTime: metav1.Now(),
			LastTransitionTime: metav1.Now(),
		})
	}
	for i := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("example.com/image-%d@sha256:%064d", i, i),
				fmt.Sprintf("example.com/image-%d:tag", i),
			}, SizeBytes: 1 << 30,
		})
	}
	_, err = nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	testkit.Check(t, err)
}

func object(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	kind := map[string]string{
		"noderesourcetopologies": "NodeResourceTopology",
		"numatopologies":         "Numatopology",
		"devices":                "Device",
		"nodemetrics":            "NodeMetric",
	}[gvr.Resource]
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name},
	}}
	if kind == "NodeResourceTopology" {
		u.Object["zones"] = []any{map[string]any{"name": "node-0", "type": "Node"}}
	}
	return u
}

// agent is the account of agents with a token, bound to an object; "" for none.
func (c *cluster) agent(t *testing.T, kind, name string) user {
	t.Helper()
	request := &authentication.TokenRequest{}
	switch kind {
	case "Pod":
		pod, err := c.admin.typed.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		testkit.Check(t, err)
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{
			APIVersion: "v1", Kind: kind, Name: name,
			UID: pod.UID,
		}
	case "Node":
		node, err := c.admin.typed.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		testkit.Check(t, err)
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{
			APIVersion: "v1", Kind: kind, Name: name,
			UID: node.UID,
		}
	}
	answer, err := c.admin.typed.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "tenon-agent", request,
		metav1.CreateOptions{})
	testkit.Check(t, err)
	return asUser(t, &rest.Config{
		Host: c.server.Server, BearerToken: answer.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.server.Authority},
	})
}

// awaitPolicies waits until the API server, which reads its policies from a watch, refuses by each of them.
func (c *cluster) awaitPolicies(t *testing.T, a user) {
	t.Helper()
	probes := map[string]func(context.Context) error{
		"its own node": func(ctx context.Context) error {
			_, err := a.objects.Resource(v1alpha2.Resource()).Create(ctx, object(v1alpha2.Resource(), "probe"),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
		"of the type tenon.sh": func(ctx context.Context) error {
			_, err := a.typed.CoreV1().Nodes().Patch(ctx, "a", types.StrategicMergePatchType, condition("Ready"),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
			return err
		},
		notItsPod: func(ctx context.Context) error {
			return a.typed.CoreV1().Pods(namespace).Delete(ctx, "agent-b",
				metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		},
		"an Event of an agent wants": func(ctx context.Context) error {
			e := event("a", "Node", "a")
			e.ReportingInstance = "x"
			_, err := a.typed.EventsV1().Events("default").Create(ctx, e,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
	}
	for says, try := range probes {
		var last error
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
			func(ctx context.Context) (bool, error) {
				last = try(ctx)
				return last != nil && strings.Contains(last.Error(), says), nil
			})
		if err != nil {
			t.Fatalf("the policy that says %q is not in force: %v; the last answer was %v", says, err, last)
		}
	}
}

func condition(kind string) []byte {
	return fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True","reason":"Test","message":"m"}]}}`,
		kind)
}

var events int //nolint:gochecknoglobals // names of Events, in one test

// event returns an Event as the agent of a node sends it.
func event(node, kind, name string) *eventsv1.Event {
	events++
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("e%d", events)},
		EventTime:           metav1.NowMicro(),
		ReportingController: "tenon-agent", ReportingInstance: "tenon-agent-" + node, Action: "Test", Reason: "Test",
		Type: "Normal", Note: "n",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Name: name},
	}
	if kind == "Pod" {
		e.Regarding.Namespace = "default"
	}
	return e
}

// attempt is one request of an agent.
type attempt struct {
	who user
	try func(ctx context.Context, u user) error
	// says is a part of the refusal; "" where the request must pass.
	says string
}

func topologies(u user, version string) dynamic.ResourceInterface {
	gvr := v1alpha2.Resource()
	if version == "v1alpha1" {
		gvr = v1alpha1.GroupVersion().WithResource(gvr.Resource)
	}
	return u.objects.Resource(gvr)
}

func apply(node string) func(context.Context, user) error {
	return func(ctx context.Context, u user) error {
		_, err := topologies(u, "").Apply(ctx, node, object(v1alpha2.Resource(), node),
			metav1.ApplyOptions{FieldManager: "tenon-agent", Force: true})
		return err
	}
}

func patchStatus(node, patch string, kind types.PatchType) func(context.Context, user) error {
	return func(ctx context.Context, u user) error {
		_, err := u.typed.CoreV1().Nodes().Patch(ctx, node, kind, []byte(patch), metav1.PatchOptions{}, "status")
		return err
	}
}

func patchNode(node, patch string, sub ...string) func(context.Context, user) error {
	return func(ctx context.Context, u user) error {
		_, err := u.typed.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
			sub...)
		return err
	}
}

func send(e *eventsv1.Event) func(context.Context, user) error {
	return func(ctx context.Context, u user) error {
		_, err := u.typed.EventsV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
		return err
	}
}

const (
	byRBAC   = "cannot" // `User "…" cannot patch resource …`
	notOwn   = "an agent may only change the objects of its own node, a"
	noNode   = "the agent's token names no node"
	metadata = "an agent may not change metadata of its Node"
	others   = "an agent may change nothing but conditions"
	foreign  = "an agent may change conditions of the type tenon.sh/"
	tooMuch  = "an agent may set at most 16 conditions"
	// Of pods.
	notItsPod = "an agent may only evict pods of its own node, a"
	notBE     = "an agent may only evict pods with the label koordinator.sh/qosClass: BE"
	noGrace   = "an agent may not delete a pod without its grace period"
	otherThan = "an agent may change nothing but conditions of a pod"
	notTarget = "an agent may set no condition of a pod but DisruptionTarget"
	// The API server's own rules.
	mismatch  = "does not match"
	immutable = "field is immutable"
)

// TestTheAgentOfANodeCannotBreakOut starts one API server, because a process can have only one, and asks everything of
// it.
func TestTheAgentOfANodeCannotBreakOut(t *testing.T) {
	c := start(t)
	a, b := c.agent(t, "Pod", "agent-a"), c.agent(t, "Node", "b")
	unbound := c.agent(t, "", "")
	c.awaitPolicies(t, a)
	merge, strategic := types.MergePatchType, types.StrategicMergePatchType

	attempts := map[string]attempt{}
	add := func(name string, who user, says string, try func(context.Context, user) error) {
		if _, twice := attempts[name]; twice {
			t.Fatalf("two attempts are called %q", name)
		}
		attempts[name] = attempt{who, try, says}
	}
	refused := func(name, says string, try func(context.Context, user) error) { add(name, a, says, try) }
	c.topologyAttempts(refused, add, a, unbound)
	c.nodeAttempts(refused, add, a, unbound, merge, strategic)
	c.eventAttempts(t, refused, add, a, b, unbound)
	c.evictionAttempts(t, refused, add, a, unbound)
	c.otherAttempts(refused)
	// All that is not the agent's stays as it is.
	before := c.snapshot(t)
	for name, at := range attempts {
		t.Run(name, func(t *testing.T) {
			err := at.try(t.Context(), at.who)
			switch {
			case at.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case at.says != "" && err == nil:
				t.Error("it went through")
			case at.says != "" && !strings.Contains(err.Error(), at.says):
				t.Errorf("refused with %q, want it to say %q", err, at.says)
			case at.says == mismatch || at.says == immutable:
				// the API server itself, before it asks a policy
			case at.says != "" && !apierrors.IsForbidden(err):
				t.Errorf("refused with %v, want Forbidden", apierrors.ReasonForError(err))
			}
		})
	}
	if after := c.snapshot(t); after != before {
		t.Errorf("something that is not the agent's has changed:\n%s\nwas\n%s", after, before)
	}
}

func (c *cluster) topologyAttempts(refused func(string, string, func(context.Context, user) error),
	add func(string, user, string, func(context.Context, user) error), a, unbound user,
) {
	gvr := v1alpha2.Resource()
	add("its own topology is applied", a, "", func(ctx context.Context, u user) error {
		if err := apply("a")(ctx, u); err != nil {
			return err
		}
		return apply("a")(ctx, u) // and once more, as it exists
	})
	add("its own Numatopology is created and changed", a, "", func(ctx context.Context, u user) error {
		made, err := u.objects.Resource(nodeinfo.Resource()).Create(ctx, object(nodeinfo.Resource(), "a"),
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		made.SetAnnotations(map[string]string{"timestamp": "1"})
		_, err = u.objects.Resource(nodeinfo.Resource()).Update(ctx, made, metav1.UpdateOptions{})
		return err
	})
	holders := func(node string) func(context.Context, user) error {
		return func(ctx context.Context, u user) error {
			o := object(device.Resource(), node)
			o.Object["spec"] = map[string]any{"devices": []any{}}
			o.SetAnnotations(map[string]string{annotation.DevicesCheckpointsKey: "[]"})
			_, err := u.objects.Resource(device.Resource()).Apply(ctx, node, o,
				metav1.ApplyOptions{FieldManager: "tenon-agent", Force: true})
			return err
		}
	}
	use := func(node string, sub ...string) func(context.Context, user) error {
		return func(ctx context.Context, u user) error {
			o := object(slo.NodeMetrics(), node)
			o.Object["status"] = map[string]any{"updateTime": "2026-01-02T03:04:05Z"}
			_, err := u.objects.Resource(slo.NodeMetrics()).Apply(ctx, node, o,
				metav1.ApplyOptions{FieldManager: "tenon-agent", Force: true}, sub...)
			return err
		}
	}
	add("the use of its own node is reported", a, "", use("a", "status"))
	refused("the use of another node is reported", notOwn, use("b", "status"))
	refused("the spec of its NodeMetric is written", byRBAC, use("a"))
	refused("a NodeMetric is created", byRBAC, func(ctx context.Context, u user) error {
		_, err := u.objects.Resource(slo.NodeMetrics()).Create(ctx, object(slo.NodeMetrics(), "c"),
			metav1.CreateOptions{})
		return err
	})
	refused("a NodeMetric is deleted", byRBAC, func(ctx context.Context, u user) error {
		return u.objects.Resource(slo.NodeMetrics()).Delete(ctx, "a", metav1.DeleteOptions{})
	})
	add("holders of its own devices are written", a, "", holders("a"))
	refused("holders of another's devices are written", notOwn, holders("b"))
	refused("another's topology is applied", notOwn, apply("b"))
	refused("a topology of no node is applied", notOwn, apply("c"))
	refused("a topology of no node is created", notOwn, func(ctx context.Context, u user) error {
		_, err := topologies(u, "").Create(ctx, object(gvr, "c"), metav1.CreateOptions{})
		return err
	})
	refused("a topology gets a name of the server's", notOwn, func(ctx context.Context, u user) error {
		o := object(gvr, "")
		unstructured.RemoveNestedField(o.Object, "metadata", "name")
		o.SetGenerateName("a")
		_, err := topologies(u, "").Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	for _, version := range []string{"v1alpha1", "v1alpha2"} {
		refused("another's topology is patched in "+version, notOwn, func(ctx context.Context, u user) error {
			_, err := topologies(u, version).Patch(ctx, "b", types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"x":"y"}},"topologyPolicies":["None"]}`), metav1.PatchOptions{})
			return err
		})
	}
	refused("another's topology is renamed to its own in the body", mismatch, func(ctx context.Context, u user) error {
		_, err := topologies(u, "").Patch(ctx, "b", types.MergePatchType, []byte(`{"metadata":{"name":"a"}}`),
			metav1.PatchOptions{})
		return err
	})
	refused("its own name in the path, another's in the body", mismatch, func(ctx context.Context, u user) error {
		o := object(gvr, "b")
		o.SetResourceVersion("1")
		return u.typed.Discovery().RESTClient().Patch(types.ApplyPatchType).AbsPath(
			"/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/a").
			Param("fieldManager", "tenon-agent").Param("force", "true").Body(mustJSON(o)).Do(ctx).Error()
	})
	refused("another's topology is updated", byRBAC, func(ctx context.Context, u user) error {
		_, err := topologies(u, "").Update(ctx, object(gvr, "b"), metav1.UpdateOptions{})
		return err
	})
	refused("another's topology is deleted", byRBAC, func(ctx context.Context, u user) error {
		return topologies(u, "").Delete(ctx, "b", metav1.DeleteOptions{})
	})
	refused("all topologies are deleted", byRBAC, func(ctx context.Context, u user) error {
		return topologies(u, "").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	refused("another's Numatopology is updated", notOwn, func(ctx context.Context, u user) error {
		o, err := u.objects.Resource(nodeinfo.Resource()).Get(ctx, "b", metav1.GetOptions{})
		if err != nil {
			return err
		}
		o.SetAnnotations(map[string]string{"timestamp": "1"})
		_, err = u.objects.Resource(nodeinfo.Resource()).Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
	refused("another's Numatopology is patched", byRBAC, func(ctx context.Context, u user) error {
		_, err := u.objects.Resource(nodeinfo.Resource()).Patch(ctx, "b", types.MergePatchType, []byte(`{}`),
			metav1.PatchOptions{})
		return err
	})
	refused("all Numatopologies are deleted", byRBAC, func(ctx context.Context, u user) error {
		return u.objects.Resource(nodeinfo.Resource()).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{})
	})
	add("a token of no node applies a topology", unbound, noNode, apply("a"))
}

func (c *cluster) nodeAttempts(refused func(string, string, func(context.Context, user) error),
	add func(string, user, string, func(context.Context, user) error), a, unbound user, merge,
	strategic types.PatchType,
) {
	add("its Node gets a condition, and another text of it", a, "", func(ctx context.Context, u user) error {
		for _, text := range []string{"m", "other"} {
			patch := strings.Replace(string(condition("tenon.sh/TopologySourceDegraded")), `"m"`, `"`+text+`"`, 1)
			if err := patchStatus("a", patch, strategic)(ctx, u); err != nil {
				return err
			}
		}
		return nil
	})
	refused("another's Node gets a condition", notOwn,
		patchStatus("b", string(condition("tenon.sh/TopologySourceDegraded")), strategic))
	refused("its Node gets the condition Ready", foreign, patchStatus("a", string(condition("Ready")), strategic))
	refused("a condition of another program is changed", foreign,
		patchStatus("a", strings.Replace(string(condition("example.com/Check7")), `"True"`, `"False"`, 1), strategic))
	refused("all conditions are taken away", foreign, patchStatus("a", `{"status":{"conditions":null}}`, merge))
	refused("a condition is taken away", foreign,
		patchStatus("a", `{"status":{"conditions":[{"$patch":"delete","type":"example.com/Check0"}]}}`, strategic))
	refused("a condition that only begins alike", foreign,
		patchStatus("a", string(condition("tenon.shadow/Ready")), strategic))
	for name, status := range map[string]string{
		"capacity": `"capacity":{"x/gpu":"64"}`, "allocatable": `"allocatable":{"cpu":"96"}`,
		"addresses":             `"addresses":[{"type":"InternalIP","address":"10.0.0.99"}]`,
		"the kubelet's port":    `"daemonEndpoints":{"kubeletEndpoint":{"Port":1}}`,
		"the kubelet's version": `"nodeInfo":{"kubeletVersion":"v9"}`,
		"images":                `"images":[]`, "attached volumes": `"volumesInUse":["v"]`,
		"phase":            `"phase":"Terminated"`,
		"runtime handlers": `"runtimeHandlers":[{"name":"x"}]`,
	} {
		refused("its Node's status: "+name, others, patchStatus("a", `{"status":{`+status+`}}`, merge))
	}
	for name, patch := range map[string]string{
		"a label":            `{"labels":{"node.tenon.sh/topology-mode":"Own"}}`,
		"a label taken away": `{"labels":{"kubernetes.io/hostname":null}}`,
		"an annotation":      `{"annotations":{"x/y":"other"}}`, "all annotations": `{"annotations":null}`,
		"a finalizer": `{"finalizers":["x/y"]}`,
		"an owner":    `{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"b","uid":"u"}]}`,
	} {
		refused("its Node, through the status: "+name, metadata, patchStatus("a", `{"metadata":`+patch+`}`, merge))
		refused("its Node: "+name, byRBAC, patchNode("a", `{"metadata":`+patch+`}`))
	}
	refused("its Node is made unschedulable", byRBAC, patchNode("a", `{"spec":{"unschedulable":true}}`))
	refused("its Node is tainted", byRBAC, patchNode("a", `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`))
	refused("another's Node is tainted", byRBAC,
		patchNode("b", `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`))
	refused("another's Node through the status", notOwn, patchStatus("b", `{"metadata":{"labels":{"x":"y"}}}`, merge))
	refused("its Node's status is replaced", byRBAC, func(ctx context.Context, u user) error {
		n, err := u.typed.CoreV1().Nodes().Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = u.typed.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
	refused("a Node is created", byRBAC, func(ctx context.Context, u user) error {
		_, err := u.typed.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
			metav1.CreateOptions{})
		return err
	})
	refused("a Node is deleted", byRBAC, func(ctx context.Context, u user) error {
		return u.typed.CoreV1().Nodes().Delete(ctx, "a", metav1.DeleteOptions{})
	})
	for _, verb := range []string{"get", "create"} {
		refused("a kubelet is reached through the API server: "+verb, byRBAC, func(ctx context.Context, u user) error {
			r := u.typed.CoreV1().RESTClient().Verb(strings.ToUpper(map[string]string{
				"get":    "get",
				"create": "post",
			}[verb]))
			return r.AbsPath("/api/v1/nodes/a/proxy/configz").Do(ctx).Error()
		})
	}
	long := func(field string, n int) string {
		value := map[string]string{"type": "tenon.sh/Long", "reason": "Test", "message": "m"}
		value[field] += strings.Repeat("x", n-len(value[field]))
		return fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":%q,"message":%q}]}}`,
			value["type"], value["reason"], value["message"])
	}
	for field, limit := range map[string]int{"type": 64, "reason": 64, "message": 1024} {
		add("a condition with the longest "+field, a, "", patchStatus("a", long(field, limit), strategic))
		refused("a condition with a longer "+field, tooMuch, patchStatus("a", long(field, limit+1), strategic))
	}
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprintf(`{"type":"tenon.sh/Many%d","status":"True","reason":"Test","message":"m"}`, i)
	}
	refused("its Node gets too many conditions", tooMuch,
		patchStatus("a", `{"status":{"conditions":[`+strings.Join(many, ",")+`]}}`, strategic))
	add("a token of no node sets a condition", unbound, noNode,
		patchStatus("a", string(condition("tenon.sh/TopologySourceDegraded")), strategic))
}

func (c *cluster) eventAttempts(t *testing.T, refused func(string, string, func(context.Context, user) error),
	add func(string, user, string, func(context.Context, user) error), a, b, unbound user,
) {
	t.Helper()
	add("an Event about its Node, sent again", a, "", func(ctx context.Context, u user) error {
		e := event("a", "Node", "a")
		if err := send(e)(ctx, u); err != nil {
			return err
		}
		_, err := u.typed.EventsV1().Events("default").Patch(ctx, e.Name, types.StrategicMergePatchType,
			[]byte(`{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`), metav1.PatchOptions{})
		return err
	})
	add("an Event about a pod", a, "", send(event("a", "Pod", "p")))
	add("a token that is bound to its Node sends an Event about it", b, "", send(event("b", "Node", "b")))
	refused("an Event about another's Node", "an agent may only report on pods, and of its own Node, a",
		send(event("a", "Node", "b")))
	service := event("a", "Service", "s")
	service.Regarding.Namespace = "default"
	refused("an Event about a Service", "an agent may only report on pods", send(service))
	related := event("a", "Pod", "p")
	related.Related = &corev1.ObjectReference{Kind: "Node", Name: "b"}
	refused("an Event that is related to something", "an agent may only report on pods", send(related))
	refused("an Event in another agent's name",
		"wants reportingController tenon-agent and reportingInstance tenon-agent-a", send(event("b", "Pod", "p")))
	kubelet := event("a", "Pod", "p")
	kubelet.ReportingController = "kubelet"
	refused("an Event in the kubelet's name", "wants reportingController tenon-agent", send(kubelet))
	foreign := event("b", "Pod", "p")
	testkit.Check(t, send(foreign)(t.Context(), c.admin))
	for patch, says := range map[string]string{
		`{"series":{"count":9,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`: "an agent may only change its own " +
			"Events",
		`{"metadata":{"labels":{"x":"y"}}}`: "an agent may only change its own " +
			"Events",
		`{"reportingInstance":"tenon-agent-a"}`: immutable,
	} {
		refused("another's Event is patched: "+patch, says, func(ctx context.Context, u user) error {
			_, err := u.typed.EventsV1().Events("default").Patch(ctx, foreign.Name, types.MergePatchType, []byte(patch),
				metav1.PatchOptions{})
			return err
		})
	}
	refused("an Event of the old kind", byRBAC, func(ctx context.Context, u user) error {
		_, err := u.typed.CoreV1().Events("default").Create(ctx,
			&corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Name: "old", Namespace: "default"},
				InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "b", Namespace: "default"},
			},
			metav1.CreateOptions{})
		return err
	})
	refused("an Event is deleted", byRBAC, func(ctx context.Context, u user) error {
		return u.typed.EventsV1().Events("default").Delete(ctx, foreign.Name, metav1.DeleteOptions{})
	})
	add("a token of no node sends an Event", unbound, noNode, send(event("", "Pod", "p")))
}

// evictionAttempts evicts pods as an agent does, and in other ways. Each pod is attacked alone.
func (c *cluster) evictionAttempts(t *testing.T, refused func(string, string, func(context.Context, user) error),
	add func(string, user, string, func(context.Context, user) error), a, unbound user,
) {
	t.Helper()
	pod := func(name, node, class string, priority int32) {
		p := testobject.Pod(namespace+"/"+name, testobject.Container("c", "x"))
		p.Spec.NodeName, p.Labels = node, map[string]string{annotation.QoSClass: class}
		p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = "tenon-agent", new(bool)
		if priority > 0 {
			p.Spec.PriorityClassName = "system-node-critical"
		}
		made, err := c.admin.typed.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
		testkit.Check(t, err)
		made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		made.Status.Phase, made.Status.PodIP = corev1.PodRunning, "10.1.0.1"
		_, err = c.admin.typed.CoreV1().Pods(namespace).UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		testkit.Check(t, err)
	}
	remove := func(name string, o metav1.DeleteOptions) func(context.Context, user) error {
		return func(ctx context.Context, u user) error {
			return u.typed.CoreV1().Pods(namespace).Delete(ctx, name, o)
		}
	}
	patch := func(name, text string) func(context.Context, user) error {
		return func(ctx context.Context, u user) error {
			_, err := u.typed.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(text),
				metav1.PatchOptions{}, "status")
			return err
		}
	}
	target := func(kind, status, reason, message string) string {
		return fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":%q,"message":%q}]}}`, kind, status,
			reason, message)
	}
	const reason = "BestEffortEvicted"
	evicts := target("DisruptionTarget", "True", reason, "m")
	pod("batch", "a", "BE", 0)
	pod("batch-b", "b", "BE", 0)
	pod("service", "a", "LS", 0)
	pod("plain", "a", "", 0)
	pod("critical", "a", "BE", 1)
	pod("pending", "", "BE", 0)
	pod("kept", "a", "BE", 0)
	add("a best-effort pod of its node is evicted", a, "", func(ctx context.Context, u user) error {
		if err := patch("batch", evicts)(ctx, u); err != nil {
			return err
		}
		return remove("batch", metav1.DeleteOptions{})(ctx, u)
	})
	for name, says := range map[string]string{
		"batch-b": notItsPod, "pending": notItsPod, "service": notBE, "plain": notBE, "critical": notBE,
	} {
		refused("the pod is deleted: "+name, says, remove(name, metav1.DeleteOptions{}))
		refused("the pod gets a condition: "+name, says, patch(name, evicts))
	}
	zero := int64(0)
	refused("the pod is deleted without its grace period", noGrace,
		remove("kept", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	for name, text := range map[string]string{
		"its phase":       `{"status":{"phase":"Failed"}}`,
		"its address":     `{"status":{"podIP":"10.0.0.9","podIPs":[{"$patch":"replace"},{"ip":"10.0.0.9"}]}}`,
		"its reason":      `{"status":{"reason":"Evicted"}}`,
		"its message":     `{"status":{"message":"m"}}`,
		"a label":         `{"metadata":{"labels":{"x":"y"}}}`,
		"its class":       `{"metadata":{"labels":{"koordinator.sh/qosClass":null}}}`,
		"an annotation":   `{"metadata":{"annotations":{"x":"y"}}}`,
		"a finalizer":     `{"metadata":{"finalizers":["x/y"]}}`,
		"a field removed": `{"status":{"phase":null,"podIP":null,"podIPs":null}}`,
	} {
		refused("of a pod of its node: "+name, otherThan, patch("kept", text))
	}
	for name, text := range map[string]string{
		"Ready":                   target("Ready", "False", reason, "m"),
		"DisruptionTarget, False": target("DisruptionTarget", "False", reason, "m"),
		"DisruptionTarget, in the name of the Eviction API": target("DisruptionTarget", "True",
			"EvictionByEvictionAPI", "m"),
		"DisruptionTarget, with a long text": target("DisruptionTarget", "True", reason,
			strings.Repeat("m", 1025)),
		"Ready removed": `{"status":{"conditions":[{"$patch":"delete","type":"Ready"}]}}`,
	} {
		refused("the condition of a pod of its node: "+name, notTarget, patch("kept", text))
	}
	add("a token of no node evicts a pod", unbound, noNode, remove("kept", metav1.DeleteOptions{}))
}

func (c *cluster) otherAttempts(refused func(string, string, func(context.Context, user) error)) {
	refused("a pod is created", byRBAC, func(ctx context.Context, u user) error {
		_, err := u.typed.CoreV1().Pods("default").Create(ctx, testobject.Pod("x", testobject.Container("c", "x")),
			metav1.CreateOptions{})
		return err
	})
	for _, sub := range []string{"", "resize", "ephemeralcontainers"} {
		refused("a pod is patched: "+sub, byRBAC, func(ctx context.Context, u user) error {
			_, err := u.typed.CoreV1().Pods(namespace).Patch(ctx, "agent-a", types.MergePatchType, []byte(`{}`),
				metav1.PatchOptions{}, strings.Fields(sub)...)
			return err
		})
	}
	for _, sub := range []string{"exec", "eviction", "binding", "attach", "portforward"} {
		refused("a pod's "+sub, byRBAC, func(ctx context.Context, u user) error {
			return u.typed.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(
				"agent-b").SubResource(sub).Do(ctx).Error()
		})
	}
	refused("a pod's log", byRBAC, func(ctx context.Context, u user) error {
		return u.typed.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name("agent-b").SubResource(
			"log").Do(ctx).Error()
	})
	refused("all pods are deleted", byRBAC, func(ctx context.Context, u user) error {
		return u.typed.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	refused("secrets are read", byRBAC, func(ctx context.Context, u user) error {
		_, err := u.typed.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		return err
	})
	refused("a token of its own is made", byRBAC, func(ctx context.Context, u user) error {
		_, err := u.typed.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "tenon-agent",
			&authentication.TokenRequest{}, metav1.CreateOptions{})
		return err
	})
	refused("a policy is deleted", byRBAC, func(ctx context.Context, u user) error {
		return u.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, "tenon-agent-own-node",
			metav1.DeleteOptions{})
	})
	for name, as := range map[string]rest.ImpersonationConfig{
		"the admin": {UserName: "admin", Groups: []string{"system:masters"}},
		"itself, on b": {
			UserName: "system:serviceaccount:tenon-system:tenon-agent",
			Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {"b"}},
		},
		"b's kubelet":   {UserName: "system:node:b", Groups: []string{"system:nodes"}},
		"the scheduler": {UserName: "system:serviceaccount:tenon-system:tenon-scheduler"},
	} {
		refused("it poses as "+name, "cannot impersonate", func(ctx context.Context, u user) error {
			config := rest.CopyConfig(u.config)
			config.Impersonate = as
			typed, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			_, err = typed.CoreV1().Nodes().Patch(ctx, "b", types.StrategicMergePatchType,
				condition("tenon.sh/TopologySourceDegraded"), metav1.PatchOptions{}, "status")
			return err
		})
	}
}

// snapshot is all that is not node a's, and of node a what is not its agent's.
func (c *cluster) snapshot(t *testing.T) string {
	t.Helper()
	var lines []string
	for _, gvr := range []schema.GroupVersionResource{v1alpha2.Resource(), nodeinfo.Resource()} {
		list, err := c.admin.objects.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		testkit.Check(t, err)
		for i := range list.Items {
			if o := &list.Items[i]; o.GetName() != "a" {
				lines = append(lines, fmt.Sprint(gvr.Resource, " ", o.GetName(), " ", o.GetResourceVersion()))
			}
		}
	}
	nodes, err := c.admin.typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range nodes.Items {
		n := nodes.Items[i].DeepCopy()
		n.ResourceVersion, n.ManagedFields = "", nil
		var kept []corev1.NodeCondition
		for _, cond := range n.Status.Conditions {
			if n.Name == "b" || !strings.HasPrefix(string(cond.Type), "tenon.sh/") {
				kept = append(kept, cond)
			}
		}
		n.Status.Conditions = kept
		lines = append(lines, string(mustJSON(n)))
	}
	pods, err := c.admin.typed.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range pods.Items {
		if pods.Items[i].Name == "batch" {
			continue // it is evicted
		}
		lines = append(lines, "pod "+pods.Items[i].Name+" "+pods.Items[i].ResourceVersion)
	}
	return strings.Join(lines, "\n")
}

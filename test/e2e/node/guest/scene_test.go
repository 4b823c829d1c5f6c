//go:build e2e_guest

package guest

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// node is a guest that is a node of the cluster of these tests.
type node struct {
	Node
	plane *plane
	// agent are the arguments of the agent beside its credentials.
	agent []string
}

// startAgent starts the agent.
func (n *node) startAgent(ctx context.Context) error {
	arguments := []string{
		vm.Programs + "/tenon-agent", "run", "--kubeconfig=/etc/kubernetes/agent.kubeconfig",
		"--node-name=" + n.Name,
	}
	_, err := n.Guest.Run(ctx, Spawn("agent", append(arguments, n.agent...)...))
	return err
}

// startContainerd starts the container runtime again.
func (n *node) startContainerd(ctx context.Context) error {
	_, err := n.Guest.Run(ctx, Spawn("containerd", "/bin/containerd"))
	return err
}

// join makes a guest a node of the cluster, with an agent, and waits until both have said what they are. Pods of the
// node live in a namespace of its name.
func join(t *testing.T, g *vm.Guest, shape vm.Shape, kubelet KubeletPolicy, agent ...string) *node {
	t.Helper()
	return joinAs(t, &node{
		Node: Node{Name: shape.Name, Shape: shape, Guest: g, Kubelet: kubelet}, plane: found.plane, agent: agent,
	})
}

func joinAs(t *testing.T, n *node) *node {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.Logs(context.Background(), "kubelet", "agent", "containerd", "proxy"))
		}
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	if _, err := n.plane.client.CoreV1().Namespaces().Create(t.Context(), namespace,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	files, err := Credentials(n.plane.authority, n.Name, n.plane.server())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Join(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	await(t, "the Node", func() error {
		_, err := n.plane.client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		return err
	})
	files, err = n.plane.agentFiles(t.Context(), n.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Write(t.Context(), "/etc/kubernetes", files), n.startAgent(t.Context())); err != nil {
		t.Fatal(err)
	}
	await(t, "the namespace's account", func() error {
		_, err := n.plane.client.CoreV1().ServiceAccounts(n.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	await(t, "the node to be ready and to have published its topology", func() error {
		if err := n.readyNode(t.Context()); err != nil {
			return err
		}
		_, err := n.plane.dynamic.Resource(topologies).Get(t.Context(), n.Name, metav1.GetOptions{})
		return err
	})
	return n
}

func (n *node) readyNode(ctx context.Context) error {
	object, err := n.plane.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return nil
			}
			return errors.New(c.Message)
		}
	}
	return errors.New("the node has no condition Ready")
}

// option changes a pod before it is sent.
type option = object.PodOption

// oneNode asks for CPUs and memory of one NUMA node.
func oneNode(p *corev1.Pod) {
	p.Annotations[annotation.NUMATopologySpecKey] = `{"numaTopologyPolicy":"SingleNUMANode"}`
}

// pod returns a pod of a class of Tenon, "" for one that uses nothing of it, with one container. Amounts may be empty.
func (n *node) pod(name, class, cpu, memory string, options ...option) *corev1.Pod {
	p := object.Pod(n.Name+"/"+name, object.Class(class), object.Grace(1), object.Probe,
		object.Both("cpu", cpu, "memory", memory))
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: n.Name}
	p.Spec.HostNetwork, p.Spec.EnableServiceLinks, p.Spec.AutomountServiceAccountToken = true, new(bool), new(bool)
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TENON_CLASS", Value: class}}
	for _, o := range options {
		o(p)
	}
	return p
}

// create sends pods. Those that a case leaves behind when it fails are removed, so that the next case is about itself.
func (n *node) create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		t.Cleanup(func() {
			if t.Failed() {
				_ = n.plane.client.CoreV1().Pods(n.Name).Delete(context.Background(), p.Name, metav1.DeleteOptions{})
			}
		})
		if _, err := n.plane.client.CoreV1().Pods(n.Name).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create pod %s: %v", p.Name, err)
		}
	}
}

// running waits until pods run and returns them as they are then.
func (n *node) running(t *testing.T, names ...string) []*corev1.Pod {
	t.Helper()
	pods := make([]*corev1.Pod, len(names))
	for i, name := range names {
		await(t, "pod "+name+" to run", func() error {
			p, err := n.plane.client.CoreV1().Pods(n.Name).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			pods[i] = p
			if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].State.Running == nil {
				return errors.New(state(p))
			}
			return nil
		})
	}
	return pods
}

// state says in words how far a pod is.
func state(p *corev1.Pod) string {
	words := []string{string(p.Status.Phase), p.Status.Reason, p.Status.Message}
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			words = append(words, string(c.Type), c.Reason, c.Message)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			words = append(words, w.Reason, w.Message)
		}
		if e := c.State.Terminated; e != nil {
			words = append(words, e.Reason, e.Message)
		}
	}
	return strings.Join(words, " ")
}

// remove deletes pods and waits until they are gone, which is when their processes are.
func (n *node) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := n.plane.client.CoreV1().Pods(n.Name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			t.Fatalf("delete pod %s: %v", name, err)
		}
	}
	for _, name := range names {
		await(t, "pod "+name+" to be gone", func() error {
			p, err := n.plane.client.CoreV1().Pods(n.Name).Get(t.Context(), name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return err
			}
			return errors.New(state(p))
		})
	}
}

// allocated returns the CPUs that the scheduler gave a pod.
func allocated(t *testing.T, p *corev1.Pod) cpuset.Set {
	t.Helper()
	status, _, err := annotation.ParseResourceStatus(p.Annotations[annotation.ResourceStatusKey])
	if err != nil {
		t.Fatalf("pod %s: %v", p.Name, err)
	}
	return parse(t, status.CPUSet)
}

func parse(t *testing.T, list string) cpuset.Set {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *node) look(t *testing.T) []wire.Group {
	t.Helper()
	groups, err := n.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

// holds waits until each pod has exactly its CPUs: groups, effective sets and processes.
func (n *node) holds(t *testing.T, want map[*corev1.Pod]cpuset.Set) {
	t.Helper()
	await(t, "every pod to have its CPUs", func() error {
		groups := n.look(t)
		for p, cpus := range want {
			if err := Confined(groups, p, cpus); err != nil {
				return err
			}
		}
		return nil
	})
}

// all are the CPUs of the machine.
func (n *node) all() cpuset.Set { return cpuset.Span(0, n.Shape.CPUs()-1) }

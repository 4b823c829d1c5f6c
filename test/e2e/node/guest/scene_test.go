//go:build e2e_guest

package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// join makes a guest a node of the cluster, with an agent, and waits until both have said what they are. Pods of the
// node live in a namespace of its name.
func join(t *testing.T, g *vm.Guest, shape vm.Shape, kubelet kubeletPolicy, agent ...string) *node {
	t.Helper()
	return joinAs(t, &node{
		name: shape.Name, shape: shape, guest: g, plane: found.plane, kubelet: kubelet,
		agent: agent,
	})
}

func joinAs(t *testing.T, n *node) *node {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.logs(context.Background(), "kubelet", "agent", "containerd", "proxy"))
		}
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	if _, err := n.plane.client.CoreV1().Namespaces().Create(t.Context(), namespace,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := n.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the Node", func() error {
		_, err := n.plane.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
		return err
	})
	files, err := n.plane.agentFiles(t.Context(), n.name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.write(t.Context(), "/etc/kubernetes", files), n.startAgent(t.Context())); err != nil {
		t.Fatal(err)
	}
	await(t, "the namespace's account", func() error {
		_, err := n.plane.client.CoreV1().ServiceAccounts(n.name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	await(t, "the node to be ready and to have published its topology", func() error {
		if err := n.readyNode(t.Context()); err != nil {
			return err
		}
		_, err := n.plane.dynamic.Resource(topologies).Get(t.Context(), n.name, metav1.GetOptions{})
		return err
	})
	return n
}

func (n *node) readyNode(ctx context.Context) error {
	object, err := n.plane.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
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
type option func(*corev1.Pod)

// oneNode asks for CPUs and memory of one NUMA node.
func oneNode(p *corev1.Pod) {
	p.Annotations[annotation.NUMATopologySpecKey] = `{"numaTopologyPolicy":"SingleNUMANode"}`
}

// pod returns a pod of a class of Tenon, "" for one that uses nothing of it, with one container. Amounts may be empty.
func (n *node) pod(name, class, cpu, memory string, options ...option) *corev1.Pod {
	no, grace := false, int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: n.name, Labels: map[string]string{},
			Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{
			NodeSelector:                 map[string]string{corev1.LabelHostname: n.name},
			AutomountServiceAccountToken: &no, EnableServiceLinks: &no, TerminationGracePeriodSeconds: &grace,
			HostNetwork: true,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "main", Image: "localhost/probe:1", ImagePullPolicy: corev1.PullNever,
				Env: []corev1.EnvVar{{Name: "TENON_CLASS", Value: class}},
			}},
		},
	}
	if class != "" {
		p.Labels[annotation.QoSClass] = class
	}
	amounts := corev1.ResourceList{}
	for name, value := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if value != "" {
			amounts[name] = resource.MustParse(value)
		}
	}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts, Limits: amounts}
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
				_ = n.plane.client.CoreV1().Pods(n.name).Delete(context.Background(), p.Name, metav1.DeleteOptions{})
			}
		})
		if _, err := n.plane.client.CoreV1().Pods(n.name).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
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
			p, err := n.plane.client.CoreV1().Pods(n.name).Get(t.Context(), name, metav1.GetOptions{})
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
		if err := n.plane.client.CoreV1().Pods(n.name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			t.Fatalf("delete pod %s: %v", name, err)
		}
	}
	for _, name := range names {
		await(t, "pod "+name+" to be gone", func() error {
			p, err := n.plane.client.CoreV1().Pods(n.name).Get(t.Context(), name, metav1.GetOptions{})
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

// look reads all groups of pods that hold processes, at one time.
func (n *node) look(t *testing.T) []wire.Group {
	t.Helper()
	var groups []wire.Group
	if err := json.Unmarshal([]byte(script(t, n.guest, "inside look "+n.root())), &groups); err != nil {
		t.Fatal(err)
	}
	return groups
}

// containers returns the groups of a pod's containers: of those that run a program of the tests, and of the sandbox.
func containers(groups []wire.Group, uid types.UID) (own []wire.Group, sandbox []wire.Group) {
	for _, g := range groups {
		if !strings.Contains(strings.ReplaceAll(g.Path, "_", "-"), string(uid)) { // systemd's names have no dashes
			continue
		}
		if g.Processes[0].Class != "" || g.Processes[0].Name == "probe" {
			own = append(own, g)
		} else {
			sandbox = append(sandbox, g)
		}
	}
	return own, sandbox
}

// confined reports how a pod's groups and processes differ from a set of CPUs: an error that names the first
// difference.
func confined(groups []wire.Group, p *corev1.Pod, want cpuset.Set) error {
	own, _ := containers(groups, p.UID)
	if len(own) == 0 {
		return fmt.Errorf("pod %s: no group of its containers holds a process", p.Name)
	}
	for _, g := range own {
		for _, name := range []string{"cpuset.cpus", "cpuset.cpus.effective"} {
			if g.Files[name] != want.String() {
				return fmt.Errorf("pod %s: %s of %s is %q, want %q", p.Name, name, g.Path, g.Files[name], want)
			}
		}
		for _, process := range g.Processes {
			if process.CPUs != want.String() {
				return fmt.Errorf("pod %s: the kernel allows process %s the CPUs %q, want %q", p.Name, process.Name,
					process.CPUs, want)
			}
		}
	}
	return nil
}

// holds waits until each pod has exactly its CPUs: groups, effective sets and processes.
func (n *node) holds(t *testing.T, want map[*corev1.Pod]cpuset.Set) {
	t.Helper()
	await(t, "every pod to have its CPUs", func() error {
		groups := n.look(t)
		for p, cpus := range want {
			if err := confined(groups, p, cpus); err != nil {
				return err
			}
		}
		return nil
	})
}

// all are the CPUs of the machine.
func (n *node) all() cpuset.Set { return cpuset.Span(0, n.shape.CPUs()-1) }

//go:build e2e_node

package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// path is how containers come by the agent.
type path string

const (
	byNRI       path = "NRI"
	byProxy     path = "CRI proxy"
	byReconcile path = "reconciler alone"
	byOldNRI    path = "NRI of containerd 1.7"
)

func (p path) nri() bool { return p == byNRI || p == byOldNRI }

// The machine has CPUs 0 and 1 on one NUMA node: an exclusive CPU is 1, the shared pool beside it is 0.
const (
	allCPUs   = "0-1"
	exclusive = "1"
	shared    = "0"
)

// world is a node with everything that runs on it.
type world struct {
	*testing.T
	s          *stage.Stage
	plane      *stage.Plane
	node       *corev1.Node
	containerd *stage.Containerd
	agent      *stage.Agent
	proxy      *stage.Process
	runtime    *stage.Runtime
}

// options change a world from the usual one.
type options struct {
	containerd stage.ContainerdOptions
	flags      []string // of the agent
	noAgent    bool     // not at the start
	// prepare is called before the agent starts.
	prepare func(*world)
}

// newWorld starts a node on which containers come by the agent in one way.
func newWorld(t *testing.T, route path, o options) *world {
	t.Helper()
	stage.Count(t)
	w := &world{T: t, s: stage.New(t)}
	w.plane = w.s.Plane()
	w.node = w.plane.Node(nodeName(t))
	o.containerd.NoNRI = o.containerd.NoNRI || !route.nri()
	if route == byOldNRI {
		o.containerd.Release = "1.7"
	}
	w.containerd = w.s.Containerd(o.containerd)
	socket := w.s.Socket()
	if o.prepare != nil {
		o.prepare(w)
	}
	if !o.noAgent {
		w.startAgent(route, o.flags...)
	}
	if route == byProxy {
		w.proxy, socket = w.s.Proxy(), w.s.ProxySocket()
	}
	w.runtime = w.s.Runtime(socket)
	return w
}

// startAgent starts the agent for the first time and waits until containers can come by it.
func (w *world) startAgent(route path, flags ...string) {
	w.Helper()
	w.agent = w.s.Agent(stage.AgentOptions{
		Node: w.node.Name, Kubeconfig: w.s.AgentKubeconfig(w.plane, w.node), Flags: flags,
	})
	if route.nri() {
		w.awaitConnected()
	}
}

// awaitConnected waits until the runtime asks the agent.
func (w *world) awaitConnected() {
	w.Helper()
	stage.Await(w, "the agent's connection to the runtime", func() error {
		v, err := w.agent.Metric("tenon_agent_runtime_connected", `path="nri"`)
		if err == nil && v != 1 {
			err = fmt.Errorf("tenon_agent_runtime_connected is %v", v)
		}
		return err
	})
}

// nodeName is the name of a test as the name of a Node.
func nodeName(t *testing.T) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, t.Name())
	return strings.Trim(name[max(0, len(name)-60):], "-")
}

type podOption = object.PodOption

// allocated gives a pod CPUs of its own, as the scheduler does in the Binding.
func allocated(cpus string) podOption { return object.CPUs(cpus) }

// onNode also allocates memory on a NUMA node.
func onNode(cpus string, node int32) podOption {
	return func(p *corev1.Pod) {
		p.Annotations[annotation.ResourceStatusKey] = annotation.Encode(annotation.ResourceStatus{
			CPUSet: cpus,
			NUMANodeResources: []annotation.NUMANodeResource{{
				Node: node, Resources: object.List("cpu", "1", "memory", "64Mi"),
			}},
		})
	}
}

// malformed is an allocation that cannot be parsed.
func malformed(p *corev1.Pod) { p.Annotations[annotation.ResourceStatusKey] = `{"cpuset": "1` }

// fenced says that no container of the pod may start without the agent, as the webhook does.
func fenced(p *corev1.Pod) {
	p.Annotations[annotation.RequiredPlugins] = `["` + annotation.NRIPlugin + `"]`
}

// withClass sets the class of a pod.
func withClass(class string) podOption { return object.Class(class) }

// guaranteed lets the only container ask for whole CPUs.
func guaranteed(cpus string) podOption { return object.Both("cpu", cpus, "memory", "64Mi") }

// pod is the spec of a pod with one container, main, that runs the probe on the host's network.
func pod(name string, options ...podOption) *corev1.Pod {
	p := object.Pod(name, object.Probe, object.Scheduler("tenon-scheduler"), object.Requests("cpu", "500m"))
	p.Spec.HostNetwork, p.Spec.RestartPolicy = true, corev1.RestartPolicyAlways
	for _, o := range options {
		o(p)
	}
	return p
}

const probeImage = "localhost/probe:1"

// bind makes a pod that is bound to the node in the API and returns it as the API has it.
func (w *world) bind(p *corev1.Pod) *corev1.Pod {
	w.Helper()
	p = p.DeepCopy()
	p.Spec.NodeName = w.node.Name
	p.Spec.TerminationGracePeriodSeconds = new(int64)
	made, err := w.plane.Client.CoreV1().Pods(p.Namespace).Create(w.Context(), p, metav1.CreateOptions{})
	testkit.Check(w, err)
	return made
}

// unbind deletes a pod from the API.
func (w *world) unbind(p *corev1.Pod) {
	w.Helper()
	if err := w.plane.Client.CoreV1().Pods(p.Namespace).Delete(w.Context(), p.Name,
		*metav1.NewDeleteOptions(0)); err != nil {
		w.Fatal(err)
	}
}

// sandbox binds a pod and runs its sandbox.
func (w *world) sandbox(p *corev1.Pod) *stage.Sandbox {
	w.Helper()
	b, err := w.runtime.RunPod(w.Context(), w.bind(p))
	if err != nil {
		w.Fatalf("run the sandbox of %s: %v", p.Name, err)
	}
	return b
}

// run binds a pod and runs it with its container main.
func (w *world) run(p *corev1.Pod) (*stage.Sandbox, *stage.Container) {
	w.Helper()
	b := w.sandbox(p)
	return b, w.start(b, "main")
}

// start creates and starts a container of a pod. While the runtime writes an update of another container, the agent
// holds back who is to have its CPUs: as the kubelet does, it is tried once more.
func (w *world) start(b *stage.Sandbox, name string) *stage.Container {
	w.Helper()
	c, err := b.Run(w.Context(), name)
	if c != nil && err != nil && strings.Contains(err.Error(), "the runtime is still writing an older set") {
		testkit.Check(w, c.Remove(w.Context()))
		c, err = b.Run(w.Context(), name)
	}
	if err != nil {
		w.Fatalf("container %s of %s: %v", name, b.Pod.Name, err)
	}
	return c
}

// wants waits until the kernel and the container itself agree on its CPUs.
func (w *world) wants(c *stage.Container, cpus string) {
	w.Helper()
	stage.Await(w, fmt.Sprintf("container %s to be on CPUs %s", c.Name, cpus), func() error { return on(c, cpus) })
}

// on reports when a container is not on its CPUs.
func on(c *stage.Container, cpus string) error {
	effective, err := c.CPUs()
	if err != nil {
		return err
	}
	said, err := c.Said("Cpus_allowed_list")
	if err != nil {
		return err
	}
	if effective != cpus || said != cpus {
		return fmt.Errorf("the kernel lets the group use %q and the container says %q, want %q", effective, said, cpus)
	}
	return nil
}

// never fails when a container was on CPUs that are not among the allowed, from its first instruction on: the probe
// says each change of its set.
func (w *world) never(c *stage.Container, allowed ...string) {
	w.Helper()
	lines, err := c.Lines()
	if err != nil {
		w.Error(err)
	}
	for _, line := range lines {
		cpus, found := strings.CutPrefix(line, "Cpus_allowed_list=")
		if !found {
			continue
		}
		ok := false
		for _, a := range allowed {
			ok = ok || cpus == a
		}
		if !ok {
			w.Errorf("container %s ran on CPUs %s, allowed are %q", c.Name, cpus, allowed)
		}
	}
}

// file waits until a file of a container's cgroup has a value; v1 and v2 differ in names and values.
func (w *world) file(group, v1, wantV1, v2, wantV2 string) {
	w.Helper()
	name, want := v1, wantV1
	if w.s.Cgroups().Unified() {
		name, want = v2, wantV2
	}
	stage.Await(w, name+" of "+group, func() error {
		got, err := w.s.Cgroups().Read(group, name)
		if err == nil && got != want {
			err = fmt.Errorf("is %q, want %q", got, want)
		}
		return err
	})
}

// event waits for an Event about an object.
func (w *world) event(name, reason string) string {
	w.Helper()
	note := ""
	stage.Await(w, "an Event "+reason+" about "+name, func() error {
		list, err := w.plane.Client.EventsV1().Events("").List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var others []string
		for i := range list.Items {
			e := &list.Items[i]
			if e.Regarding.Name != name {
				continue
			}
			if e.Reason == reason {
				note = e.Note
				return nil
			}
			others = append(others, e.Reason+": "+e.Note)
		}
		return fmt.Errorf("there are %q", others)
	})
	return note
}

// condition waits for a condition of the Node, with one of the reasons.
func (w *world) condition(name, status string, reasons ...string) {
	w.Helper()
	stage.Await(w, "the condition "+name, func() error {
		node, err := w.plane.Client.CoreV1().Nodes().Get(w.Context(), w.node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if string(c.Type) == name {
				if string(c.Status) != status || !slices.Contains(reasons, c.Reason) {
					return fmt.Errorf("is %s, %s: %s; want %s, %s", c.Status, c.Reason, c.Message, status, reasons)
				}
				return nil
			}
		}
		return errors.New("the Node has none")
	})
}

// get returns a pod as the API has it.
func (w *world) get(name string) *corev1.Pod {
	w.Helper()
	p, err := w.plane.Client.CoreV1().Pods("default").Get(w.Context(), name, metav1.GetOptions{})
	testkit.Check(w, err)
	return p
}

// count returns how often a container has printed a line.
func (w *world) count(c *stage.Container, line string) int {
	w.Helper()
	lines, err := c.Lines()
	if err != nil {
		w.Error(err)
	}
	n := 0
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

// refused tries to run a container that must be refused, and returns the refusal.
func (w *world) refused(ctx context.Context, b *stage.Sandbox, name string) error {
	w.Helper()
	c, err := b.Run(ctx, name)
	if err == nil {
		cpus, _ := c.CPUs()
		w.Errorf("container %s of %s started, on CPUs %s; it must be refused", name, b.Pod.Name, cpus)
	}
	return err
}

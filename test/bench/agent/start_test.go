//go:build e2e_node

package agent

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// starts is how many containers are started on each side.
const starts = 60

// machine is a stage with containerd.
type machine struct {
	*testing.T
	s       *stage.Stage
	node    *corev1.Node
	plane   *stage.Plane
	runtime *stage.Runtime
	agent   *stage.Agent
}

func newMachine(t *testing.T, name string, o stage.ContainerdOptions) *machine {
	t.Helper()
	m := &machine{T: t, s: stage.New(t)}
	m.plane = m.s.Plane()
	m.node = m.plane.Node(name)
	m.s.Containerd(o)
	m.runtime = m.s.Runtime(m.s.Socket())
	return m
}

// startAgent starts the agent, which is ready then, connected by NRI if asked for that.
func (m *machine) startAgent(nri bool) {
	m.Helper()
	m.agent = m.s.Agent(stage.AgentOptions{
		Node: m.node.Name, Kubeconfig: m.s.AgentKubeconfig(m.plane, m.node), NoNRI: !nri, NoHooks: nri,
		Resync: 30 * time.Second,
	})
	if !nri {
		return
	}
	stage.Await(m, "the agent's connection to the runtime", func() error {
		v, err := m.agent.Metric("tenon_agent_runtime_connected", `path="nri"`)
		if err == nil && v != 1 {
			err = fmt.Errorf("tenon_agent_runtime_connected is %v", v)
		}
		return err
	})
}

// bind makes a pod in the API, with CPU 1 of its own if it is bound.
func (m *machine) bind(name string, bound bool) *corev1.Pod {
	m.Helper()
	p := object.Pod(name, object.On(m.node.Name), object.Grace(0), object.Probe,
		object.Both("cpu", "1", "memory", "64Mi"))
	p.Spec.HostNetwork = true
	if bound {
		object.Class("LSR")(p)
		object.CPUs("1")(p)
	}
	made, err := m.plane.Client.CoreV1().Pods(p.Namespace).Create(m.Context(), p, metav1.CreateOptions{})
	testkit.Check(m, err)
	return made
}

// start runs a pod and takes the time of the creation and start of its container.
func (m *machine) start(name string) time.Duration {
	m.Helper()
	p := m.bind(name, true)
	b, err := m.runtime.RunPod(m.Context(), p)
	testkit.Check(m, err)
	began := time.Now()
	_, err = b.Run(m.Context(), "main")
	took := time.Since(began)
	testkit.Check(m, err)
	testkit.Check(m, b.Remove(m.Context()))
	testkit.Check(m, m.plane.Client.CoreV1().Pods(p.Namespace).Delete(m.Context(), p.Name, *metav1.NewDeleteOptions(0)))
	return took
}

// TestContainerStart measures the creation and start of a bound container through containerd, on two runtimes in turn:
// one with the agent as its NRI plugin, one alone.
func TestContainerStart(t *testing.T) {
	stage.Count(t)
	with, without := newMachine(t, "with", stage.ContainerdOptions{}),
		newMachine(t, "without", stage.ContainerdOptions{NoNRI: true})
	with.startAgent(true)
	var asked, alone times
	for i := range starts {
		asked = append(asked, with.start(fmt.Sprintf("with-%d", i)))
		alone = append(alone, without.start(fmt.Sprintf("without-%d", i)))
	}
	table.add("create and start a container through containerd (NRI), p50 / p99", alone.String(), asked.String(),
		"adds < 50 ms")
	t.Logf("%v", asked.over(alone))
}

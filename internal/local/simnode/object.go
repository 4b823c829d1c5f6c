package simnode

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
)

func switches() probe.Switches { return probe.Switches{QueryKubelet: true, CPUSetAllocator: true} }

// Objects returns the Node of a simulated machine and the NodeResourceTopology that its agent publishes while the node
// has no pods. The machine m is as Description.Read returns it.
func Objects(name string, d machine.Description, m *topo.Machine) (
	*corev1.Node, *v1alpha2.NodeResourceTopology, error,
) {
	reserved, _, err := m.ParseList(d.Kubelet.CPU.Reserved)
	if err != nil {
		return nil, nil, fmt.Errorf("reserved CPUs: %w", err)
	}
	node := nodeOf(name, d, m, reserved)
	node.APIVersion, node.Kind = "v1", "Node"
	static := d.Kubelet.CPU.Policy == annotation.KubeletPolicyStatic
	mode, _ := probe.ModeOf(switches(), static, node.Labels[annotation.TopologyMode])
	topology := probe.Topology(probe.Input{
		NodeName: name, Node: node, Machine: m, Kubelet: d.Kubelet, Mode: mode, Writer: "tenon-agent",
	})
	return node, topology, nil
}

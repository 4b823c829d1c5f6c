package simnode

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
)

func switches() probe.Switches { return probe.Switches{QueryKubelet: true, CPUSetAllocator: true} }

// Objects returns the Node of a simulated machine, and what its agent publishes while the node has no pods: the
// NodeResourceTopology, and the Device where the machine has devices. The machine m is as Description.Read returns it.
func Objects(name string, d machine.Description, m *topo.Machine) ([]runtime.Object, error) {
	reserved, _, err := m.ParseList(d.Kubelet.CPU.Reserved)
	if err != nil {
		return nil, fmt.Errorf("reserved CPUs: %w", err)
	}
	node := nodeOf(name, d, m, reserved)
	node.APIVersion, node.Kind = "v1", "Node"
	static := d.Kubelet.CPU.Policy == annotation.KubeletPolicyStatic
	mode, _ := probe.ModeOf(switches(), static, node.Labels[annotation.TopologyMode])
	in := probe.Input{
		NodeName: name, Node: node, Machine: m, Kubelet: d.Kubelet, Mode: mode, Writer: "tenon-agent",
	}
	objects := []runtime.Object{node, probe.Topology(in)}
	devices, err := probe.Device(in, d.Devices(name), nil, metav1.Time{})
	if err != nil {
		return nil, err
	}
	if devices != nil {
		objects = append(objects, devices)
	}
	return objects, nil
}

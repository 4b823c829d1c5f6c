package simnode

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/apimachinery/lease"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/klog/v2"
	kubeletapis "k8s.io/kubelet/pkg/apis"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
)

const (
	maxPods        = 110
	leaseSeconds   = 40
	leaseInterval  = 10 * time.Second
	statusInterval = 5 * time.Minute
	// nodeIP is the address of every simulated node: their kubelets share one port on loopback.
	nodeIP = "127.0.0.1"
)

// register creates the Node or, when it exists from an earlier start, updates its status. Labels that users added are
// kept.
func (n *node) register(ctx context.Context) error {
	want := n.object()
	_, err := n.Client.CoreV1().Nodes().Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = n.patch(ctx, map[string]any{"status": want.Status}, "status")
	}
	if err != nil {
		return fmt.Errorf("register node: %w", err)
	}
	return nil
}

// labelFollow labels an existing Node whose machine requests the mode Follow, unless a label requests another mode.
func (n *node) labelFollow(ctx context.Context) error {
	if !n.Machine.Follow {
		return nil
	}
	nodes := n.Client.CoreV1().Nodes()
	have, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node: %w", err)
	}
	if _, ok := have.Labels[annotation.TopologyMode]; ok {
		return nil
	}
	labels := map[string]string{annotation.TopologyMode: annotation.ModeFollow}
	return n.patch(ctx, map[string]any{"metadata": map[string]any{"labels": labels}})
}

// updateReady writes the condition Ready if that in the API differs: the kubelet's has changed, or the control plane
// set it because the node's lease was late.
func (n *node) updateReady(ctx context.Context) error {
	have, err := n.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("read node: %w", err)
	}
	want := n.kubelet.gate.ready(time.Now())
	_, c := nodeutil.GetNodeCondition(&have.Status, corev1.NodeReady)
	if c != nil && c.Status == want.Status && c.Reason == want.Reason && c.Message == want.Message {
		return nil
	}
	return n.patch(ctx, map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{want}}}, "status")
}

func (n *node) patch(ctx context.Context, change map[string]any, subresources ...string) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = n.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		subresources...)
	if err != nil {
		return fmt.Errorf("patch node: %w", err)
	}
	return nil
}

func (n *node) object() *corev1.Node {
	out := nodeOf(n.Name, n.Machine, n.kubelet.machine, n.kubelet.reserved)
	now := time.Now()
	out.Status.Conditions = []corev1.NodeCondition{
		n.kubelet.gate.ready(now),
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "simulated", now),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "simulated", now),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "simulated", now),
	}
	if boot, err := host.BootID(n.root); err == nil {
		out.Status.NodeInfo.BootID = boot // as the agent reads it
	}
	out.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(n.port)
	out.Status.NodeInfo.ContainerRuntimeVersion = "tenon://" + n.o.Version
	return out
}

// nodeOf returns the Node of a simulated machine whose kubelet reserves CPUs, without conditions, port and version
// of the runtime, which only a running process has.
func nodeOf(name string, d machine.Description, m *topo.Machine, reserved cpuset.Set) *corev1.Node {
	online := m.Online()
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(online.Len()), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(0, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	for i := range m.NumNUMA() {
		add(capacity, corev1.ResourceMemory, m.MemoryBytes(topo.NUMA(i)))
		for size, pages := range m.Hugepages(topo.NUMA(i)) {
			add(capacity, v1helper.HugePageResourceName(*resource.NewQuantity(size, resource.BinarySI)), size*pages)
		}
	}
	arch := m.Arch()
	labels := map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: arch,
		// Without these a controller would patch each node to add them.
		kubeletapis.LabelOS: "linux", kubeletapis.LabelArch: arch,
	}
	if d.Follow {
		labels[annotation.TopologyMode] = annotation.ModeFollow
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: allocatable(capacity, d, reserved),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeIP}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: name, SystemUUID: name, BootID: name, KernelVersion: "simulated",
				OSImage:        "Tenon simulated machine",
				KubeletVersion: cmp.Or(d.Kubelet.Version, kubeletVersion), OperatingSystem: "linux",
				Architecture: arch,
			},
		},
	}
}

func add(list corev1.ResourceList, name corev1.ResourceName, amount int64) {
	sum, known := list[name]
	if !known {
		sum.Format = resource.BinarySI
	}
	sum.Add(*resource.NewQuantity(amount, sum.Format))
	list[name] = sum
}

// allocatable returns the capacity less what the kubelet reserves, and less huge pages, which are not available as
// memory.
func allocatable(capacity corev1.ResourceList, d machine.Description, reserved cpuset.Set) corev1.ResourceList {
	out := capacity.DeepCopy()
	for name, amount := range capacity {
		if v1helper.IsHugePageResourceName(name) {
			add(out, corev1.ResourceMemory, -amount.Value())
		}
	}
	add(out, corev1.ResourceCPU, -int64(reserved.Len()))
	for _, types := range d.Kubelet.Memory.Reserved {
		for name, amount := range types {
			add(out, name, -amount.Value())
		}
	}
	return out
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, text string,
	now time.Time,
) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: text, LastHeartbeatTime: metav1.NewTime(now),
		LastTransitionTime: metav1.NewTime(now),
	}
}

func (n *node) heartbeat(ctx context.Context) {
	ready, status := time.NewTicker(leaseInterval), time.NewTicker(statusInterval)
	defer ready.Stop()
	defer status.Stop()
	for {
		var err error
		select {
		case <-ready.C:
			err = n.updateReady(ctx)
		case <-status.C:
			err = n.register(ctx)
		case <-ctx.Done():
			return
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot renew the node's status, will be tried again", "node", n.Name)
		}
	}
}

func (n *node) lease() lease.Controller {
	return lease.NewController(clock.RealClock{}, n.Client, n.Name, leaseSeconds, nil, leaseInterval, n.Name,
		corev1.NamespaceNodeLease, nil)
}

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

package describe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/occupancy"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// Node returns a node, whose pods are given by their UIDs.
func Node(n kube.Node, pods map[string]qos.Pod) view.Node {
	v := n.View
	f := v.Facts()
	out := view.NodeOf(n.Object.Name, v, pods)
	out.Mode, out.Kubelet = modeOf(n.Object, n.Topology), kubeletOf(n.Object, n.Topology, &f.Model)
	if f.Imported {
		setImported(&out, n.Numatopology, f)
	}
	out.Policies.From = originsOf(n.Object, f, &out.Kubelet)
	if out.Devices != nil && n.Devices != nil {
		out.Devices.Mode = deviceMode(n.Devices)
		links, _, _ := annotation.ParseDeviceLinks(n.Devices.Annotations[annotation.DeviceLinksKey])
		for _, l := range links.Links {
			out.Devices.Kind = cmp.Or(out.Devices.Kind, l.Type)
		}
	}
	problems := []view.Problem{}
	for _, p := range n.Problems {
		problems = append(problems, view.Problem{Text: strings.TrimSpace(p.Object + " " + p.Key + ": " + p.Text)})
	}
	out.Problems = append(problems, out.Problems...)
	if v.Machine() == nil {
		return out
	}
	memory := newMemoryBook(v, n.Topology)
	for _, s := range out.Sockets {
		for i := range s.NUMA {
			memory.fill(&s.NUMA[i])
		}
	}
	return out
}

func deviceMode(d *devicev1alpha1.Device) string {
	return cmp.Or(d.Annotations[annotation.DeviceModeKey], "not set")
}

// GPULoad returns the account of the GPUs of a node of a health, whose pods request used; false where it has none.
func GPULoad(n kube.Node, used occupancy.Room, h health.Health) (view.GPULoad, bool) {
	if n.Devices == nil {
		return view.GPULoad{}, false
	}
	all := n.Object.Status.Allocatable
	load, found := occupancy.Of(n.View, occupancy.Room{
		MilliCPU: all.Cpu().MilliValue() - used.MilliCPU, MemoryBytes: all.Memory().Value() - used.MemoryBytes,
		Pods: all.Pods().Value() - used.Pods, Closed: h.Closed,
	})
	return view.GPULoad{Node: n.Object.Name, Mode: deviceMode(n.Devices), Load: load, Health: h}, found
}

func modeOf(n *corev1.Node, t *v1alpha2.NodeResourceTopology) view.Mode {
	v := view.Mode{Mode: annotation.ModeOwn, From: view.Origin{Source: view.FromAssumption}}
	text, ok := annotationOf(t, annotation.TopologyMode)
	if mode, _, err := annotation.ParseMode(text); ok && err == nil {
		v.Mode, v.From = mode, view.Origin{Source: view.FromAnnotation, Key: annotation.TopologyMode}
	}
	if wish := n.Labels[annotation.TopologyMode]; wish != v.Mode {
		v.Wish = wish
	}
	if text, ok := annotationOf(t, annotation.TakeoverKey); ok {
		if taken, _, err := annotation.ParseTakeover(text); err == nil {
			v.Takeover = &view.Takeover{Phase: taken.Phase, RemainingPods: taken.RemainingPods}
			if !taken.Since.IsZero() {
				v.Takeover.Since = &taken.Since.Time
			}
		}
	}
	return v
}

type origins struct{ cpu, memory, topology view.Origin }

func kubeletOf(n *corev1.Node, t *v1alpha2.NodeResourceTopology, m *kubelet.Facts) view.Kubelet {
	k, from := settings(t)
	v := view.Kubelet{
		Version: cmp.Or(n.Status.NodeInfo.KubeletVersion, k.Version),
		CPU: view.Manager{
			Policy: k.CPU.Policy, Options: k.CPU.Options, Reserved: k.CPU.Reserved, From: from.cpu,
		},
		Memory: view.Manager{Policy: k.Memory.Policy, Reserved: reservedText(k.Memory.Reserved), From: from.memory},
		Topology: view.Manager{
			Policy: k.Topology.Policy, Scope: k.Topology.Scope, Options: k.Topology.Options, From: from.topology,
		},
		Model: m.Release(), Assumed: strings.Join(m.Assumed, "; "),
	}
	if !m.Fault.OK() {
		v.Fault = m.Fault.Code.String()
	}
	// The agent reports all three managers; another exporter one or two of them, and never the memory manager.
	if foreign := from.memory.Source == view.FromAssumption && from.cpu != from.topology; foreign && v.Assumed == "" {
		v.Assumed = convert.AssumedForeign
	}
	return v
}

// settings reads as the scheduler does: the agent's annotation first, then what other exporters say.
func settings(t *v1alpha2.NodeResourceTopology) (annotation.Kubelet, origins) {
	text, ok := annotationOf(t, annotation.KubeletKey)
	if k, _, err := annotation.ParseKubelet(text); ok && err == nil {
		from := view.Origin{Source: view.FromAnnotation, Key: annotation.KubeletKey}
		return k, origins{from, from, from}
	}
	unknown := view.Origin{Source: view.FromAssumption}
	k, from := annotation.Kubelet{}, origins{unknown, unknown, unknown}
	k.CPU.Policy, k.Memory.Policy = annotation.KubeletPolicyNone, annotation.KubeletMemoryNone
	k.Topology.Policy, k.Topology.Scope = annotation.KubeletTopologyNone, annotation.TopologyScopeContainer
	if t == nil {
		return k, from
	}
	text, key, ok := annotation.Lookup(t.Annotations, annotation.KubeletCPUManagerPolicy,
		annotation.KubeletCPUManagerPolicyAlias1, annotation.KubeletCPUManagerPolicyAlias2)
	if cpu, _, err := annotation.ParseKubeletCPUManager(text); ok && err == nil && cpu.Policy != "" {
		k.CPU = annotation.KubeletCPU{Policy: cpu.Policy, Options: cpu.Options, Reserved: cpu.ReservedCPUs}
		from.cpu = view.Origin{Source: view.FromAnnotation, Key: key}
	}
	if e := convert.ReadExported(t); e.Policy != "" {
		k.Topology.Policy, k.Topology.Scope = e.Policy, cmp.Or(e.Scope, annotation.TopologyScopeContainer)
		from.topology = view.Origin{Source: view.FromPolicies}
		if e.Attribute != "" {
			from.topology = view.Origin{Source: view.FromAttribute, Key: e.Attribute}
		}
		if e.MaxNUMANodes != "" {
			k.Topology.Options = map[string]string{annotation.OptionMaxNUMANodes: e.MaxNUMANodes}
		}
	}
	return k, from
}

// reservedText lists the memory that is reserved on NUMA nodes: "0: 1Gi, 0: 64Mi hugepages-2Mi".
func reservedText(reserved map[int32]corev1.ResourceList) string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(reserved)) {
		// memory before its huge pages
		for _, name := range slices.Backward(slices.Sorted(maps.Keys(reserved[id]))) {
			amount := reserved[id][name]
			text := fmt.Sprintf("%d: %s", id, &amount)
			if name != corev1.ResourceMemory {
				text += " " + string(name)
			}
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", ")
}

func annotationOf(t *v1alpha2.NodeResourceTopology, key string) (string, bool) {
	if t == nil {
		return "", false
	}
	text, ok := t.Annotations[key]
	return text, ok
}

// originsOf returns the origins of a node's effective policies, by their names in view.Policies.
func originsOf(n *corev1.Node, f *ledger.Facts, k *view.Kubelet) map[string]view.Origin {
	labels, _ := annotation.ParseNodeLabels(n.Labels)
	label := func(name, alias string) view.Origin {
		if _, ok := n.Labels[name]; !ok {
			name = alias
		}
		return view.Origin{Source: view.FromLabel, Key: name}
	}
	out := map[string]view.Origin{}
	if f.Bind != ledger.Unset {
		out["cpuBind"] = label(annotation.NodeCPUBindPolicy, annotation.NodeCPUBindPolicyAlias)
	}
	switch {
	case labels.NUMAAllocate != "":
		out["numaAllocate"] = view.Origin{Source: view.FromLabel, Key: annotation.NodeNUMAAllocateStrategy}
	case f.Model.Config.CPU.DistributeAcrossNUMA:
		out["numaAllocate"] = k.CPU.From
	default:
		out["numaAllocate"] = view.Origin{Source: view.FromArgument}
	}
	switch {
	case labels.NUMATopology != "":
		out["numaTopology"] = label(annotation.NodeNUMATopologyPolicy, annotation.NodeNUMATopologyPolicyAlias)
	case k.Topology.From.Source == view.FromAssumption:
		out["numaTopology"] = view.Origin{Source: view.FromArgument}
	default:
		out["numaTopology"] = k.Topology.From
	}
	return out
}

// onlyVolcano is Assumed of a node that only Volcano's exporter describes.
const onlyVolcano = "only Volcano's exporter describes this node; the age of its data is unknown, so it may be " +
	"stale. Options of the kubelet, its scope, its memory manager and the ids of its reserved CPUs are assumed"

func setImported(o *view.Node, n *nodeinfo.Numatopology, f *ledger.Facts) {
	from := view.Origin{Source: view.FromNumatopology}
	o.Mode.Mode, o.Mode.From = f.Mode.String(), view.Origin{Source: view.FromAssumption}
	k := &o.Kubelet
	k.Assumed = onlyVolcano
	if k.CPU.From.Source == view.FromAssumption {
		k.CPU = view.Manager{
			Policy: cmp.Or(n.Spec.Policies[nodeinfo.CPUManagerPolicy], annotation.KubeletPolicyNone),
			From:   from,
		}
		if f.Machine != nil {
			k.CPU.Reserved = f.Machine.FormatList(f.Model.Config.CPU.Reserved)
		}
	}
	if k.Topology.From.Source == view.FromAssumption {
		k.Topology.Policy, k.Topology.From = cmp.Or(n.Spec.Policies[nodeinfo.TopologyManagerPolicy],
			annotation.KubeletTopologyNone), from
	}
}

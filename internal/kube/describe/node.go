package describe

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
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

func modeOf(n *corev1.Node, t *v1alpha2.NodeResourceTopology) view.Mode {
	v := view.Mode{Mode: annotation.ModeOwn, From: view.Origin{Source: view.FromAssumption}}
	if text, ok := annotationOf(t, annotation.TopologyMode); ok {
		if mode, _, err := annotation.ParseMode(text); err == nil {
			v.Mode, v.From = mode, view.Origin{Source: view.FromAnnotation, Key: annotation.TopologyMode}
		}
	}
	if n != nil && n.Labels[annotation.TopologyMode] != v.Mode {
		v.Wish = n.Labels[annotation.TopologyMode]
	}
	return v
}

// kubeletOf reads the settings in the order in which the scheduler does: the agent's annotations first, then
// those of other exporters.
func kubeletOf(n *corev1.Node, t *v1alpha2.NodeResourceTopology, m *kubelet.Facts) view.Kubelet {
	unknown := view.Origin{Source: view.FromAssumption}
	v := view.Kubelet{
		CPU:    view.Manager{Policy: annotation.KubeletPolicyNone, From: unknown},
		Memory: view.Manager{Policy: annotation.KubeletMemoryNone, From: unknown},
		Topology: view.Manager{
			Policy: annotation.KubeletTopologyNone, Scope: annotation.TopologyScopeContainer,
			From: unknown,
		},
		Model: m.Release(), Assumed: strings.Join(m.Assumed, "; "),
	}
	if !m.Fault.OK() {
		v.Fault = m.Fault.Code.String()
	}
	if n != nil {
		v.Version = n.Status.NodeInfo.KubeletVersion
	}
	if t == nil {
		return v
	}
	if text, ok := annotationOf(t, annotation.KubeletKey); ok {
		if k, _, err := annotation.ParseKubelet(text); err == nil {
			setReported(&v, k)
			return v
		}
	}
	setForeign(&v, t)
	return v
}

// setReported sets the settings that the agent reports.
func setReported(v *view.Kubelet, k annotation.Kubelet) {
	from := view.Origin{Source: view.FromAnnotation, Key: annotation.KubeletKey}
	v.Version = cmp.Or(v.Version, k.Version)
	v.CPU = view.Manager{Policy: k.CPU.Policy, Options: k.CPU.Options, Reserved: k.CPU.Reserved, From: from}
	v.Topology = view.Manager{
		Policy: k.Topology.Policy, Scope: k.Topology.Scope, Options: k.Topology.Options,
		From: from,
	}
	v.Memory = view.Manager{Policy: k.Memory.Policy, From: from}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(k.Memory.Reserved)) {
		// memory before its huge pages
		for _, name := range slices.Backward(slices.Sorted(maps.Keys(k.Memory.Reserved[id]))) {
			amount := k.Memory.Reserved[id][name]
			text := strconv.Itoa(int(id)) + ": " + amount.String()
			if name != corev1.ResourceMemory {
				text += " " + string(name)
			}
			parts = append(parts, text)
		}
	}
	v.Memory.Reserved = strings.Join(parts, ", ")
}

// setForeign fills in what exporters other than the agent say.
func setForeign(v *view.Kubelet, t *v1alpha2.NodeResourceTopology) {
	spoken := false
	text, key, ok := annotation.Lookup(t.Annotations, annotation.KubeletCPUManagerPolicy,
		annotation.KubeletCPUManagerPolicyAlias1, annotation.KubeletCPUManagerPolicyAlias2)
	if ok {
		if k, _, err := annotation.ParseKubeletCPUManager(text); err == nil && k.Policy != "" {
			v.CPU = view.Manager{
				Policy: k.Policy, Options: k.Options, Reserved: k.ReservedCPUs,
				From: view.Origin{Source: view.FromAnnotation, Key: key},
			}
			spoken = true
		}
	}
	e := convert.ReadExported(t)
	if e.Policy != "" {
		v.Topology = view.Manager{
			Policy: e.Policy, Scope: cmp.Or(e.Scope, annotation.TopologyScopeContainer),
			From: view.Origin{Source: view.FromPolicies},
		}
		if e.Attribute != "" {
			v.Topology.From = view.Origin{Source: view.FromAttribute, Key: e.Attribute}
		}
		if e.MaxNUMANodes != "" {
			v.Topology.Options = map[string]string{annotation.OptionMaxNUMANodes: e.MaxNUMANodes}
		}
		spoken = true
	}
	if spoken && v.Assumed == "" {
		v.Assumed = convert.AssumedForeign
	}
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
	var labels annotation.NodeLabels
	var keys map[string]string
	if n != nil {
		labels, _ = annotation.ParseNodeLabels(n.Labels)
		keys = n.Labels
	}
	present := func(names ...string) string {
		for _, name := range names {
			if _, ok := keys[name]; ok {
				return name
			}
		}
		return ""
	}
	out := map[string]view.Origin{}
	if f.Bind != ledger.Unset {
		key := present(annotation.NodeCPUBindPolicy, annotation.NodeCPUBindPolicyAlias)
		out["cpuBind"] = view.Origin{Source: view.FromLabel, Key: key}
	}
	switch {
	case labels.NUMAAllocate != "":
		out["numaAllocate"] = view.Origin{Source: view.FromLabel, Key: annotation.NodeNUMAAllocateStrategy}
	case f.Model.Config.CPU.DistributeAcrossNUMA:
		out["numaAllocate"] = k.CPU.From
	default:
		out["numaAllocate"] = view.Origin{Source: view.FromArgument}
	}
	out["numaTopology"] = k.Topology.From
	if labels.NUMATopology != "" {
		out["numaTopology"] = view.Origin{
			Source: view.FromLabel,
			Key:    present(annotation.NodeNUMATopologyPolicy, annotation.NodeNUMATopologyPolicyAlias),
		}
	} else if k.Topology.From.Source == view.FromAssumption {
		out["numaTopology"] = view.Origin{Source: view.FromArgument}
	}
	return out
}

// onlyVolcano is Assumed of a node that only Volcano's exporter describes.
const onlyVolcano = "only Volcano's exporter describes this node; the age of its data is not known, so it may be " +
	"stale. " +
	"Options of the kubelet, its scope, its memory manager and the ids of its reserved CPUs are assumed"

// setImported sets the fields that a Numatopology reports and no other source does.
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

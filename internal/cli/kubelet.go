package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// origin is where a setting comes from.
type origin struct {
	// Source is nodeLabel, annotation, attribute or topologyPolicies (of the NodeResourceTopology), numatopology
	// (Volcano's object), pluginArgument (of the scheduler; its default is shown), or assumed.
	Source string `json:"source"`
	// Key is the label's, annotation's or attribute's.
	Key string `json:"key,omitempty"`
}

// Sources of a setting.
const (
	fromLabel      = "nodeLabel"
	fromAnnotation = "annotation"
	fromAttribute  = "attribute"
	fromPolicies   = "topologyPolicies"
	fromNuma       = "numatopology"
	fromArgument   = "pluginArgument"
	fromAssumption = "assumed"
)

// String is the source in a few words.
func (o origin) String() string {
	switch o.Source {
	case fromLabel:
		return "node label"
	case fromAnnotation:
		return "agent"
	case fromAttribute, fromPolicies:
		return "NodeResourceTopology"
	case fromNuma:
		return "Numatopology"
	case fromArgument:
		return "scheduler's default"
	}
	return fromAssumption
}

// modeView is whose CPU assignments hold.
type modeView struct {
	Mode string `json:"mode"`
	From origin `json:"from"`
	// Wish is the node's label, when it says something else or the agent has not answered it.
	Wish string `json:"wish,omitempty"`
}

// kubeletView is what is known of a node's kubelet.
type kubeletView struct {
	Version  string      `json:"version,omitempty"`
	CPU      managerView `json:"cpuManager"`
	Memory   managerView `json:"memoryManager"`
	Topology managerView `json:"topologyManager"`
	// Model is the release whose answers are predicted; "" while none are.
	Model string `json:"model,omitempty"`
	// Fault is why they cannot be predicted although they should be.
	Fault string `json:"fault,omitempty"`
	// Assumed names what is taken for granted: settings that no source reports, and what the model does not know.
	Assumed string `json:"assumed,omitempty"`
}

// managerView is one manager of a kubelet.
type managerView struct {
	Policy  string            `json:"policy"`
	Scope   string            `json:"scope,omitempty"`
	Options map[string]string `json:"options,omitempty"`
	// Reserved are CPUs in list format, or amounts of memory by NUMA node: "0: 1Gi".
	Reserved string `json:"reserved,omitempty"`
	From     origin `json:"from"`
}

func newModeView(n *corev1.Node, t *v1alpha2.NodeResourceTopology) modeView {
	v := modeView{Mode: annotation.ModeOwn, From: origin{Source: fromAssumption}}
	if text, ok := annotationOf(t, annotation.TopologyMode); ok {
		if mode, _, err := annotation.ParseMode(text); err == nil {
			v.Mode, v.From = mode, origin{fromAnnotation, annotation.TopologyMode}
		}
	}
	if n != nil && n.Labels[annotation.TopologyMode] != v.Mode {
		v.Wish = n.Labels[annotation.TopologyMode]
	}
	return v
}

// newKubeletView reads the settings in the order in which the scheduler does: the agent's annotations first, then
// those of other exporters.
func newKubeletView(n *corev1.Node, t *v1alpha2.NodeResourceTopology, m *ledger.Model) kubeletView {
	unknown := origin{Source: fromAssumption}
	v := kubeletView{
		CPU:    managerView{Policy: annotation.KubeletPolicyNone, From: unknown},
		Memory: managerView{Policy: annotation.KubeletMemoryNone, From: unknown},
		Topology: managerView{
			Policy: annotation.KubeletTopologyNone, Scope: annotation.TopologyScopeContainer,
			From: unknown,
		},
		Model: m.Release, Assumed: strings.Join(m.Assumed, "; "),
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
			v.setReported(k)
			return v
		}
	}
	v.foreign(t)
	return v
}

// setReported sets the settings that the agent reports.
func (v *kubeletView) setReported(k annotation.Kubelet) {
	from := origin{fromAnnotation, annotation.KubeletKey}
	v.Version = cmp.Or(v.Version, k.Version)
	v.CPU = managerView{Policy: k.CPU.Policy, Options: k.CPU.Options, Reserved: k.CPU.Reserved, From: from}
	v.Topology = managerView{
		Policy: k.Topology.Policy, Scope: k.Topology.Scope, Options: k.Topology.Options,
		From: from,
	}
	v.Memory = managerView{Policy: k.Memory.Policy, From: from}
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

// foreign fills in what exporters other than the agent say.
func (v *kubeletView) foreign(t *v1alpha2.NodeResourceTopology) {
	spoken := false
	text, key, ok := annotation.Lookup(t.Annotations, annotation.KubeletCPUManagerPolicy,
		annotation.KubeletCPUManagerPolicyAlias1, annotation.KubeletCPUManagerPolicyAlias2)
	if ok {
		if k, _, err := annotation.ParseKubeletCPUManager(text); err == nil && k.Policy != "" {
			v.CPU = managerView{
				Policy: k.Policy, Options: k.Options, Reserved: k.ReservedCPUs,
				From: origin{fromAnnotation, key},
			}
			spoken = true
		}
	}
	e := convert.ReadExported(t)
	if e.Policy != "" {
		v.Topology = managerView{
			Policy: e.Policy, Scope: cmp.Or(e.Scope, annotation.TopologyScopeContainer),
			From: origin{Source: fromPolicies},
		}
		if e.Attribute != "" {
			v.Topology.From = origin{fromAttribute, e.Attribute}
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

// originsOf returns the origins of a node's effective policies, by their names in policyView.
func originsOf(n *corev1.Node, f *ledger.Facts, k *kubeletView) map[string]origin {
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
	out := map[string]origin{}
	if f.Bind != ledger.Unset {
		out["cpuBind"] = origin{fromLabel, present(annotation.NodeCPUBindPolicy, annotation.NodeCPUBindPolicyAlias)}
	}
	switch {
	case labels.NUMAAllocate != "":
		out["numaAllocate"] = origin{fromLabel, annotation.NodeNUMAAllocateStrategy}
	case f.Kubelet.DistributeAcrossNUMA:
		out["numaAllocate"] = k.CPU.From
	default:
		out["numaAllocate"] = origin{Source: fromArgument}
	}
	out["numaTopology"] = k.Topology.From
	if labels.NUMATopology != "" {
		out["numaTopology"] = origin{
			fromLabel,
			present(annotation.NodeNUMATopologyPolicy, annotation.NodeNUMATopologyPolicyAlias),
		}
	} else if k.Topology.From.Source == fromAssumption {
		out["numaTopology"] = origin{Source: fromArgument}
	}
	return out
}

// line describes a manager in one phrase.
func (m managerView) line(name string) string {
	text := name + " " + m.Policy
	if m.Policy == annotation.KubeletTopologyNone || m.Policy == annotation.KubeletMemoryNone {
		return text
	}
	if m.Scope != "" {
		text += ", scope " + m.Scope
	}
	for _, option := range slices.Sorted(maps.Keys(m.Options)) {
		text += ", " + option
		if value := m.Options[option]; value != "true" {
			text += "=" + value
		}
	}
	if m.Reserved != "" {
		text += ", reserved " + m.Reserved
	}
	return text
}

// line describes the kubelet with the sources; a source that all three managers share is named once.
func (v kubeletView) line() string {
	managers := []struct {
		name string
		managerView
	}{{"CPU", v.CPU}, {"memory", v.Memory}, {"topology", v.Topology}}
	shared := v.CPU.From.String() == v.Memory.From.String() && v.Memory.From.String() == v.Topology.From.String()
	var parts []string
	for _, m := range managers {
		part := m.line(m.name)
		if !shared {
			part += fmt.Sprintf(" (%s)", m.From)
		}
		parts = append(parts, part)
	}
	text := "kubelet:"
	if v.Version != "" {
		text = "kubelet " + v.Version + ":"
	}
	text += " " + strings.Join(parts, "; ")
	if shared {
		text += fmt.Sprintf(" (%s)", v.CPU.From)
	}
	return text
}

// line describes the mode.
func (v modeView) line() string {
	text := fmt.Sprintf("mode: %s (%s)", v.Mode, v.From)
	if v.Wish != "" {
		text += fmt.Sprintf(", the node's label asks for %s", v.Wish)
	}
	return text
}

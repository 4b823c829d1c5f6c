package annotation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Values of the label NodeCPUBindPolicy.
const (
	NodeBindNone          = "None"
	NodeBindFullPCPUsOnly = "FullPCPUsOnly"
	NodeBindSpreadByPCPUs = "SpreadByPCPUs"
)

// Values of the label NodeNUMAAllocateStrategy.
const (
	StrategyMostAllocated    = "MostAllocated"
	StrategyLeastAllocated   = "LeastAllocated"
	StrategyDistributeEvenly = "DistributeEvenly"
)

// NodeLabels are a node's policies in canonical form; "" where the label is absent or its value cannot be used.
type NodeLabels struct {
	CPUBind, NUMAAllocate, NUMATopology string
}

// LabelIssue is something wrong with a node's label. The node works on, without the value where it cannot be used.
type LabelIssue struct {
	Key, Value, Text string
	// Kind selects what a reader does about it.
	Kind IssueKind
}

// IssueKind is a kind of LabelIssue.
type IssueKind uint8

// Kinds of issue.
const (
	// Unusable: the value is treated as absent.
	Unusable IssueKind = iota
	// Spelling: the value is accepted, but only for its letters.
	Spelling
	// AliasConflict: key and alias differ in meaning; the canonical key counts.
	AliasConflict
)

// ParseNodeLabels reads the policy labels of a node over all their spellings.
func ParseNodeLabels(labels map[string]string) (NodeLabels, []LabelIssue) {
	var issues []LabelIssue
	n := NodeLabels{
		CPUBind: readLabel(labels, nodeLabel{
			keys:    []string{NodeCPUBindPolicy, NodeCPUBindPolicyAlias},
			allowed: []string{NodeBindNone, NodeBindFullPCPUsOnly, NodeBindSpreadByPCPUs},
			aliases: []alias{
				{"", NodeBindNone},
				{"PCPUOnly", NodeBindFullPCPUsOnly},
				{"FullPCPUs", NodeBindFullPCPUsOnly},
			},
		}, &issues),
		NUMAAllocate: readLabel(labels, nodeLabel{
			keys:    []string{NodeNUMAAllocateStrategy},
			allowed: []string{StrategyMostAllocated, StrategyLeastAllocated, StrategyDistributeEvenly},
			aliases: []alias{{"", ""}},
		}, &issues),
		NUMATopology: readLabel(labels, nodeLabel{
			keys:    []string{NodeNUMATopologyPolicy, NodeNUMATopologyPolicyAlias},
			allowed: []string{TopologyNone, TopologyBestEffort, TopologyRestricted, TopologySingleNUMANode},
			aliases: append(topologyAliases(), alias{"", ""}, alias{"none", TopologyNone}),
		}, &issues),
	}
	return n, issues
}

// nodeLabel is a label with its spellings, the canonical key first.
type nodeLabel struct {
	keys    []string
	allowed []string
	aliases []alias
}

func readLabel(labels map[string]string, l nodeLabel, issues *[]LabelIssue) string {
	var result, from string
	for _, key := range l.keys {
		value, ok := labels[key]
		if !ok {
			continue
		}
		canonical, exact, ok := match(value, l.allowed, l.aliases)
		switch {
		case !ok:
			*issues = append(*issues, LabelIssue{Key: key, Value: value, Text: Unsupported(value, l.allowed...)})
		case !exact:
			*issues = append(*issues, LabelIssue{
				Key: key, Value: value, Kind: Spelling,
				Text: spelling(value, canonical),
			})
		}
		if from == "" {
			result, from = canonical, key
		} else if result != canonical {
			*issues = append(*issues, LabelIssue{
				Key: key, Value: value, Kind: AliasConflict,
				Text: fmt.Sprintf("conflicting values for %s and its alias %s", from, key),
			})
		}
	}
	return result
}

// Apply policies of a Reservation.
const (
	// ApplyDefault takes the reserved amounts off the node's allocatable resources too.
	ApplyDefault = "Default"
	// ApplyReservedCPUsOnly only keeps pods off the reserved CPUs.
	ApplyReservedCPUsOnly = "ReservedCPUsOnly"
)

// Reservation keeps part of a node for software that is not a pod (NodeReservation).
type Reservation struct {
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// ReservedCPUs, in Linux list format, beats the cpu of Resources.
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
	ApplyPolicy  string `json:"applyPolicy,omitempty"`
}

// String returns the canonical JSON.
func (r Reservation) String() string { return encode(r) }

// ParseReservation reads a Reservation.
func ParseReservation(text string) (Reservation, []Warning, error) {
	return readAmounts(text, func(r *reader, v *Reservation) {
		r.word("applyPolicy", &v.ApplyPolicy, []string{ApplyDefault, ApplyReservedCPUsOnly})
	})
}

// SystemQoSResource names the CPUs of pods of QoS class SYSTEM (NodeSystemQoSResource).
type SystemQoSResource struct {
	// CPUSet in Linux list format.
	CPUSet string `json:"cpuset,omitempty"`
	// CPUSetExclusive keeps all other pods off these CPUs. Absent is true.
	CPUSetExclusive *bool `json:"cpusetExclusive,omitempty"`
}

// Exclusive reports whether other pods are kept off the CPUs.
func (r SystemQoSResource) Exclusive() bool { return r.CPUSetExclusive == nil || *r.CPUSetExclusive }

// String returns the canonical JSON.
func (r SystemQoSResource) String() string { return encode(r) }

// ParseSystemQoSResource reads a SystemQoSResource.
func ParseSystemQoSResource(text string) (SystemQoSResource, []Warning, error) {
	return read[SystemQoSResource](text, nil)
}

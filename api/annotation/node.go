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
	read := func(keys, allowed []string, aliases ...alias) (result string) {
		from := ""
		for _, key := range keys {
			value, ok := labels[key]
			if !ok {
				continue
			}
			canonical, exact, ok := match(value, allowed, aliases)
			switch {
			case !ok:
				issues = append(issues, LabelIssue{key, value, Unsupported(value, allowed...), Unusable})
			case !exact:
				issues = append(issues, LabelIssue{key, value, spelling(value, canonical), Spelling})
			}
			if from == "" {
				result, from = canonical, key
			} else if result != canonical {
				text := fmt.Sprintf("conflicting values for %s and its alias %s", from, key)
				issues = append(issues, LabelIssue{key, value, text, AliasConflict})
			}
		}
		return result
	}
	n := NodeLabels{
		CPUBind: read([]string{NodeCPUBindPolicy, NodeCPUBindPolicyAlias},
			[]string{NodeBindNone, NodeBindFullPCPUsOnly, NodeBindSpreadByPCPUs},
			alias{"", NodeBindNone}, alias{"PCPUOnly", NodeBindFullPCPUsOnly},
			alias{"FullPCPUs", NodeBindFullPCPUsOnly}),
		NUMAAllocate: read([]string{NodeNUMAAllocateStrategy},
			[]string{StrategyMostAllocated, StrategyLeastAllocated, StrategyDistributeEvenly}, alias{"", ""}),
		NUMATopology: read([]string{NodeNUMATopologyPolicy, NodeNUMATopologyPolicyAlias},
			[]string{TopologyNone, TopologyBestEffort, TopologyRestricted, TopologySingleNUMANode},
			append(topologyAliases(), alias{"", ""}, alias{"none", TopologyNone})...),
	}
	return n, issues
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

// ParseSystemQoSResource reads a SystemQoSResource.
func ParseSystemQoSResource(text string) (SystemQoSResource, []Warning, error) {
	return read[SystemQoSResource](text, nil)
}

// RawAllocatableKey is an annotation of a Node that holds RawAllocatable.
const RawAllocatableKey = "node.koordinator.sh/raw-allocatable"

// RawAllocatable is what a Node could allocate before a program amplified it, for the resources that are amplified.
type RawAllocatable corev1.ResourceList

// ParseRawAllocatable reads RawAllocatable.
func ParseRawAllocatable(text string) (RawAllocatable, []Warning, error) {
	return readAmounts(text, func(r *reader, a *RawAllocatable) {
		for _, name := range sorted(*a) {
			q := (*a)[name]
			r.atLeastZero(string(name), int64(q.Sign()))
		}
	})
}

// NodeThirdPartyAllocations is an annotation of a Node that holds ThirdPartyAllocations.
const NodeThirdPartyAllocations = "node.koordinator.sh/thirdPartyAllocations"

// ThirdPartyAllocations are what schedulers outside of Kubernetes, such as Hadoop YARN, have given away of a Node.
type ThirdPartyAllocations struct {
	Allocations []ThirdPartyAllocation `json:"allocations,omitempty"`
}

// ThirdPartyAllocation is what one of them has given away.
type ThirdPartyAllocation struct {
	Name string `json:"name,omitempty"`
	// Priority is a class of priority, such as koord-batch.
	Priority string `json:"priority,omitempty"`
	// Resources are amounts of kubernetes.io/batch-cpu and batch-memory, 0 or more. Other resources do not count.
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// ParseThirdPartyAllocations reads ThirdPartyAllocations.
func ParseThirdPartyAllocations(text string) (ThirdPartyAllocations, []Warning, error) {
	return readAmounts(text, func(r *reader, a *ThirdPartyAllocations) {
		for _, one := range a.Allocations {
			for _, name := range sorted(one.Resources) {
				if q := one.Resources[name]; q.Sign() < 0 {
					text := "resources[" + string(name) + "] must not be negative, is " + q.String()
					r.refuse("allocations", Error{Value: q.String(), Text: text})
				}
			}
		}
	})
}

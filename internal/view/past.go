package view

import (
	"maps"
	"slices"
	"time"
)

// Past is what a file of a scheduler's journal records of the fleet over time. Times are in whole milliseconds.
type Past struct {
	File string `json:"file"` // "" where no journal is written
	// Earlier is the file before this one; "" where there is none.
	Earlier string    `json:"earlier,omitempty"`
	From    time.Time `json:"from,omitzero"`
	To      time.Time `json:"to,omitzero"`
	// Nodes are in the order in which they appeared, Pods in that in which they got their nodes.
	Nodes []PastNode `json:"nodes"`
	Pods  []PastPod  `json:"pods"`
	// Refused are decisions that gave a pod no node. One that only repeats the last one about its pod is left out.
	Refused []PastRefusal `json:"refused"`
}

// PastNode is a node from when it appeared until it was deleted.
type PastNode struct {
	Node     string    `json:"node"`
	MilliCPU int64     `json:"milliCPU"` // allocatable, as last recorded
	From     time.Time `json:"from"`
	To       time.Time `json:"to,omitzero"` // zero for one that exists at the end
}

// PastPod is a pod on a node, from the decision until it ended or was deleted.
type PastPod struct {
	Pod      string    `json:"pod"`
	Node     string    `json:"node"`
	Gang     string    `json:"gang,omitempty"`
	MilliCPU int64     `json:"milliCPU"` // requested
	From     time.Time `json:"from"`
	To       time.Time `json:"to,omitzero"` // zero for one that is there at the end
	// Feasible of Of nodes passed the filters. Of is 0 where this journal does not have the decision.
	Feasible int `json:"feasible,omitempty"`
	Of       int `json:"of,omitempty"`
	// Why is the reason of the pod's condition DisruptionTarget; "" where the pod ended or was deleted without one.
	Why string `json:"why,omitempty"`
}

// PastRefusal is a decision that gave a pod no node.
type PastRefusal struct {
	Pod       string    `json:"pod"`
	Time      time.Time `json:"time"`
	Why       string    `json:"why"`
	Nominated string    `json:"nominated,omitempty"` // the node on which preemption makes room
}

// NodeThen is what was on a node at a time. Quantities are canonical strings.
type NodeThen struct {
	Node        string `json:"node"`
	Pods        int    `json:"pods"`
	Requested   string `json:"requested"`
	Allocatable string `json:"allocatable"`
}

// FleetAt returns the nodes that existed at a time, by name.
func (p *Past) FleetAt(at time.Time) []NodeThen {
	exists := func(from, to time.Time) bool { return !from.After(at) && (to.IsZero() || to.After(at)) }
	nodes, asked := map[string]*NodeThen{}, map[string]int64{}
	for _, n := range p.Nodes {
		if exists(n.From, n.To) {
			nodes[n.Node] = &NodeThen{Node: n.Node, Allocatable: CPUText(n.MilliCPU)}
		}
	}
	for i := range p.Pods {
		if pod := &p.Pods[i]; nodes[pod.Node] != nil && exists(pod.From, pod.To) {
			nodes[pod.Node].Pods++
			asked[pod.Node] += pod.MilliCPU
		}
	}
	out := make([]NodeThen, 0, len(nodes))
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		nodes[name].Requested = CPUText(asked[name])
		out = append(out, *nodes[name])
	}
	return out
}

package view

import "encoding/json"

// WhatIf is a question to the scheduler: where would pods go, if the cluster were another one?
type WhatIf struct {
	// Changes are made in this order, in the scheduler's copy of the cluster alone.
	Changes []Change `json:"changes,omitempty"`
	Ask     Ask      `json:"ask"`
}

// Change is one change of the cluster. One field is set.
type Change struct {
	// RemovePod is a bound pod, namespace/name, that leaves its node. The pod that would come in its place can be asked
	// about under the same name.
	RemovePod string `json:"removePod,omitempty"`
	// AddPod is a Pod that exists from now on. With spec.nodeName it is placed on that node, if it fits there.
	AddPod json.RawMessage `json:"addPod,omitempty"`
	// Cordon is a node that takes no further pods.
	Cordon string `json:"cordon,omitempty"`
	// AddNode adds empty nodes.
	AddNode *AddNode `json:"addNode,omitempty"`
	// SetQuota and ScaleGang are refused: the scheduler cannot answer them yet.
	SetQuota  json.RawMessage `json:"setQuota,omitempty"`
	ScaleGang json.RawMessage `json:"scaleGang,omitempty"`
}

// AddNode adds Count nodes (1 to 100, 0 means 1) that are like an existing one without its pods. They are named
// LIKE-whatif-1, LIKE-whatif-2 and so on.
type AddNode struct {
	Like  string `json:"like"`
	Count int    `json:"count,omitempty"`
}

// Modes of Ask.
const (
	// Schedule asks for a node for each pod.
	Schedule = "schedule"
	// Preempt asks also for pods that would be evicted for it.
	Preempt = "preempt"
)

// Ask names the pods, namespace/name each, and what is asked about them. They are tried in this order, each beside
// those before it.
type Ask struct {
	Pods []string `json:"pods"`
	Mode string   `json:"mode,omitempty"`
}

// WhatIfAnswer is the answer. Every pod that was asked about is in Placements or in Unschedulable.
type WhatIfAnswer struct {
	// SnapshotGeneration counts the snapshots that this scheduler took for questions.
	SnapshotGeneration int64             `json:"snapshotGeneration"`
	Placements         []WhatIfPlacement `json:"placements"`
	Unschedulable      []Pod             `json:"unschedulable"`
	Victims            []Victim          `json:"victims"`
	// VictimsHidden is the number of victims in namespaces that the caller may not read.
	VictimsHidden int `json:"victimsHidden,omitempty"`
}

// WhatIfPlacement is the node of a pod, and what it would get there.
type WhatIfPlacement struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// ResourceStatus is the annotation of that name: CPUs and amounts of NUMA nodes. Devices is device-allocated.
	ResourceStatus json.RawMessage `json:"resourceStatus,omitempty"`
	Devices        json.RawMessage `json:"devices,omitempty"`
}

// Victim is a pod that would be evicted for another one.
type Victim struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	For  string `json:"for"`
}

package view

import (
	"encoding/json"
	"time"
)

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
	// PatchPod changes a pod that has no node, PatchNode the labels, the taints and the cordon of a node.
	PatchPod  *Patch `json:"patchPod,omitempty"`
	PatchNode *Patch `json:"patchNode,omitempty"`
	// Cordon is a node that takes no further pods.
	Cordon string `json:"cordon,omitempty"`
	// AddNode adds empty nodes.
	AddNode *AddNode `json:"addNode,omitempty"`
	// SetQuota is {name, min, max}, with min and max of resources as an ElasticQuota has them: what is left out stays.
	// ScaleGang is {gang, to}: the gang, namespace/name, has so many pods. The new ones are like its first member by
	// name, and are named MEMBER-whatif-1 and so on; they are placed one after the other. Both come before RemovePod
	// and AddPod, and are not for mode Preempt.
	SetQuota  json.RawMessage `json:"setQuota,omitempty"`
	ScaleGang json.RawMessage `json:"scaleGang,omitempty"`
}

// Patch is a strategic merge patch of an object: namespace/name of a pod, the name of a node.
type Patch struct {
	Name  string          `json:"name"`
	Patch json.RawMessage `json:"patch"`
}

// AddNode adds Count nodes (1 to 100, 0 means 1) that are like an existing one without its pods, or that are Machines
// named Like. They are named LIKE-whatif-1, LIKE-whatif-2 and so on.
type AddNode struct {
	Like    string   `json:"like"`
	Count   int      `json:"count,omitempty"`
	Machine *Machine `json:"machine,omitempty"`
}

// Modes of Ask.
const (
	// Schedule asks for a node for each pod.
	Schedule = "schedule"
	// Preempt asks also for pods that would be evicted for it.
	Preempt = "preempt"
	// MakeRoom asks for the smallest set of movable pods after whose move all pods fit. The pods differ in their names
	// alone; there are no changes.
	MakeRoom = "makeRoom"
	// Defragment asks for moves of movable pods with which less of the free GPUs, and of the free CPUs of NUMA nodes,
	// is unusable for the pods that are expected. There are no pods and no changes.
	Defragment = "defragment"
	// CountPods asks how many more copies of a pod fit, which may be bound. They are counted beside all
	// others, and are members of no gang.
	CountPods = "count"
	// PlayForward asks when the pods and gangs that wait can start. There are no pods and no changes.
	PlayForward = "forecast"
)

// MostMembers bounds Ask.Members.
const MostMembers = 10_000

// Ask names the pods, namespace/name each, and what is asked about them. They are tried in this order, each beside
// those before it.
type Ask struct {
	Pods []string `json:"pods"`
	Mode string   `json:"mode,omitempty"`
	// Nodes are the only ones on which the pods are placed; none means all. It belongs to Schedule and CountPods.
	Nodes []string `json:"nodes,omitempty"`
	// Reserve asks for the successors of removed pods as for Reservations, which are made while the pods still run:
	// their quotas count both. It belongs to Schedule.
	Reserve bool `json:"reserve,omitempty"`
	// MaxMoves and Movable belong to MakeRoom and Defragment: how many pods may move, 1 to 8 (0 means 2), and which.
	MaxMoves int       `json:"maxMoves,omitempty"`
	Movable  []Movable `json:"movable,omitempty"`
	// MinFall belongs to Defragment: how much less must be unusable after each move, in percent of a GPU or of the
	// CPUs of a NUMA node.
	MinFall int64 `json:"minFall,omitempty"`
	// Members and NodesLike belong to CountPods: the members of a gang, 1 to MostMembers, if whole gangs are counted;
	// and a node, if only nodes of its kind are: with its instance type, architecture, number of CPUs and
	// extended resources.
	Members   int    `json:"members,omitempty"`
	NodesLike string `json:"nodesLike,omitempty"`
}

// Movable is a bound pod that may be moved, and what that costs: the lower, the better.
type Movable struct {
	UID  string `json:"uid"`
	Cost int64  `json:"cost,omitempty"`
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
	// Capacity is the answer to CountPods. If no pod fits, Unschedulable says why.
	Capacity *Capacity `json:"capacity,omitempty"`
	// Forecast is the answer to PlayForward.
	Forecast *Forecast `json:"forecast,omitempty"`
	// Room is the answer to MakeRoom. Placements then has the nodes of the pods once the moves are done.
	Room *RoomPlan `json:"room,omitempty"`
}

// RoomPlan is a set of moves.
type RoomPlan struct {
	// Found reports whether a set of at most MaxMoves moves helps; no moves are needed if Moves is empty then.
	Found    bool       `json:"found"`
	Moves    []RoomMove `json:"moves"`
	MaxMoves int        `json:"maxMoves"`
	// Proven reports whether no smaller set helps; where none was found, whether none of at most MaxMoves does.
	Proven bool `json:"proven"`
	// Looked is the number of sets that were looked at. Bound is what ended the search before all were, a time or a
	// number of sets; absent where nothing did.
	Looked int    `json:"looked"`
	Bound  string `json:"bound,omitempty"`
}

// RoomMove is a pod that moves, and what its successor gets on the target node.
type RoomMove struct {
	Pod      string `json:"pod"`
	UID      string `json:"uid"`
	Node     string `json:"node"`
	Target   string `json:"target"`
	Cost     int64  `json:"cost"`
	Priority int32  `json:"priority"`
	// Fall is how much less is unusable, as MinFall; absent where room is made.
	Fall int64 `json:"fall,omitempty"`

	ResourceStatus json.RawMessage `json:"resourceStatus,omitempty"`
	Devices        json.RawMessage `json:"devices,omitempty"`
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

// Fix is one change after which a pod that waits was placed, in a copy of the cluster; of a member of a gang, with as
// many members as must start together.
type Fix struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	// Changes are what was tried, as POST /apis/v1/whatif takes them; none for what a gang no longer requires, since
	// that places members without the rules of their gang.
	Changes []Change `json:"changes,omitempty"`
	// Node is where the pod was placed, and VerifiedAt when; absent for MakeRoom.
	Node       string     `json:"node,omitempty"`
	VerifiedAt *time.Time `json:"verifiedAt,omitempty"`
	// Moves belong to MakeRoom.
	Moves []RoomMove `json:"moves,omitempty"`
}

// Kinds of Fix, in the order in which they are reported.
const (
	// FixWait waits for pods that terminate.
	FixWait = "WaitFor"
	// FixRequest is another amount that the pod requests, FixPolicy something else that it no longer requires.
	FixRequest = "ChangeRequest"
	FixPolicy  = "ChangePolicy"
	// FixClaim is another request for devices in a ResourceClaim of the pod.
	FixClaim = "ChangeClaim"
	// FixMembers creates the members that a gang lacks, FixGang requires less of its members.
	FixMembers = "CreateMembers"
	FixGang    = "ChangeGang"
	// FixQuota raises the quota that holds the pod back.
	FixQuota = "RaiseQuota"
	// FixNode uncordons or labels a node, or removes its taints.
	FixNode = "RelaxNode"
	// FixEvict deletes a pod that runs.
	FixEvict = "Evict"
	// FixAddNode adds nodes like one that is there.
	FixAddNode = "AddNode"
	// FixRoom moves pods.
	FixRoom = "MakeRoom"
)

// FixSearch is how fixes were looked for.
type FixSearch struct {
	// Runs counts the changes that were tried. Exhausted reports that the search ended before all were.
	Runs      int  `json:"runs"`
	Exhausted bool `json:"exhausted,omitempty"`
	// Note says why nothing was tried.
	Note string `json:"note,omitempty"`
}

// Machine is a machine that the cluster does not have: the objects that would describe it. Topology is a
// NodeResourceTopology; it and Device may be absent.
type Machine struct {
	Node     json.RawMessage `json:"node"`
	Topology json.RawMessage `json:"topology,omitempty"`
	Device   json.RawMessage `json:"device,omitempty"`
}

// Capacity is how many more pods fit, one after the other, each equal to the pod that was asked about.
type Capacity struct {
	// Pods is the number that fits: the nodes have room for them, the quotas allow them and the API server admits them.
	Pods int `json:"pods"`
	// Gang is the number of whole gangs among Pods; absent where no gang was asked about.
	Gang *GangCapacity `json:"gang,omitempty"`
	// Room is the number that the nodes have room for, whatever the quotas allow. Added of them are on added nodes.
	Room  int `json:"room"`
	Added int `json:"added,omitempty"`
	// Nodes is the number of nodes that were looked at. Each is in one group; groups with most room come first.
	Nodes  int             `json:"nodes"`
	Groups []CapacityGroup `json:"groups"`
	// Limits are what one more pod lacks on the nodes that have room for Room, or on all nodes if none has any: what to
	// report first, then by the number of nodes.
	Limits []Refusal `json:"limits"`
	// Quota is what the quotas allow, if that is less than Room; else absent.
	Quota *QuotaCapacity `json:"quota,omitempty"`
	// Admission is what the LimitRanges and ResourceQuotas of the namespace allow, if that is less than Room; else
	// absent.
	Admission *AdmissionCapacity `json:"admission,omitempty"`
	// Bound is the time that ended the count before all pods were tried, so that more may fit; absent otherwise.
	Bound string `json:"bound,omitempty"`
	// Notes are sentences about what was not counted.
	Notes []string `json:"notes,omitempty"`
}

// GangCapacity is how many gangs of so many members fit.
type GangCapacity struct {
	Members int `json:"members"`
	Fit     int `json:"fit"`
}

// CapacityGroup is nodes with room for the same number of pods that then refuse one more for the same reason.
type CapacityGroup struct {
	Nodes []string `json:"nodes"`
	// Fit is the number of pods that each of the nodes has room for.
	Fit int `json:"fit"`
	// Lacks is what one more pod lacks on the node of the group that comes closest; absent if the count ended before.
	Lacks *Refusal `json:"lacks,omitempty"`
}

// QuotaCapacity is what the quotas of the pods allow, and which one refuses one more.
type QuotaCapacity struct {
	Name  string  `json:"name"`
	Pods  int     `json:"pods"`
	Lacks Refusal `json:"lacks"`
}

// AdmissionCapacity is how many pods the API server admits one after the other, and why it refuses one more.
type AdmissionCapacity struct {
	Pods    int    `json:"pods"`
	Message string `json:"message"`
}

// WithRoom returns the number of nodes that have room for a pod.
func (c *Capacity) WithRoom() (n int) {
	for _, g := range c.Groups {
		if g.Fit > 0 {
			n += len(g.Nodes)
		}
	}
	return n
}

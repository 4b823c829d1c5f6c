package view

import "time"

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

package view

import "encoding/json"

// Machine is a machine that the cluster does not have: the objects that would describe it. Topology is a
// NodeResourceTopology; it and Device may be absent.
type Machine struct {
	Node     json.RawMessage `json:"node"`
	Topology json.RawMessage `json:"topology,omitempty"`
	Device   json.RawMessage `json:"device,omitempty"`
}

// Capacity is how many more pods fit, one after the other, each equal to the pod that was asked about.
type Capacity struct {
	// Pods is the number that fits: the nodes have room for them, and the quotas allow them.
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

// WithRoom returns the number of nodes that have room for a pod.
func (c *Capacity) WithRoom() (n int) {
	for _, g := range c.Groups {
		if g.Fit > 0 {
			n += len(g.Nodes)
		}
	}
	return n
}

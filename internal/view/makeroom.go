package view

import "github.com/tenon-project/tenon/internal/core/evict"

// RoomRequest asks the descheduler which pods to move so that others fit.
type RoomRequest struct {
	// Pods need room, namespace/name each; or all members without a node of Gang do, which is namespace/name.
	Pods []string `json:"pods,omitempty"`
	Gang string   `json:"gang,omitempty"`
	// MaxMoves is how many pods may move, 1 to 8; 0 means 2.
	MaxMoves int `json:"maxMoves,omitempty"`
}

// RoomAnswer is the smallest set of moves, or why there is none.
type RoomAnswer struct {
	// Pods are those that need room.
	Pods []string `json:"pods"`
	RoomPlan
	// Placements are the nodes of Pods once the moves are done.
	Placements []WhatIfPlacement `json:"placements"`
	// Unschedulable says why Pods fit nowhere as the cluster is; absent where they fit, or will.
	Unschedulable []Pod `json:"unschedulable,omitempty"`
	// Movable is the number of pods that may be moved, Kept are the others, each with its reasons.
	Movable int       `json:"movable"`
	Kept    []KeptPod `json:"kept"`
}

// KeptPod is a pod that may not be moved now.
type KeptPod struct {
	Pod     string       `json:"pod"`
	Node    string       `json:"node"`
	Reasons []KeptReason `json:"reasons"`
}

// KeptReasons are those of refusals.
func KeptReasons(refused []evict.Refusal) (kept []KeptReason) {
	for _, r := range refused {
		kept = append(kept, KeptReason{Code: string(r.Code), Message: r.String(), Final: r.Final()})
	}
	return kept
}

// KeptReason is a code of the limits on evictions, with its text.
type KeptReason struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Final reports whether waiting cannot help.
	Final bool `json:"final"`
}

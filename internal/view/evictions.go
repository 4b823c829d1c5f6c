package view

import (
	"time"

	"github.com/tenon-project/tenon/internal/core/evict"
)

// Evictions are all jobs, and the limits on them.
type Evictions struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Jobs       []Eviction `json:"jobs"`
	*EvictionLimits
}

// EvictionLimits are how much of the limits on evictions is used, and which pods they keep where they are.
type EvictionLimits struct {
	// Limits are those that something counts against.
	Limits []LimitUse `json:"limits"`
	// Movable is the number of placed pods that may be evicted now, Kept are the others, each with its reasons.
	Movable int       `json:"movable"`
	Kept    []KeptPod `json:"kept"`
	// Round is the last round of plugins; absent before the first one has ended.
	Round *Round `json:"round,omitempty"`
}

// Round is what became of the moves that plugins proposed together.
type Round struct {
	Time time.Time `json:"time"`
	// Accepted is the number of moves for which a job was created, or would have been but for a dry run. Refused are
	// the others.
	Accepted int           `json:"accepted"`
	Refused  []RefusedMove `json:"refused"`
}

// RefusedMove is a pod that a plugin, PROFILE/PLUGIN, wanted to move because of Wish.
type RefusedMove struct {
	KeptPod

	Plugin string `json:"plugin"`
	Wish   string `json:"wish"`
}

// LimitUse is how much of a limit is used.
type LimitUse struct {
	// Code refuses evictions when Have reaches Limit. Subject is the node, namespace, workload or domain.
	Code    string `json:"code"`
	Subject string `json:"subject"`
	Have    int    `json:"have"`
	Limit   int    `json:"limit"`
	// Window is the length of the interval in which evictions count, as a Go duration; absent for jobs at the same
	// time.
	Window string `json:"window,omitempty"`
}

// Eviction is a PodMigrationJob as a user reads it.
type Eviction struct {
	Name string `json:"name"`
	// Pod is namespace/name. Successor came in its place; "" until then.
	Pod       string `json:"pod"`
	Successor string `json:"successor,omitempty"`
	// From is the pod's node when the job started, To the node where room is held; "" until then.
	From       string     `json:"from,omitempty"`
	To         string     `json:"to,omitempty"`
	Phase      string     `json:"phase"`
	CreateTime *time.Time `json:"createTime,omitempty"`
	// Evicted is when the pod was evicted; nil where it was not.
	Evicted *time.Time `json:"evicted,omitempty"`
	// Plugin proposed the move because of Wish; both are "" for a job of a user.
	Plugin string `json:"plugin,omitempty"`
	Wish   string `json:"wish,omitempty"`
	// Reason is why the job waits or has failed, with its code first.
	Reason string `json:"reason,omitempty"`
}

// Evicted is a pod that left its node because a program evicted it, by what a PodMigrationJob or an Event says.
type Evicted struct {
	// Pod is namespace/name.
	Pod  string    `json:"pod"`
	Time time.Time `json:"time"`
	// By is PROFILE/PLUGIN of the descheduler, or one of EvictedByUser to EvictedByTaint.
	By string `json:"by"`
	// Why is the wish of the plugin, or the message of the Event; absent for a job of a user.
	Why string `json:"why,omitempty"`
}

// Values of Evicted.By besides plugins.
const (
	// EvictedByUser is a PodMigrationJob that a user created.
	EvictedByUser = "user"
	// EvictedByPreemption made room for a pod or a gang of higher priority; EvictedByGang ended a part of a gang.
	EvictedByPreemption = "preemption"
	EvictedByGang       = "gang"
	// EvictedByQuota gave a quota back what it lent.
	EvictedByQuota = "quota"
	// EvictedByAgent protected other pods of the node from a best-effort pod.
	EvictedByAgent = "agent"
	// EvictedByKubelet relieved a node, EvictedByTaint obeyed a taint.
	EvictedByKubelet = "kubelet"
	EvictedByTaint   = "taint"
)

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

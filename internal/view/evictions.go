package view

import "time"

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
	// Plugin proposed the move; "" for a job of a user.
	Plugin string `json:"plugin,omitempty"`
	// Reason is why the job waits or has failed, with its code first.
	Reason string `json:"reason,omitempty"`
}

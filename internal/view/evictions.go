package view

import "time"

// EvictionLimits are how much of the limits on evictions is used, and which pods they keep where they are.
type EvictionLimits struct {
	// Limits are those that something counts against.
	Limits []LimitUse `json:"limits"`
	// Movable is the number of placed pods that may be evicted now, Kept are the others, each with its reasons.
	Movable int       `json:"movable"`
	Kept    []KeptPod `json:"kept"`
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

package coscheduling

import (
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

// refusal is a gang.Refusal as an error: errors.As on a framework's status finds it again.
type refusal struct{ gang.Refusal }

// Error says which gang lacks what.
func (r *refusal) Error() string { return r.String() }

// Finding returns the reason; the reader adds plugin and phase.
func (r *refusal) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: r.Code}, Detail: r.Error()}
}

// wire is the JSON at the end of the condition of a pod that waits for its gang.
type wire struct {
	// Code is why the pod waits.
	Code why.Code `json:"code"`
	// Gang is the namespace and name of the gang.
	Gang string `json:"gang,omitempty"`
	// Need is how many members of the gang must run.
	Need   int  `json:"need,omitempty"`
	Have   *int `json:"have,omitempty"`   // members that exist, without a scheduling gate where the code is GangGated
	Placed *int `json:"placed,omitempty"` // members that fit, or are reserved
	// RootCause is the pod for which the gang does not start; nil where no plan of it has failed.
	RootCause *cause `json:"rootCause,omitempty"`

	// Domains are the domains of the network that were tried; nil for a gang that may be on any node.
	Domains *view.Domains `json:"domains,omitempty"`
}

// cause names the pod for which the gang does not start, and the code of what it lacks.
type cause struct {
	// Pod is the namespace and name of the pod.
	Pod string `json:"pod"`
	// Code is what the pod lacks.
	Code why.Code `json:"code"`
}

// Message is the text of the condition.
func (r *refusal) Message() string {
	w := wire{Code: r.Code, Gang: r.Gang, Need: r.Need, Domains: view.DomainsOf(r.Tried)}
	switch r.Code {
	case why.GangNotReady, why.GangGated:
		w.Have = &r.Have
	case why.GangHolding, why.GangSiblingFailed, why.GangPreempting, why.GangReserved, why.GangTimeout:
		w.Placed = &r.Have
	}
	if r.Pod != "" {
		w.RootCause = &cause{r.Pod, r.Cause.Code}
	}
	// Programs read the JSON, people the text before it.
	return why.Text([]why.Finding{r.Finding()}, 0) + " " + encode(w)
}

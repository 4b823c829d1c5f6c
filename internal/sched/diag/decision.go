package diag

import (
	"slices"
	"sync"

	"github.com/tenon-project/tenon/internal/view"
)

// DecisionsKept is the number of decisions that a scheduler remembers.
const DecisionsKept = 256

// Scores sees the scores of decisions.
type Scores interface{ Scored(d view.Decision) }

// Ring keeps the last decisions. The zero value is empty. Safe for concurrent use.
type Ring struct {
	// Scores sees each decision that is added; nil without.
	Scores Scores

	// mu guards kept, which has at most DecisionsKept decisions.
	mu   sync.Mutex
	kept []view.Decision // oldest first
}

// Add remembers d and forgets the oldest one beyond DecisionsKept. d must not be changed afterwards.
func (r *Ring) Add(d view.Decision) {
	if r.Scores != nil {
		r.Scores.Scored(d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) == DecisionsKept {
		r.kept = slices.Delete(r.kept, 0, 1)
	}
	r.kept = append(r.kept, d)
}

// List returns the decisions about pod (namespace/name), newest first; about all pods when pod is "".
func (r *Ring) List(pod string) []view.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []view.Decision{}
	for _, d := range slices.Backward(r.kept) {
		if pod == "" || d.Pod == pod {
			out = append(out, d)
		}
	}
	return out
}

// Last returns the newest decision about the pod with this UID.
func (r *Ring) Last(uid string) (view.Decision, bool) {
	for _, d := range r.List("") {
		if d.UID == uid {
			return d, true
		}
	}
	return view.Decision{}, false
}

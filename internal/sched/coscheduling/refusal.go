package coscheduling

import (
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

// refusal is a gang.Refusal as an error: errors.As on a framework's status finds it again.
type refusal struct{ gang.Refusal }

// Error says which gang lacks what.
func (r *refusal) Error() string { return r.String() }

// Finding returns the reason; the reader adds plugin and phase.
func (r *refusal) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: r.Code}, Detail: r.Error()}
}

package coscheduling

import (
	"fmt"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
)

// refusal is a gang.Refusal as an error: errors.As on a framework's status finds it again.
type refusal struct{ gang.Refusal }

// Error says which gang lacks what.
func (r *refusal) Error() string {
	switch r.Code {
	case why.GangNotFound:
		return fmt.Sprintf("PodGroup %s does not exist", r.Gang)
	case why.GangGroupNotMutual:
		return fmt.Sprintf("gang %s, which the pod's gang lists, does not exist or lists other gangs", r.Gang)
	case why.GangNotReady:
		return fmt.Sprintf("gang %s has %d of the %d members that must start together", r.Gang, r.Have, r.Need)
	}
	return r.Text
}

// Finding returns the reason; the reader adds plugin and phase.
func (r *refusal) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: r.Code}, Detail: r.Error()}
}

package status

import (
	"testing"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

// What other packages name by a text is in the list of Events.
func TestEveryRecordCauseAndConditionIsAnEvent(t *testing.T) {
	t.Parallel()
	for kind := apply.Drifted; kind <= apply.AllocationRefused; kind++ {
		if _, ok := event.Parse(kind.String()); !ok {
			t.Errorf("records of kind %s are not in the list of Events", kind)
		}
	}
	for _, cause := range []error{
		apply.ErrHandOverPending, apply.ErrUnallocated, apply.ErrUnknownPod, apply.ErrMalformed, apply.ErrNotReady,
		apply.ErrEnforcement, hook.ErrDegraded, inject.ErrMalformed, inject.ErrUnallocated, inject.ErrUnavailable,
		inject.ErrConflict, inject.ErrMismatch,
	} {
		if _, ok := event.Parse(cause.Error()); !ok {
			t.Errorf("the cause %v is not in the list of Events", cause)
		}
	}
	listed := 0
	for _, e := range event.List() {
		if e.Condition {
			listed++
		}
	}
	conditions := []event.Reason{
		event.TopologyWriterConflict, event.TopologyModeConflict, event.TopologySourceDegraded,
		event.KubeletStateUnreadable, event.KubeletStateContradictory, event.KubeletStaticActive, event.KubeletAssumed,
		event.EnforcementDegraded, event.DeviceHoldersUnclear, event.NodeLeft,
		event.BestEffortSuppressed, event.GPUIsolationWeak, event.TuningFailed,
	}
	for _, c := range conditions {
		if !c.Entry().Condition {
			t.Errorf("%s is not in the list as a condition", c)
		}
	}
	if listed != len(conditions) {
		t.Errorf("the list has %d conditions, the agent sets %d", listed, len(conditions))
	}
}

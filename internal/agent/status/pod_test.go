package status

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/core/ledger"
)

func TestWhatAllocationsContradictIsNamed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		problem ledger.Problem
		reason  string
	}{
		"CPUs of two pods":           {ledger.Problem{Kind: ledger.HeldTwice, CPUs: "5"}, "AllocationConflict"},
		"CPUs that are reserved":     {ledger.Problem{Kind: ledger.Reserved, CPUs: "5"}, "AllocationConflict"},
		"CPUs that are offline":      {ledger.Problem{Kind: ledger.Offline, CPUs: "5"}, "BoundCPUOffline"},
		"CPUs that are not there":    {ledger.Problem{Kind: ledger.Unknown, CPUs: "5"}, "AllocationUnusable"},
		"NUMA nodes that are not":    {ledger.Problem{Kind: ledger.UnknownNUMA, CPUs: "5"}, "AllocationUnusable"},
		"a list that cannot be read": {ledger.Problem{Kind: ledger.Malformed, CPUs: "5"}, "AllocationUnusable"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reason, note := describe(tt.problem)
			if reason.String() != tt.reason || !strings.Contains(note, "5") {
				t.Errorf("describe = %q, %q, want %q and the CPUs", reason, note, tt.reason)
			}
		})
	}
}

package doctor

import (
	"fmt"

	"github.com/tenon-project/tenon/internal/view"
)

// What a check found reads the same for a machine, a node and a whole installation.
type (
	// Finding is what one check found.
	Finding = view.Finding
	// Diagnosis is what all checks of one subject found.
	Diagnosis = view.Diagnosis
	// Status says whether a check found what is needed.
	Status = view.CheckStatus
)

// Statuses of a Finding.
const (
	OK      = view.CheckOK
	Unknown = view.CheckUnknown
	Warn    = view.CheckWarn
	Fail    = view.CheckFail
)

// findings are those of one subject, in the order of their checks.
type findings []Finding

// add takes what a check found; a zero Finding is a check that had nothing to look at.
func (all *findings) add(check string, found ...Finding) {
	for _, f := range found {
		if f.Status != "" {
			f.Check = check
			*all = append(*all, f)
		}
	}
}

func ok(where, found string, args ...any) Finding {
	return Finding{Status: OK, Where: where, Found: fmt.Sprintf(found, args...)}
}

func unknown(where, found string, args ...any) Finding {
	return Finding{Status: Unknown, Where: where, Found: fmt.Sprintf(found, args...)}
}

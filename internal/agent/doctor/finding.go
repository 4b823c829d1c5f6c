package doctor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

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

// The releases from which on a runtime asks validators, so that a container without its CPUs does not start.
var validators = map[string]string{"containerd": "2.2", "cri-o": "1.34"} //nolint:gochecknoglobals // a constant

// versionFinding judges a runtime's release, as CRI and the Node spell it.
func versionFinding(where, name, version string) Finding {
	f := ok(where, "%s %s", name, version)
	since, known := validators[name]
	old, readable := false, false
	if known {
		old, readable = isBefore(version, since)
	}
	switch {
	case !readable:
		return f.Because(Unknown,
			"it is unknown whether this runtime starts a container when the agent does not answer",
			"run containerd 2.2, CRI-O 1.34 or newer")
	case old:
		return f.Because(Warn, fmt.Sprintf(
			"%s before %s starts a container although the agent did not answer in time: the node is reported "+
				"as degraded and takes LSE pods only with --allow-degraded-enforcement", name, since),
			fmt.Sprintf("update %s to %s or newer", name, since))
	}
	return f
}

// isBefore reports whether a release such as "6.12.1-cloud" or "v2.2.0" is older than another one.
func isBefore(release, since string) (before, readable bool) {
	v, err := version.ParseGeneric(release)
	return err == nil && v.LessThan(version.MustParseGeneric(since)), err == nil
}

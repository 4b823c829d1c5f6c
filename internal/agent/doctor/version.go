package doctor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

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
			"it is not known whether a container of this runtime starts although the agent did not answer",
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

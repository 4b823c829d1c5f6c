package nri

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Runtime is a container runtime as it names itself.
type Runtime struct{ Name, Version string }

// ParseRuntime parses the name and version that Configure receives.
func ParseRuntime(name, version string) Runtime {
	return Runtime{Name: name, Version: strings.TrimPrefix(version, "v")}
}

// Old says why containers may start without us on this runtime; "" when they may not.
func (r Runtime) Old() string {
	// The first versions whose validators fail closed.
	first, known := map[string]string{"containerd": "2.2", "cri-o": "1.34"}[strings.ToLower(r.Name)]
	if !known {
		return "runtime " + r.Name + " " + r.Version +
			" is not known to fail closed: want containerd 2.2 or CRI-O 1.34, or a later one"
	}
	if v, err := version.ParseGeneric(r.Version); err == nil && v.AtLeast(version.MustParseGeneric(first)) {
		return ""
	}
	return r.Name + " " + r.Version + " goes on without a plugin that fails: want " + first + " or later"
}

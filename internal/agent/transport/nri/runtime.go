package nri

import (
	"strconv"
	"strings"
)

// Runtime is a container runtime as it names itself.
type Runtime struct{ Name, Version string }

// ParseRuntime parses the name and version that Configure receives.
func ParseRuntime(name, version string) Runtime {
	return Runtime{Name: name, Version: strings.TrimPrefix(version, "v")}
}

// The first versions whose validators fail closed.
func promising() map[string][2]int {
	return map[string][2]int{"containerd": {2, 2}, "cri-o": {1, 34}}
}

// Old says why containers may start without us on this runtime; "" when they may not.
func (r Runtime) Old() string {
	first, known := promising()[strings.ToLower(r.Name)]
	if !known {
		return "runtime " + r.Name + " " + r.Version +
			" is not known to fail closed: want containerd 2.2 or CRI-O 1.34, or a later one"
	}
	major, minor, ok := release(r.Version)
	if ok && (major > first[0] || major == first[0] && minor >= first[1]) {
		return ""
	}
	return r.Name + " " + r.Version + " goes on without a plugin that fails: want " + strconv.Itoa(first[0]) + "." +
		strconv.Itoa(first[1]) + " or later"
}

func release(version string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	second, _, _ = strings.Cut(second, "-")
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	return major, minor, err1 == nil && err2 == nil
}

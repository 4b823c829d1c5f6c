package version

import (
	"runtime/debug"
	"strings"
)

// release is the tag or commit that hack/build.sh gives the linker: -X …/api/version.release=v0.1.0.
var release string //nolint:gochecknoglobals // the linker sets variables alone

// String returns the tag or commit that the linker was given, else what Go recorded of the checkout, else "devel".
func String() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Kubernetes returns the version of Kubernetes that the program is built on, such as v1.37.2; "unknown" where Go
// recorded none.
func Kubernetes() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/client-go" {
				return strings.Replace(m.Version, "v0.", "v1.", 1) // 1.37.2 is in the modules of v0.37.2
			}
		}
	}
	return "unknown"
}

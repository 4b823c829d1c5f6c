package version

import "runtime/debug"

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

// Package pins keeps every Kubernetes staging module in the module graph at one version.
//
// k8s.io/kubernetes requires its staging modules at v0.0.0 and resolves them by replace lines, which do not count
// for an importer. A direct requirement of each module at the matching version does. `go mod tidy` would drop the
// ones that nothing imports, after which `go list -m all` fails; staging.go imports one small package of each under
// a build tag that no build sets, so the requirements are kept and nothing more is compiled.
package pins

// Package install applies manifests to a cluster: the ones Tenon needs at every start, and a user's.
package install

//go:build linux && e2e_cluster

package cluster

import "testing"

// cases are the nodes of single cases.
func cases() []string { return nil }

func runCases(*testing.T, *world) {}

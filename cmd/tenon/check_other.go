//go:build !linux

package main

import (
	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
)

// checkAgent checks the fields and their types: what the values must be, the agent knows, which is for Linux alone.
func checkAgent(d *strict.Document) (strict.Settings, error) {
	var schema v1alpha1.AgentConfiguration
	problems := d.DecodeKind(v1alpha1.ComponentAPIVersion, v1alpha1.AgentConfigurationKind, &schema)
	return strict.Settings{}, problems.Err()
}

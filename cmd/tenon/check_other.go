//go:build !linux

package main

import (
	"github.com/tenon-project/tenon/api/config/runtimeproxy"
	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
)

// checkAgent checks the fields and their types: what the values must be, the agent knows, which is for Linux alone.
func checkAgent(d *strict.Document) (strict.Settings, error) {
	return strict.Settings{}, decode[v1alpha1.AgentConfiguration](d, v1alpha1.AgentConfigurationKind)
}

// checkProxy is checkAgent for the runtime proxy.
func checkProxy(d *strict.Document) (strict.Settings, error) {
	return strict.Settings{}, decode[runtimeproxy.Configuration](d, runtimeproxy.Kind)
}

func decode[T any](d *strict.Document, kind string) error {
	var schema T
	problems := d.DecodeKind(v1alpha1.ComponentAPIVersion, kind, &schema)
	return problems.Err()
}

package main

import (
	"github.com/tenon-project/tenon/api/config/strict"
	agent "github.com/tenon-project/tenon/internal/agent/command"
)

// checkAgent is the agent's own check.
func checkAgent(d *strict.Document) (strict.Settings, error) { return agent.CheckConfig(d) }

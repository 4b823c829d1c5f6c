package main

import (
	"github.com/tenon-project/tenon/api/config/strict"
	agent "github.com/tenon-project/tenon/internal/agent/command"
	proxy "github.com/tenon-project/tenon/internal/agent/criproxy/app"
)

// checkAgent is the agent's own check, checkProxy the runtime proxy's.
func checkAgent(d *strict.Document) (strict.Settings, error) { return agent.CheckConfig(d) }
func checkProxy(d *strict.Document) (strict.Settings, error) { return proxy.CheckConfig(d) }

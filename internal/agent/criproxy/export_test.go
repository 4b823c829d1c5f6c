package criproxy

import (
	"context"
	"time"
)

// What tests reach into.
var (
	MustEnforce      = mustEnforce
	ParentGroup      = parentGroup
	ReadRegistration = readRegistration
)

// SetDrain changes how long calls under way may take at the end. The proxy must not run yet.
func (p *Proxy) SetDrain(d time.Duration) { p.drain = d }

// SetHookLimit changes how long a hook may take. No hook may be under way.
func (p *Proxy) SetHookLimit(d time.Duration) { p.hooks.limit = d }

// Sweep forgets what the runtime no longer has.
func (p *Proxy) Sweep(ctx context.Context) error { return p.state.sweep(ctx) }

// Size returns how many sandboxes and containers are remembered.
func (p *Proxy) Size() (sandboxes, containers int) { return p.state.size() }

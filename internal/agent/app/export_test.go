package app

import "context"

// Refresh is one resync, beside Run while that waits.
func (a *Agent) Refresh(ctx context.Context) { a.refresh(ctx) }

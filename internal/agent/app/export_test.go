package app

import (
	"context"

	"github.com/tenon-project/tenon/internal/agent/desired"
)

// Refresh is one resync, beside Run while that waits.
func (a *Agent) Refresh(ctx context.Context) { a.refresh(ctx) }

// Table is the desired state of the cgroup tree of this moment.
func (a *Agent) Table() desired.Table { return a.tree.Table() }

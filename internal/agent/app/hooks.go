package app

import (
	"context"
	"errors"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
)

// Hooks is what a container runtime asks at the steps of a container's life. While the agent writes no cpusets (modes
// Follow and Blind) the answers are empty and nothing is held back.
type Hooks interface {
	// Create answers the values to set before the container's first process. The error is an *apply.Blocked.
	Create(c apply.Container) ([]desired.Row, error)
	// Start is the last gate before the first process: an error means that the container must not run now.
	Start(ctx context.Context, c apply.Container) error
	// Stop tells that the container's processes have ended, Remove that its cgroup is gone.
	Stop(c apply.Container)
	Remove(c apply.Container)
}

// Hooks returns the agent's hooks; they may be called from the time of New on.
func (a *Agent) Hooks() Hooks { return hooks{a} }

type hooks struct{ a *Agent }

func (h hooks) Create(c apply.Container) ([]desired.Row, error) {
	if !h.a.writes() {
		return nil, nil
	}
	rows, err := h.a.engine.Create(c)
	h.a.countBlocked(err)
	return rows, err
}

func (h hooks) Start(ctx context.Context, c apply.Container) error {
	if !h.a.writes() {
		return nil
	}
	began := h.a.o.Clock.Now()
	err := h.a.engine.Start(ctx, c)
	h.a.o.Shared.Metrics.apply.WithLabelValues(pathNRI).Observe(h.a.o.Clock.Since(began).Seconds())
	h.a.countBlocked(err)
	return err
}

func (h hooks) Stop(c apply.Container)   { h.a.engine.Stop(c) }
func (h hooks) Remove(c apply.Container) { h.a.engine.Remove(c) }

func (a *Agent) countBlocked(err error) {
	if blocked, ok := errors.AsType[*apply.Blocked](err); ok {
		a.o.Shared.Metrics.failures.WithLabelValues(blocked.Cause.Error()).Inc()
	}
}

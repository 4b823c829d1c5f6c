package apply

import (
	"context"
	"errors"
	"time"
)

// Reconcile does one pass over what changed.
func (e *Engine) Reconcile() error {
	return e.timed(func() error { return e.run("", false) })
}

// Verify reads the whole tree, repairs and reports drift.
func (e *Engine) Verify() error {
	return e.timed(func() error { return e.run("", true) })
}

// Sweep releases pods that are gone and whose processes have ended, as each pass does, and writes nothing: it is for
// the time in which no pass is requested.
func (e *Engine) Sweep() error {
	return e.inTurn(context.Background(), func() error {
		if _, ready := e.ready(); !ready {
			return ErrNotReady
		}
		if err := e.discover(); err != nil {
			return err
		}
		return e.releaseEnded()
	})
}

// timed is inTurn for one pass.
func (e *Engine) timed(pass func() error) error {
	began := e.o.Clock.Now()
	err := e.inTurn(context.Background(), pass)
	if e.o.Reports != nil && !errors.Is(err, ErrNotReady) {
		e.o.Reports.Timed(e.o.Clock.Since(began))
	}
	return err
}

// Run keeps the tree equal to the table until ctx ends. It leaves the tree as it is.
func (e *Engine) Run(ctx context.Context) error {
	resync := e.o.Clock.NewTicker(e.o.Resync)
	defer resync.Stop()
	fresh := true
	for {
		retry := e.o.Clock.NewTimer(e.step(fresh))
		fresh = false
		select {
		case <-e.dirty:
		case <-retry.C():
		case <-resync.C():
			fresh = true
		case <-ctx.Done():
			retry.Stop()
			return nil
		}
		retry.Stop()
	}
}

// step does one pass and returns when to do the next one if nothing else happens. Errors are kept as faults, reported,
// and tried again; those that belong to no file, such as an unreadable tree, after the shortest time.
func (e *Engine) step(fresh bool) (wait time.Duration) {
	_ = e.timed(func() error {
		e.mu.Lock()
		whole := e.recheck || fresh
		e.recheck = false
		e.mu.Unlock()
		err := e.run("", whole)
		next, retry := e.nextRetry()
		_, blind := errors.AsType[*unreadable](err)
		switch {
		case blind:
			e.mu.Lock()
			e.recheck = e.recheck || whole // the look that was asked for is still to be taken
			e.mu.Unlock()
			wait = firstRetry
		case retry:
			wait = next
		case err != nil && !errors.Is(err, ErrNotReady):
			wait = firstRetry
		default:
			wait = e.o.Resync
		}
		return err
	})
	return wait
}

package app

import (
	"context"
	"errors"
	"sync"
)

// group runs the parts of an agent: the first error ends them all.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex // guards errs
	errs []error
}

func (g *group) run(part func(context.Context) error) {
	g.wg.Go(func() {
		if err := part(g.ctx); err != nil {
			g.mu.Lock()
			g.errs = append(g.errs, err)
			g.mu.Unlock()
			g.cancel()
		}
	})
}

func (g *group) wait() error {
	g.wg.Wait()
	return errors.Join(g.errs...)
}

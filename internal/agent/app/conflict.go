package app

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
)

// conflicts makes one condition out of what several writers of objects say of theirs, or several sources of themselves.
type conflicts struct {
	set func(ctx context.Context, kind string, holds bool, reason, message string) error

	mu       sync.Mutex // guards bySource
	bySource map[string]conflict
}

type conflict struct{ reason, message string }

// of returns the function by which one source reports its state: whether a writer is kept from its object, or whether
// input cannot be used.
func (c *conflicts) of(source string) func(ctx context.Context, kind string, holds bool, reason, message string) error {
	return func(ctx context.Context, kind string, holds bool, reason, message string) error {
		c.mu.Lock()
		if holds {
			c.bySource[source] = conflict{reason, message}
		} else {
			delete(c.bySource, source)
		}
		all := c.all()
		c.mu.Unlock()
		if len(all) == 0 {
			return c.set(ctx, kind, false, reason, message)
		}
		var messages []string
		for _, one := range all {
			messages = append(messages, one.message)
		}
		return c.set(ctx, kind, true, all[0].reason, strings.Join(messages, "; "))
	}
}

// all returns the conflicts by source.
func (c *conflicts) all() []conflict {
	var list []conflict
	for _, source := range slices.Sorted(maps.Keys(c.bySource)) {
		list = append(list, c.bySource[source])
	}
	return list
}

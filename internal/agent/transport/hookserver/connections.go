package hookserver

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// connections reports requests, and when the last connection of a server has ended. A proxy keeps its connection open
// until it exits.
type connections struct {
	open    atomic.Int64
	proxied func(bool)
}

var _ stats.Handler = (*connections)(nil)

func (*connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.open.Add(1)
	case *stats.ConnEnd:
		if c.open.Add(-1) == 0 {
			c.proxied(false)
		}
	}
}

func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (c *connections) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InHeader); ok {
		c.proxied(true)
	}
}

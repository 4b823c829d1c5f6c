package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/transport"
)

// Waits between two attempts to connect.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
	// readyWait is the time between two questions whether the agent knows enough.
	readyWait = 50 * time.Millisecond
	// endWait is what a stub gets to end after its connection.
	endWait = time.Second
)

// client makes the connections of a plugin.
type client struct{ transport.NRIOptions }

// Run keeps the plugin connected until ctx ends, and returns nil then.
func Run(ctx context.Context, o transport.NRIOptions) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	c := &client{o}
	wait := firstWait
	for ctx.Err() == nil {
		if !c.Handler.Ready() {
			c.pause(ctx, readyWait)
			continue
		}
		if held, err := c.connect(ctx); ctx.Err() == nil {
			if held {
				wait = firstWait
			}
			c.Link.Disconnected(ctx, err)
			c.pause(ctx, wait)
			wait = min(2*wait, lastWait)
		}
	}
	return nil
}

func (c *client) pause(ctx context.Context, d time.Duration) {
	t := c.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
	case <-ctx.Done():
	}
}

// errClosed is the end of a connection without a cause of its own.
var errClosed = errors.New("the runtime closed the NRI connection")

// connect serves one connection until it ends; held reports whether the runtime had accepted it.
func (c *client) connect(ctx context.Context) (held bool, err error) {
	p := &plugin{o: &c.NRIOptions, synced: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open, end := context.WithCancel(ctx)
	s, err := stub.New(p, stub.WithPluginName(Name), stub.WithPluginIdx(Index), stub.WithSocketPath(c.Socket),
		stub.WithLogger(logger{klog.FromContext(ctx)}),
		stub.WithDialer(func(socket string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			return watched{conn, end}, err
		}),
		// A runtime that knows no policies ignores this; nothing here counts on it.
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true, KeepConnected: true}))
	if err != nil {
		return false, fmt.Errorf("NRI plugin: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case err = <-ended:
		return false, cmp.Or(err, errClosed)
	case <-open.Done():
		// A stub whose connection ends between its registration and its configuration waits for the latter for good.
		select {
		case err = <-ended:
		case <-c.Clock.After(endWait):
		}
		return false, cmp.Or(err, errClosed)
	case <-p.synced:
	}
	pushed := make(chan struct{})
	go func() {
		defer close(pushed)
		c.push(ctx, s)
	}()
	err = <-ended
	cancel()
	<-pushed
	return true, cmp.Or(err, errClosed)
}

// watched is a connection that calls end when it can be read no more.
type watched struct {
	net.Conn
	end func()
}

func (w watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.end()
	}
	return n, err
}

// push sends the pending updates to the runtime. It runs beside the handlers, never inside one, which would deadlock
// the runtime.
func (c *client) push(ctx context.Context, s stub.Stub) {
	for {
		select {
		case <-c.Handler.Updates():
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			updates := c.Handler.NextUpdates()
			if len(updates) == 0 {
				break
			}
			c.send(ctx, s, updates)
		}
	}
}

// send sends updates to the runtime. A failure is only logged: the kernel has the sets already, and the engine undoes
// writes of older ones.
func (c *client) send(ctx context.Context, s stub.Stub, updates []hook.Update) {
	failed, err := s.UpdateContainers(toAPI(updates))
	if err != nil || len(failed) > 0 {
		klog.FromContext(ctx).V(stubLevel).Info("The runtime did not take sets", "asked", len(updates), "failed",
			len(failed), "err", err)
	}
	c.Handler.UpdatesDone(updates)
}

// stubLevel is the verbosity from which on the stub's own messages are shown.
const stubLevel = 4

// logger passes on what the stub says.
type logger struct{ to klog.Logger }

var _ nrilog.Logger = logger{}

func (l logger) say(level, format string, args ...any) {
	l.to.V(stubLevel).Info("NRI stub", "level", level, "text", fmt.Sprintf(format, args...))
}

func (l logger) Debugf(_ context.Context, format string, args ...any) {
	l.say("debug", format, args...)
}

func (l logger) Infof(_ context.Context, format string, args ...any) { l.say("info", format, args...) }

func (l logger) Warnf(_ context.Context, format string, args ...any) {
	l.say("warning", format, args...)
}

func (l logger) Errorf(_ context.Context, format string, args ...any) {
	l.say("error", format, args...)
}

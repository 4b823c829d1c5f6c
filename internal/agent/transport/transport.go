package transport

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/agent/transport/hookserver"
)

// Options are what Transports need.
type Options struct {
	Node string
	// NRISocket is the runtime's, HookSocket the one on which a proxy asks; "" for none.
	NRISocket, HookSocket string
	// ServeNRI is nri.Run, where there is a NRISocket.
	ServeNRI func(context.Context, NRIOptions) error
	// AllowDegraded: LSE pods start where it cannot be promised that no container starts without the agent.
	AllowDegraded bool
	Agent         Agent

	Status  *status.Reporter
	Metrics *status.Metrics
	Clock   clock.WithTicker
}

// Agent is the agent of the node.
type Agent interface {
	// RequestRefresh is called when containers have come to start with the agent, or without. It must not block.
	RequestRefresh()
}

// Transports are the ways by which containers come to the agent before they start. They are safe for concurrent use.
type Transports struct {
	o Options

	mu sync.Mutex // guards the field below
	at connections
}

// New returns Transports that are not connected.
func New(o Options) *Transports { return &Transports{o: o} }

// change changes what is connected, and reports whether that is news.
func (t *Transports) change(f func(*connections)) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.at
	f(&t.at)
	return t.at != before
}

func (t *Transports) connections() connections {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

// Attach notes that a runtime of this process asks.
func (t *Transports) Attach() { t.change(func(c *connections) { c.attached = true }) }

// ServeNRI keeps a service connected to the container runtime until ctx ends.
func (t *Transports) ServeNRI(ctx context.Context, service *hook.Service) error {
	if t.o.NRISocket == "" {
		return nil
	}
	return t.o.ServeNRI(ctx, NRIOptions{
		Socket: t.o.NRISocket, Handler: service, Clock: t.o.Clock, Link: nriLink{t},
	})
}

// nriLink is the Link of NRI.
type nriLink struct{ *Transports }

// Connected implements Link.
func (t nriLink) Connected(ctx context.Context, r Runtime) {
	klog.FromContext(ctx).WithName("nri").Info("Connected to the container runtime", "runtime", r.Name, "version",
		r.Version)
	t.change(func(c *connections) { c.runtime, c.lost = &r, "" })
	t.o.Metrics.Connected.WithLabelValues(status.PathNRI).Set(1)
	t.o.Agent.RequestRefresh()
}

// Timed implements Link.
func (t nriLink) Timed(call string, d time.Duration) { t.handled(status.PathNRI, call, d) }

// Fenced implements Link.
func (t nriLink) Fenced(yes bool) {
	if t.change(func(c *connections) { c.unfenced = !yes }) {
		t.o.Agent.RequestRefresh()
	}
}

// Disconnected reports, once per cause, that the runtime is not connected.
func (t nriLink) Disconnected(ctx context.Context, err error) {
	t.o.Metrics.Connected.WithLabelValues(status.PathNRI).Set(0)
	t.o.Metrics.Failures.WithLabelValues(event.NRIDisconnected.String()).Inc()
	if !t.change(func(c *connections) { c.runtime, c.lost = nil, err.Error() }) {
		return
	}
	t.o.Metrics.Disconnects.WithLabelValues(t.o.Node).Inc()
	klog.FromContext(ctx).Info("No NRI connection to the container runtime, will try again", "socket", t.o.NRISocket,
		"err", err)
	t.o.Status.Event(event.NRIDisconnected, "the container runtime is not connected by NRI at %s: %v", t.o.NRISocket,
		err)
	t.o.Agent.RequestRefresh()
}

// hookRetry is the time between two attempts to listen for a runtime proxy.
const hookRetry = 5 * time.Second

// ServeHooks lets a runtime proxy ask a service until ctx ends. A socket that cannot be used is reported and retried:
// an agent without a proxy does not need it.
func (t *Transports) ServeHooks(ctx context.Context, service *hook.Service) error {
	if t.o.HookSocket == "" {
		return nil
	}
	o := hookserver.Options{Socket: t.o.HookSocket, Handler: service, Link: proxyLink{t}}
	reported := ""
	for ctx.Err() == nil {
		err := hookserver.Serve(ctx, o)
		if err == nil {
			return nil
		}
		t.o.Metrics.Failures.WithLabelValues(event.HookSocketUnusable.String()).Inc()
		if text := err.Error(); text != reported {
			reported = text
			t.o.Status.Event(event.HookSocketUnusable, "a runtime proxy cannot ask: %s", text)
		}
		select {
		case <-t.o.Clock.After(hookRetry):
		case <-ctx.Done():
		}
	}
	return nil
}

// proxyLink is the Link of a runtime proxy.
type proxyLink struct{ *Transports }

// Proxied records whether a runtime proxy is connected: without one, containers may start without the agent again.
func (t proxyLink) Proxied(connected bool) {
	if !t.change(func(c *connections) { c.proxied, c.hadProxy = connected, connected || c.hadProxy }) {
		return
	}
	gauge := 0.0
	if connected {
		gauge = 1
	}
	t.o.Metrics.Connected.WithLabelValues(status.PathCRI).Set(gauge)
	t.o.Agent.RequestRefresh()
}

// Timed measures a call of a runtime proxy.
func (t proxyLink) Timed(call string) (answered func()) {
	began := t.o.Clock.Now()
	return func() { t.handled(status.PathCRI, call, t.o.Clock.Since(began)) }
}

// handled takes the duration of a call of a path.
func (t *Transports) handled(path, call string, d time.Duration) {
	m := t.o.Metrics
	m.Apply.WithLabelValues(path).Observe(d.Seconds())
	if d > Budget {
		m.SlowCalls.WithLabelValues(path, call).Inc()
	}
	if d < GuardTime {
		return
	}
	m.Failures.WithLabelValues(event.RuntimeCallSlow.String()).Inc()
	t.o.Status.Event(event.RuntimeCallSlow,
		"%s of the container runtime took %v: containers of pods that use Tenon are refused after %v, others go "+
			"on without an answer", call, d.Round(time.Millisecond), GuardTime)
}

// WhyDegraded says why LSE pods are to be refused; "" when they are not. Who is asked has a transport.
func (t *Transports) WhyDegraded() string {
	if reason, text := t.connections().degradation(); reason != noTransport {
		return text
	}
	return ""
}

// Needed reports whether containers need the agent to start: those whose pods name its plugin, as far as the runtime is
// not known to ignore that, and those for which a runtime proxy asks.
func (t *Transports) Needed() (named, proxied bool) {
	c := t.connections()
	ignored := c.attached || t.o.NRISocket == "" || c.runtime != nil && (c.unfenced || c.runtime.Old() != "")
	return !ignored, c.proxied
}

// IsUnasked reports whether containers start without the agent: then what happens to a pod is seen in the cgroup tree
// alone.
func (t *Transports) IsUnasked() bool {
	reason, _ := t.connections().degradation()
	return reason == noTransport
}

// Report sets the condition EnforcementDegraded. It is False for an agent that writes no cpusets; an agent that has not
// tried to connect yet does not change it, so that a restart is not reported.
func (t *Transports) Report(ctx context.Context, writes bool) error {
	if t.o.NRISocket != "" && !t.connections().tried() {
		return nil
	}
	reason, text := "", ""
	if writes {
		reason, text = t.connections().degradation()
	}
	if reason == "" {
		return t.o.Status.Set(ctx, event.EnforcementDegraded, false, "Enforced",
			"no container starts without the agent")
	}
	if t.o.AllowDegraded {
		reason = annotation.DegradedAllowed
	}
	return t.o.Status.Set(ctx, event.EnforcementDegraded, true, reason, text)
}

// noTransport is the reason while containers start without the agent: no runtime or proxy asks it.
const noTransport = "NoTransport"

// connections are what is connected.
type connections struct {
	runtime  *Runtime // the one that is connected by NRI; nil while none is
	lost     string   // why none is; "" while one is, and before the first attempt
	unfenced bool     // it was seen not to check the annotation that names required plugins
	// proxied: a proxy that has asked is connected to the hooks' socket; hadProxy: one was.
	proxied, hadProxy bool
	attached          bool // a runtime of this process asks
}

// degradation says why it cannot be promised that no container starts without the agent: a reason and a sentence; ""
// for both when it can.
func (c connections) degradation() (reason, text string) {
	switch {
	case c.proxied || c.attached:
		return "", ""
	case c.runtime == nil:
		text = "neither NRI nor a runtime proxy is connected, cpusets follow after the start"
		if c.lost != "" {
			text += ": " + c.lost
		}
		return noTransport, text
	}
	if old := c.runtime.Old(); old != "" {
		return "OldRuntime", old
	}
	if c.unfenced {
		return "FenceDisabled", "the runtime does not check the annotation " + annotation.RequiredPlugins +
			": while the agent is not connected, " +
			"containers start without it; set default_validator.enable in the runtime's NRI configuration"
	}
	return "", ""
}

// tried reports whether it is known how containers come by the agent.
func (c connections) tried() bool {
	return c.attached || c.hadProxy || c.runtime != nil || c.lost != ""
}

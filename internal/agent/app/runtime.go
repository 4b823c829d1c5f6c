package app

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/criproxy/socket"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/hookserver"
	"github.com/tenon-project/tenon/internal/agent/nri"
	"github.com/tenon-project/tenon/internal/agent/status"
)

// runtimeFlags are about the container runtime.
type runtimeFlags struct {
	nriSocket, hookSocket, cgroupRoot string
	allowDegraded                     bool
}

func (f *runtimeFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.nriSocket, "nri-socket", "/var/run/nri/nri.sock",
		"NRI socket of the container runtime; empty to not connect")
	fs.StringVar(&f.hookSocket, "hook-socket", "/run/tenon/hooks.sock",
		"socket on which tenon-runtime-proxy asks; empty to not listen")
	fs.StringVar(&f.cgroupRoot, "cgroup-root", "",
		"cgroup below which the kubelet keeps its pods, like its own cgroupRoot (default: what the kubelet says, "+
			"else /)")
	fs.BoolVar(&f.allowDegraded, "allow-degraded-enforcement", false,
		"let LSE pods start where containers may start without the agent: on old runtimes, or without fences")
}

// wire puts the flags into options, and refuses what cannot be meant.
func (f *runtimeFlags) wire(o *Options) error {
	for _, s := range []struct {
		flag, value string
		to          *string
	}{{"--nri-socket", f.nriSocket, &o.NRISocket}, {"--hook-socket", f.hookSocket, &o.HookSocket}} {
		if s.value == "" {
			continue
		}
		at, err := socket.Path(s.value)
		if err != nil {
			return fmt.Errorf("%s: %w", s.flag, err)
		}
		*s.to = at
	}
	if o.NRISocket != "" && o.NRISocket == o.HookSocket {
		return errors.New(
			"--nri-socket and --hook-socket are one file: the one is the runtime's, the other the agent's own")
	}
	if f.cgroupRoot != "" && (!path.IsAbs(f.cgroupRoot) || path.Clean(f.cgroupRoot) != f.cgroupRoot) {
		return fmt.Errorf("--cgroup-root %q: want an absolute path such as / or /pods, as the kubelet's cgroupRoot",
			f.cgroupRoot)
	}
	o.CgroupRoot, o.AllowDegraded = f.cgroupRoot, f.allowDegraded
	return nil
}

// noTransport is the reason while containers start without the agent: no runtime or proxy asks it.
const noTransport = "NoTransport"

// transports is how containers come by the agent before they start.
type transports struct {
	mu sync.Mutex // guards the fields below
	// runtime is the one that is connected by NRI; nil while none is. proxied: a proxy that has asked is connected to
	// the hooks' socket; hadProxy: one was.
	runtime           *nri.Runtime
	proxied, hadProxy bool
	attached          bool // a runtime of this process asks
	// unfenced: the runtime was seen not to check the annotation that names required plugins.
	unfenced bool
	lost     error // why NRI is not connected; nil while it is, and before the first attempt
}

// degradation says why it cannot be promised that no container starts without the agent: a reason and a sentence; ""
// for both when it can.
func (t *transports) degradation() (reason, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.proxied || t.attached:
		return "", ""
	case t.runtime == nil && t.lost != nil:
		return noTransport, "neither NRI nor a runtime proxy is connected, cpusets follow after the start: " +
			t.lost.Error()
	case t.runtime == nil:
		return noTransport, "neither NRI nor a runtime proxy is connected, cpusets follow after the start"
	}
	if old := t.runtime.Old(); old != "" {
		return "OldRuntime", old
	}
	if t.unfenced {
		return "FenceDisabled", "the runtime does not check the annotation " + annotation.RequiredPlugins +
			": while the agent is not connected, " +
			"containers start without it; set default_validator.enable in the runtime's NRI configuration"
	}
	return "", ""
}

// Attach connects a container runtime of this process: it asks the service that it gets once that is ready, as NRI and
// the runtime proxy do. It may be called from the time of New on.
func (a *Agent) Attach() *hook.Service {
	a.transports.mu.Lock()
	defer a.transports.mu.Unlock()
	a.transports.attached = true
	return a.service
}

// serveNRI keeps the agent connected to the container runtime until ctx ends.
func (a *Agent) serveNRI(ctx context.Context) error {
	if a.o.NRISocket == "" {
		return nil
	}
	log := klog.FromContext(ctx).WithName("nri")
	client := nri.New(nri.Options{
		Socket: a.o.NRISocket, Handler: a.service, Pushes: a.service, Ready: a.service.Ready, Clock: a.o.Clock,
		Connected: func(r nri.Runtime) {
			log.Info("Connected to the container runtime", "runtime", r.Name, "version", r.Version)
			a.transports.connect(r)
			a.o.Shared.Metrics.Connected.WithLabelValues(status.PathNRI).Set(1)
			a.touch()
		},
		Disconnected: func(err error) { a.lost(ctx, err) },
		Timed:        a.handled(status.PathNRI),
		Fenced: func(yes bool) {
			if a.transports.fence(yes) {
				a.touch()
			}
		},
	})
	return client.Run(ctx)
}

// hookRetry is the time between two attempts to listen for a runtime proxy.
const hookRetry = 5 * time.Second

// serveHooks answers a runtime proxy until ctx ends. A socket that cannot be used is reported and retried: an agent
// without a proxy does not need it.
func (a *Agent) serveHooks(ctx context.Context) error {
	if a.o.HookSocket == "" {
		return nil
	}
	server, err := hookserver.New(hookserver.Options{
		Socket: a.o.HookSocket, Handler: a.service, Asked: a.asked,
		Left: a.proxyLeft,
	})
	if err != nil {
		return err
	}
	reported := ""
	for ctx.Err() == nil {
		err := server.Run(ctx)
		if err == nil {
			return nil
		}
		a.o.Shared.Metrics.Failures.WithLabelValues(status.HookSocketUnusable).Inc()
		if text := err.Error(); text != reported {
			reported = text
			a.status.Warn(status.HookSocketUnusable, "a runtime proxy cannot ask: %s", text)
		}
		select {
		case <-a.o.Clock.After(hookRetry):
		case <-ctx.Done():
		}
	}
	return nil
}

// asked notes that a runtime proxy asks, and returns what is to be called when it has its answer.
func (a *Agent) asked(call string) (answered func()) {
	if a.transports.proxy() {
		a.o.Shared.Metrics.Connected.WithLabelValues(status.PathCRI).Set(1)
		a.touch()
	}
	began := a.o.Clock.Now()
	return func() { a.handled(status.PathCRI)(call, a.o.Clock.Since(began)) }
}

// tried reports whether it is known how containers come by the agent.
func (t *transports) tried() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attached || t.hadProxy || t.runtime != nil || t.lost != nil
}

// proxy notes that a proxy asks, and reports whether that is news.
func (t *transports) proxy() (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news = !t.proxied
	t.proxied, t.hadProxy = true, true
	return news
}

// unproxy notes that no proxy is connected, and reports whether that is news.
func (t *transports) unproxy() (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news = t.proxied
	t.proxied = false
	return news
}

// proxyLeft notes that no proxy is connected any more: containers may start without the agent again.
func (a *Agent) proxyLeft() {
	if a.transports.unproxy() {
		a.o.Shared.Metrics.Connected.WithLabelValues(status.PathCRI).Set(0)
		a.touch()
	}
}

func (t *transports) connect(r nri.Runtime) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runtime, t.lost = &r, nil
}

// fence takes whether the runtime checks required plugins, and reports whether that is news.
func (t *transports) fence(checked bool) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news = t.unfenced == checked
	t.unfenced = !checked
	return news
}

// disconnect reports whether the plugin was connected, or had failed for another cause.
func (t *transports) disconnect(err error) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news = t.runtime != nil || t.lost == nil || t.lost.Error() != err.Error()
	t.runtime, t.lost = nil, err
	return news
}

// lost reports, once per cause, that the runtime is not connected.
func (a *Agent) lost(ctx context.Context, err error) {
	m := a.o.Shared.Metrics
	m.Connected.WithLabelValues(status.PathNRI).Set(0)
	m.Failures.WithLabelValues(status.NRIDisconnected).Inc()
	if !a.transports.disconnect(err) {
		return
	}
	klog.FromContext(ctx).Info("No NRI connection to the container runtime, will try again", "socket", a.o.NRISocket,
		"err", err)
	a.status.Warn(status.NRIDisconnected, "the container runtime is not connected by NRI at %s: %v", a.o.NRISocket, err)
	a.touch()
}

// handled returns a function that takes the durations of the calls of a path.
func (a *Agent) handled(path string) func(call string, d time.Duration) {
	return func(call string, d time.Duration) {
		m := a.o.Shared.Metrics
		m.Apply.WithLabelValues(path).Observe(d.Seconds())
		if d > nri.Budget {
			m.SlowCalls.WithLabelValues(path, call).Inc()
		}
		if d < nri.GuardTime {
			return
		}
		m.Failures.WithLabelValues(status.RuntimeCallSlow).Inc()
		a.status.Warn(status.RuntimeCallSlow,
			"%s of the container runtime took %v: containers of pods that use Tenon are refused after %v, others go "+
				"on without an answer",
			call, d.Round(time.Millisecond), nri.GuardTime)
	}
}

// whyDegraded says why LSE pods are to be refused; "" when they are not. Who is asked has a transport.
func (a *Agent) whyDegraded() string {
	if reason, text := a.transports.degradation(); reason != noTransport {
		return text
	}
	return ""
}

// reportDegraded sets the condition EnforcementDegraded. It is False for an agent that writes no cpusets; an agent that
// has not tried to connect yet does not change it, so that a restart is not reported.
func (a *Agent) reportDegraded(ctx context.Context) error {
	if a.o.NRISocket != "" && !a.transports.tried() {
		return nil
	}
	reason, text := "", ""
	if a.writes() {
		reason, text = a.transports.degradation()
	}
	if reason == "" {
		return a.status.Set(ctx, status.EnforcementDegraded, false, "Enforced", "no container starts without the agent")
	}
	if a.o.AllowDegraded {
		reason = annotation.DegradedAllowed
	}
	return a.status.Set(ctx, status.EnforcementDegraded, true, reason, text)
}

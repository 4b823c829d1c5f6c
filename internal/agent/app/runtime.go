package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/nri"
	"github.com/tenon-project/tenon/internal/agent/report"
)

// transports is how containers come by the agent before they start.
type transports struct {
	mu sync.Mutex // guards the fields below
	// runtime is the one that is connected by NRI; nil while none is. proxied: a proxy asks through the hooks' socket.
	runtime *nri.Runtime
	proxied bool
	// unfenced: the runtime was seen not to check the annotation that names required plugins.
	unfenced bool
	lost     error // why NRI is not connected; nil while it is, and before the first attempt
}

// degradation says why it cannot be promised that no container starts without the agent: a reason and a sentence; "" for
// both when it can.
func (t *transports) degradation() (reason, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.proxied:
		return "", ""
	case t.runtime == nil && t.lost != nil:
		return "NoTransport", "neither NRI nor a runtime proxy is connected, cpusets follow after the start: " + t.lost.Error()
	case t.runtime == nil:
		return "NoTransport", "neither NRI nor a runtime proxy is connected, cpusets follow after the start"
	}
	if old := t.runtime.Old(); old != "" {
		return "OldRuntime", old
	}
	if t.unfenced {
		return "FenceDisabled", "the runtime does not check the annotation " + annotation.RequiredPlugins + ": while the agent is not connected, " +
			"containers start without it; set default_validator.enable in the runtime's NRI configuration"
	}
	return "", ""
}

// serveRuntimes connects the agent to the container runtime until ctx ends.
func (a *Agent) serveRuntimes(ctx context.Context) error {
	if a.o.NRISocket == "" {
		return nil
	}
	log := klog.FromContext(ctx).WithName("nri")
	client := nri.New(nri.Options{
		Socket: a.o.NRISocket, Handler: a.service, Pushes: a.service, Ready: a.handlesContainers, Clock: a.o.Clock,
		Connected: func(r nri.Runtime) {
			log.Info("Connected to the container runtime", "runtime", r.Name, "version", r.Version)
			a.transports.connect(r)
			a.o.Shared.Metrics.connected.WithLabelValues(pathNRI).Set(1)
			a.touch()
		},
		Disconnected: func(err error) { a.lost(ctx, err) },
		Timed:        a.handled(pathNRI),
		Fenced: func(yes bool) {
			if a.transports.fence(yes) {
				a.touch()
			}
		},
	})
	return client.Run(ctx)
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

// lost tells, once per cause, that the runtime is not connected.
func (a *Agent) lost(ctx context.Context, err error) {
	m := a.o.Shared.Metrics
	m.connected.WithLabelValues(pathNRI).Set(0)
	m.failures.WithLabelValues(nriDisconnected).Inc()
	if !a.transports.disconnect(err) {
		return
	}
	klog.FromContext(ctx).Info("No NRI connection to the container runtime, will try again", "socket", a.o.NRISocket, "err", err)
	a.emitNode(report.Event{
		Warning: true, Reason: nriDisconnected,
		Note: fmt.Sprintf("the container runtime is not connected by NRI at %s: %v", a.o.NRISocket, err),
	})
	a.touch()
}

// nriDisconnected is the reason of the Event, and the code, of a lost NRI connection.
const nriDisconnected = "NRIDisconnected"

// handled returns what hears how long the calls of a path took.
func (a *Agent) handled(path string) func(call string, d time.Duration, over bool) {
	return func(call string, d time.Duration, over bool) {
		m := a.o.Shared.Metrics
		m.apply.WithLabelValues(path).Observe(d.Seconds())
		if over {
			m.slow.WithLabelValues(path, call).Inc()
		}
	}
}

// handlesContainers reports whether the agent can answer a runtime.
func (a *Agent) handlesContainers() bool {
	a.mu.Lock()
	err := a.applied
	a.mu.Unlock()
	return err == nil && a.service.Ready()
}

// whyDegraded says why LSE pods are to be refused; "" when they are not.
func (a *Agent) whyDegraded() string {
	_, text := a.transports.degradation()
	return text
}

// tellDegraded keeps the condition EnforcementDegraded. An agent that writes no cpusets promises nothing.
func (a *Agent) tellDegraded(ctx context.Context) error {
	reason, text := "", ""
	if a.o.NRISocket != "" || a.o.HookSocket != "" {
		if reason, text = a.transports.degradation(); !a.writes() {
			reason, text = "", ""
		}
	}
	if reason == "" {
		return a.conditions.set(ctx, EnforcementDegraded, false, "Enforced", "no container starts without the agent")
	}
	return a.conditions.set(ctx, EnforcementDegraded, true, reason, text)
}

// trouble tells of a container that was held back, or should have been.
func (a *Agent) trouble(t hook.Trouble) {
	code := t.Err.Cause.Error()
	a.o.Shared.Metrics.failures.WithLabelValues(code).Inc()
	note := "container %q does not start: %s"
	if t.LetPass {
		note = "container %q starts all the same, as its pod uses nothing of Tenon: %s"
	}
	a.event(podObject(t.Namespace, t.Name, types.UID(t.UID)), true, code, "Start", note, t.Container, t.Err.Detail)
}

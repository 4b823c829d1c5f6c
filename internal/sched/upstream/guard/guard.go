package guard

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Name is the name of the plugin that holds pods before the queue.
const Name = "PluginGuard"

const (
	// attemptsFree is how many attempts on a pod may panic before it is held.
	attemptsFree = 2
	// heldFor is how long a pod is held after a panic. It is not longer than the queue keeps a pod by default before it
	// tries the pod again.
	heldFor = 5 * time.Minute
	// podsKept bounds the pods that are remembered; the ones that have not panicked for longest are forgotten.
	podsKept = 1024
)

// Guard catches the panics of plugins. Any goroutine may call its methods.
type Guard struct {
	now    func() time.Time
	panics *metrics.CounterVec

	mu   sync.Mutex // guards pods and what it has
	pods *lru.Cache // types.UID → *record
}

// record is what a Guard knows of a pod about which a plugin panicked.
type record struct {
	last *Panic
	at   time.Time // of last
	// attempts are those that have ended and in which a plugin panicked. open is true while one has not ended.
	attempts int
	open     bool
}

// New returns a guard with metrics.
func New(register func(...metrics.Registerable), now func() time.Time) *Guard {
	g := &Guard{now: now, pods: lru.New(podsKept), panics: metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "tenon_plugin_panics_total", Help: "Panics of plugins, by plugin and extension point.",
	}, []string{"plugin", "extension_point"})}
	register(g.panics)
	return g
}

// Panic is the error of a status in place of one that a plugin did not return.
type Panic struct {
	Plugin, Point string // Point is the method of the plugin
	Pod           string // namespace/name
	Cause         any    // what the plugin panicked with
}

// Error names plugin, extension point and pod.
func (p *Panic) Error() string {
	return fmt.Sprintf("plugin %s panicked in %s for pod %s: %v", p.Plugin, p.Point, p.Pod, p.Cause)
}

// Finding returns the reason, for explanations.
func (p *Panic) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: why.PluginFailed}, Plugin: p.Plugin, Detail: p.Error()}
}

// held is why a pod is held before the queue.
type held struct {
	*Panic
	attempts int
	until    time.Time
}

// Error says until when.
func (h *held) Error() string {
	return fmt.Sprintf("%v; held back until %s after %d such attempts", h.Panic, h.until.UTC().Format(time.RFC3339),
		h.attempts)
}

// Finding returns the reason, for explanations.
func (h *held) Finding() why.Finding {
	return why.Finding{Reason: why.Reason{Code: why.PluginFailed}, Plugin: h.Plugin, Detail: h.Error()}
}

// point is a plugin at an extension point.
type point struct {
	guard        *Guard
	plugin, name string
}

// at returns a plugin at an extension point.
func (g *Guard) at(p fwk.Plugin, name string) point { return point{g, p.Name(), name} }

// caught ends a panic of the plugin in an error status. It is deferred around each call of the plugin.
func (p *point) caught(ctx context.Context, pod *corev1.Pod, status **fwk.Status) {
	if cause := recover(); cause != nil {
		*status = fwk.AsStatus(p.guard.panicked(ctx, p, pod, cause))
	}
}

// logged ends a panic of the plugin where it returns no status.
func (p *point) logged(ctx context.Context, pod *corev1.Pod) {
	if cause := recover(); cause != nil {
		_ = p.guard.panicked(ctx, p, pod, cause) // has logged and counted it
	}
}

// panicked counts a panic, and logs the first one of an attempt: a filter is asked about each node.
func (g *Guard) panicked(ctx context.Context, at *point, pod *corev1.Pod, cause any) error {
	stack := debug.Stack()
	if c, ok := cause.(continued); ok {
		cause, stack = c.cause, c.stack
	}
	p := &Panic{at.plugin, at.name, klog.KObj(pod).String(), cause}
	g.panics.WithLabelValues(p.Plugin, p.Point).Inc()
	g.mu.Lock()
	r := g.record(pod.UID)
	if r == nil {
		r = &record{}
		g.pods.Add(pod.UID, r)
	}
	first := !r.open
	r.last, r.at, r.open = p, g.now(), true
	g.mu.Unlock()
	if first {
		klog.FromContext(ctx).Error(p, "Plugin panicked", "pod", klog.KObj(pod), "plugin", p.Plugin,
			"extensionPoint", p.Point, "stack", string(stack))
	}
	return p
}

// record returns what is known of a pod, nil for nothing. The caller holds mu.
func (g *Guard) record(uid types.UID) *record {
	r, _ := g.pods.Get(uid)
	known, _ := r.(*record)
	return known
}

// gate is the PreEnqueue plugin that reports which pods are held.
type gate struct{ *Guard }

// Name returns the plugin's name.
func (gate) Name() string { return Name }

// PreEnqueue refuses a pod that is held.
func (g gate) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.record(pod.UID)
	if r == nil || r.attempts < attemptsFree || !g.now().Before(r.at.Add(heldFor)) {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&held{r.last, r.attempts, r.at.Add(heldFor)})
}

// queueGate is the gate of the queue, which asks when an attempt has ended.
type queueGate struct{ gate }

// PreEnqueue ends the attempt on a pod and refuses a pod that is held.
func (g queueGate) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	g.mu.Lock()
	if r := g.record(pod.UID); r != nil && r.open {
		r.attempts, r.open = r.attempts+1, false
	}
	g.mu.Unlock()
	return g.gate.PreEnqueue(ctx, pod)
}

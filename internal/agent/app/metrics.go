package app

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/hook"
)

// Metrics of the agents of one process.
type Metrics struct {
	apply    *metrics.HistogramVec
	drift    *metrics.CounterVec
	failures *metrics.CounterVec
	writes   *metrics.CounterVec
	// connected and slow are about container runtimes.
	connected *metrics.GaugeVec
	slow      *metrics.CounterVec
	machines  *metrics.Counter
	// What befell the agent and those that it works with.
	uncleanEnds, refused, unreachable, kubeletStarts, overridden *metrics.Counter

	age *ages
}

func newMetrics() *Metrics {
	return &Metrics{
		apply: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "tenon_agent_apply_seconds",
			Help: "Time to bring cgroup values in order, by path: nri (one call of the container runtime), " +
				"cri (one question of its proxy) or reconcile (all containers of the node).",
			Buckets:        metrics.ExponentialBuckets(1e-4, 4, 8),
			StabilityLevel: metrics.ALPHA,
		}, []string{"path"}),
		drift: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "tenon_agent_drift_total",
			Help:           "Values of the cgroup tree that something else changed, by kind.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"kind"}),
		failures: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "tenon_agent_enforcement_failures_total",
			Help:           "Containers held back and values that could not be set, by code.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"code"}),
		writes: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "tenon_agent_condition_writes_total",
			Help:           "Writes of Node conditions, by condition.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"condition"}),
		connected: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "tenon_agent_runtime_connected",
			Help: "1 while a container runtime is connected by NRI, or a proxy that has asked, by path: " +
				"nri or cri.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"path"}),
		slow: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "tenon_agent_slow_calls_total",
			Help:           "Calls of a container runtime that took longer than 50 ms, by path and call.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"path", "call"}),
		machines: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "tenon_agent_machine_changes_total",
			Help:           "Times that CPUs or NUMA nodes came or went while the agent ran.",
			StabilityLevel: metrics.ALPHA,
		}),
		uncleanEnds: metrics.NewCounter(&metrics.CounterOpts{
			Name: "tenon_agent_unclean_ends_total",
			Help: "Times that agents of this node ended without being stopped, since the first one that " +
				"kept its state here.",
			StabilityLevel: metrics.ALPHA,
		}),
		refused: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "tenon_agent_refused_agents_total",
			Help:           "Other agents that wanted to work on this machine and were refused.",
			StabilityLevel: metrics.ALPHA,
		}),
		unreachable: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "tenon_agent_api_unreachable_seconds_total",
			Help:           "Time for which the API server did not answer the agent; it grows while that lasts.",
			StabilityLevel: metrics.ALPHA,
		}),
		kubeletStarts: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "tenon_agent_kubelet_restarts_total",
			Help:           "Times that the kubelet made its PodResources socket anew while the agent ran.",
			StabilityLevel: metrics.ALPHA,
		}),
		overridden: metrics.NewCounter(&metrics.CounterOpts{
			Name: "tenon_agent_overridden_updates_total",
			Help: "Updates of containers that the runtime was asked for and that the agent answered with " +
				"other values, as those of a static kubelet.",
			StabilityLevel: metrics.ALPHA,
		}),
		age: newAges(),
	}
}

// Register makes the metrics known to a registry, those that count at zero.
func (m *Metrics) Register(register func(...metrics.Registerable), registerCollector func(...metrics.StableCollector)) {
	register(m.apply, m.drift, m.failures, m.writes, m.connected, m.slow, m.machines,
		m.uncleanEnds, m.refused, m.unreachable, m.kubeletStarts, m.overridden)
	registerCollector(m.age)
	for _, path := range []string{pathNRI, pathCRI, pathReconcile} {
		m.apply.WithLabelValues(path)
	}
	for _, path := range []string{pathNRI, pathCRI} {
		m.connected.WithLabelValues(path)
	}
	for _, kind := range []apply.Kind{apply.Drifted, apply.EffectiveWiderThanDesired} {
		m.drift.WithLabelValues(kind.String())
	}
	for _, code := range failureCodes() {
		m.failures.WithLabelValues(code)
	}
}

// Values of the label path: calls of a container runtime by NRI, those of its proxy, and passes over the whole tree.
const (
	pathNRI       = "nri"
	pathCRI       = "cri"
	pathReconcile = "reconcile"
)

// failureCodes are the values of the label code.
func failureCodes() []string {
	codes := []string{apply.EnforcementFailed.String(), apply.CheckpointLost.String(), apply.AllocationRefused.String()}
	codes = append(codes, nriDisconnected, hookSocketUnusable, runtimeCallSlow)
	for _, cause := range []error{
		apply.ErrHandOverPending, apply.ErrUnallocated, apply.ErrUnknownPod, apply.ErrMalformed, apply.ErrNotReady,
		hook.ErrDegraded,
	} {
		codes = append(codes, cause.Error())
	}
	return codes
}

// ages is the gauge tenon_topology_age_seconds: each agent returns its own when it is read.
type ages struct {
	metrics.BaseStableCollector
	desc *metrics.Desc

	mu     sync.Mutex // guards byNode
	byNode map[string]func() (time.Duration, bool)
}

func newAges() *ages {
	return &ages{
		desc: metrics.NewDesc("tenon_topology_age_seconds",
			"Time since the published topology was last known to be up to date.", []string{"node"}, nil, metrics.ALPHA,
			""),
		byNode: map[string]func() (time.Duration, bool){},
	}
}

// track adds a node until the returned function is called.
func (a *ages) track(node string, age func() (time.Duration, bool)) (forget func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byNode[node] = age
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.byNode, node)
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (a *ages) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- a.desc }

// CollectWithStability implements metrics.StableCollector.
func (a *ages) CollectWithStability(ch chan<- metrics.Metric) {
	a.mu.Lock()
	known := make(map[string]time.Duration, len(a.byNode))
	for node, age := range a.byNode {
		if d, ok := age(); ok {
			known[node] = d
		}
	}
	a.mu.Unlock()
	for node, d := range known {
		ch <- metrics.NewLazyConstMetric(a.desc, metrics.GaugeValue, d.Seconds(), node)
	}
}

package status

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/component-base/metrics"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/besteffort"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// Metrics of the agents of one process.
type Metrics struct {
	Apply                            *metrics.HistogramVec
	Drift, Failures, ConditionWrites *metrics.CounterVec
	// Connected and SlowCalls are about container runtimes.
	Connected *metrics.GaugeVec
	SlowCalls *metrics.CounterVec
	// Health and Transitions are about devices: see ShowDevices.
	Health      *metrics.GaugeVec
	Transitions *metrics.CounterVec
	// Injection and the rest are about the devices of containers. Caught is counted where a fence held.
	Injection                     *metrics.HistogramVec
	Mismatch, Caught, Disconnects *metrics.CounterVec
	Foreign                       *metrics.GaugeVec
	// Evictions counts best-effort pods.
	Evictions *metrics.CounterVec
	// UsedCPU and UsedMemory are what nodes use.
	UsedCPU, UsedMemory *metrics.GaugeVec
	// Throttled counts the time in which pods were at their CPU limits.
	Throttled *metrics.CounterVec
	// MachineChanges and the rest count what happened to the agent and to what it works with.
	MachineChanges, UncleanEnds, Refused, Unreachable, KubeletStarts, Overridden *metrics.Counter
	// Age is when each node's topology was last known to be up to date.
	Age *Ages
}

func newCounter(name, help string) *metrics.Counter {
	return metrics.NewCounter(&metrics.CounterOpts{Name: name, Help: help})
}

func newCounters(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help}, labels)
}

func newGauges(name, help string, labels ...string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help}, labels)
}

// NewMetrics returns metrics that are not registered anywhere.
func NewMetrics() *Metrics {
	return &Metrics{
		Apply: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "tenon_agent_apply_seconds",
			Help: "Time to bring cgroup values in order, by path: nri (one call of the container runtime), " +
				"cri (one question of its proxy) or reconcile (all containers of the node).",
			Buckets: metrics.ExponentialBuckets(1e-4, 4, 8),
		}, []string{"path"}),
		Drift: newCounters("tenon_agent_drift_total", "Values of the cgroup tree that another program changed, and "+
			"running containers that can use devices of others, by kind.", "kind"),
		Failures: newCounters("tenon_agent_enforcement_failures_total", "Containers held back and values that could "+
			"not be set, by code.", "code"),
		ConditionWrites: newCounters("tenon_agent_condition_writes_total", "Writes of Node conditions, by "+
			"condition.", "condition"),
		Connected: newGauges("tenon_agent_runtime_connected", "1 while a container runtime is connected by NRI, or a "+
			"proxy that has asked, by path: nri or cri.", "path"),
		SlowCalls: newCounters("tenon_agent_slow_calls_total", "Calls of a container runtime that took longer than 50 "+
			"ms, by path and call.", "path", "call"),
		Health: newGauges("tenon_device_health", "1 for a device of the node that works, 0 for one that does not, by "+
			"type, id and the reason of its condition: of one that works, why it is likely to fail; empty without "+
			"one.", "node", "type", "id", "reason"),
		Transitions: newCounters("tenon_device_health_transitions_total", "Times that a device of the node stopped "+
			"working, by type, id and reason, or works again; then the reason is empty or why it is likely to "+
			"fail.", "node", "type", "id", "reason"),
		Injection: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name:    "tenon_device_injection_seconds",
			Help:    "Time to decide which devices a container of a node with devices is created with.",
			Buckets: metrics.ExponentialBuckets(1e-5, 4, 10),
		}, []string{"node"}),
		Mismatch: newCounters("tenon_device_allocation_mismatch_total", "Times that allocations of devices were "+
			"contradicted, by source: kernel (a running container can use devices of others), PodResources (the "+
			"kubelet does not report the holders) or NVML (a pod's processes use more memory of a GPU).",
			"node", "source"),
		Caught: newCounters("tenon_device_failopen_total", "Containers that the runtime was about to create with "+
			"devices of others, and that the agent's validation refused.", "node"),
		Disconnects: newCounters("tenon_device_nri_disconnects_total", "Times that the agent lost the container "+
			"runtime or could not connect to it; consecutive equal causes count once.", "node"),
		Foreign: newGauges("tenon_device_foreign_devices", "Devices of the node that another program than Tenon's "+
			"scheduler has allocated.", "node"),
		UsedCPU: newGauges("tenon_node_used_cpus", "Used CPUs, by user: all, pods or system (processes of no pod and "+
			"no application of NodeSLO).", "node", "by"),
		UsedMemory: newGauges("tenon_node_used_memory_bytes", "Used memory without page cache, by user: all, pods or "+
			"system.", "node", "by"),
		Throttled: newCounters("tenon_pods_throttled_seconds_total", "Time in which containers of pods were throttled "+
			"at their CPU limits, by class: LSE, LSR, LS, BE, SYSTEM or none.", "node", "class"),
		Evictions: newCounters("tenon_agent_evictions_total", "Evictions of best-effort pods, by cause (memory, "+
			"cpu-satisfaction or device-memory) and outcome (evicted or failed).", "cause", "outcome"),
		MachineChanges: newCounter("tenon_agent_machine_changes_total", "Times that CPUs or NUMA nodes appeared or "+
			"disappeared while the agent ran."),
		UncleanEnds: newCounter("tenon_agent_unclean_ends_total", "Times that agents of this node ended without being "+
			"stopped, since the first one that kept its state here."),
		Refused: newCounter("tenon_agent_refused_agents_total", "Other agents that tried to start on this machine "+
			"and were refused."),
		Unreachable: newCounter("tenon_agent_api_unreachable_seconds_total", "Time during which the API server did "+
			"not answer the agent; it grows while this lasts."),
		KubeletStarts: newCounter("tenon_agent_kubelet_restarts_total", "Times that the kubelet recreated its "+
			"PodResources socket while the agent ran."),
		Overridden: newCounter("tenon_agent_overridden_updates_total", "Updates of containers that the agent "+
			"answered with other values, such as those of a static kubelet."),
		Age: &Ages{
			desc: metrics.NewDesc("tenon_topology_age_seconds",
				"Time since the published topology was last known to be up to date.", []string{"node"}, nil,
				metrics.ALPHA, ""),
			byNode: map[string]func() (time.Duration, bool){},
		},
	}
}

// RegisterInfo makes metrics say which version of the agent runs with which configuration.
func RegisterInfo(register func(...metrics.Registerable), version, hash string) {
	build := newGauges("tenon_build_info", "1, with the version of the binary.", "component", "version")
	inForce := newGauges("tenon_config_info", "1, with a hash of the configuration in force.", "component", "hash")
	register(build, inForce)
	build.WithLabelValues(Controller, version).Set(1)
	inForce.WithLabelValues(Controller, hash).Set(1)
}

// Register makes the metrics known to a registry, those that count at zero.
func (m *Metrics) Register(register func(...metrics.Registerable), registerCollector func(...metrics.StableCollector)) {
	register(m.Apply, m.Drift, m.Failures, m.ConditionWrites, m.Connected, m.SlowCalls, m.MachineChanges,
		m.Health, m.Transitions, m.UncleanEnds, m.Refused, m.Unreachable, m.KubeletStarts, m.Overridden,
		m.Injection, m.Mismatch, m.Caught, m.Disconnects, m.Foreign, m.UsedCPU, m.UsedMemory, m.Throttled,
		m.Evictions)
	registerCollector(m.Age)
	for _, path := range []string{PathNRI, PathCRI, PathReconcile} {
		m.Apply.WithLabelValues(path)
	}
	for _, path := range []string{PathNRI, PathCRI} {
		m.Connected.WithLabelValues(path)
	}
	for _, cause := range []besteffort.Cause{
		besteffort.Memory, besteffort.CPUSatisfaction, besteffort.DeviceMemory,
	} {
		m.Evictions.WithLabelValues(string(cause), outcomeEvicted)
		m.Evictions.WithLabelValues(string(cause), outcomeFailed)
	}
	for _, kind := range []event.Reason{event.Drifted, event.EffectiveWiderThanDesired, event.DeviceMismatch} {
		m.Drift.WithLabelValues(kind.String())
	}
	for _, code := range []event.Reason{
		event.EnforcementFailed, event.CheckpointLost, event.AllocationRefused, event.NRIDisconnected,
		event.HookSocketUnusable, event.RuntimeCallSlow, event.CPUHandOverPending, event.UnallocatedExclusivePod,
		event.UnknownPod, event.BadAnnotation, event.AgentNotReady, event.EnforcementDegraded,
		event.UnallocatedDevicePod, event.DeviceUnavailable, event.DeviceConflict,
	} {
		m.Failures.WithLabelValues(code.String())
	}
}

// ShowDevices makes the metrics of a node's devices say what is instead of what was.
func (m *Metrics) ShowDevices(node string, before, now []devicev1alpha1.DeviceInfo) {
	worked := map[[2]string]bool{}
	for _, d := range before {
		worked[[2]string{d.Type, d.ID}] = d.Health
		m.Health.DeleteLabelValues(node, d.Type, d.ID, reasonOf(d))
	}
	for _, d := range now {
		value, labels := 0.0, []string{node, d.Type, d.ID, reasonOf(d)}
		if d.Health {
			value = 1
		}
		m.Health.WithLabelValues(labels...).Set(value)
		if before, known := worked[[2]string{d.Type, d.ID}]; known && before != d.Health {
			m.Transitions.WithLabelValues(labels...).Inc()
		}
	}
}

// ShowUse makes the metrics say what a node uses. user is all, pods or system.
func (m *Metrics) ShowUse(node, user string, milliCPU, memoryBytes int64) {
	m.UsedCPU.WithLabelValues(node, user).Set(float64(milliCPU) / 1000)
	m.UsedMemory.WithLabelValues(node, user).Set(float64(memoryBytes))
}

// AddThrottled counts time in which a pod of a class was at its CPU limits.
func (m *Metrics) AddThrottled(node string, class qos.Class, time time.Duration) {
	name := class.String()
	if class == qos.None {
		name = "none"
	}
	m.Throttled.WithLabelValues(node, name).Add(time.Seconds())
}

// reasonOf is why a device does not work, or is likely to fail; "" where neither is so.
func reasonOf(d devicev1alpha1.DeviceInfo) string {
	condition := devicev1alpha1.Healthy
	if d.Health {
		condition = devicev1alpha1.Degraded
	}
	if c := meta.FindStatusCondition(d.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// Values of the label source: where an allocation of devices was contradicted.
const (
	SourceKernel       = "kernel"
	SourcePodResources = "PodResources"
	SourceNVML         = "NVML"
)

// Values of the label path: calls of a container runtime by NRI, those of its proxy, and passes over the whole tree.
const (
	PathNRI       = "nri"
	PathCRI       = "cri"
	PathReconcile = "reconcile"
)

// Ages is the gauge tenon_topology_age_seconds: each agent returns its own when it is read.
type Ages struct {
	metrics.BaseStableCollector
	desc *metrics.Desc

	mu     sync.Mutex // guards byNode
	byNode map[string]func() (time.Duration, bool)
}

// Track adds a node until the returned function is called.
func (a *Ages) Track(node string, age func() (time.Duration, bool)) (forget func()) {
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
func (a *Ages) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- a.desc }

// CollectWithStability implements metrics.StableCollector.
func (a *Ages) CollectWithStability(ch chan<- metrics.Metric) {
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

package describe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/event"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/view"
)

// NodeUse describes what a node uses by its NodeMetric, nil for none, with the requests of its pods.
func NodeUse(node *corev1.Node, metric *slo.NodeMetric, requested view.Room, now time.Time) view.NodeUse {
	all := node.Status.Allocatable
	out := view.NodeUse{
		Node: node.Name, ReportSeconds: -1,
		CPU: view.AmountUse{
			Allocatable: view.CPUText(all.Cpu().MilliValue()), Requested: view.CPUText(requested.MilliCPU),
			UsedPercent: -1,
		},
		Memory: view.AmountUse{
			Allocatable: view.BytesText(all.Memory().Value()), Requested: view.BytesText(requested.MemoryBytes),
			UsedPercent: -1,
		},
	}
	out.Suppressed = Suppression(node)
	if q, ok := all["kubernetes.io/batch-cpu"]; ok {
		out.CPU.Batch = view.CPUText(q.Value())
	}
	if q, ok := all["kubernetes.io/batch-memory"]; ok {
		out.Memory.Batch = measured(q.Value())
	}
	if metric == nil || metric.Status.UpdateTime == nil || metric.Status.NodeMetric == nil {
		return out
	}
	out.ReportSeconds = max(0, int64(now.Sub(metric.Status.UpdateTime.Time)/time.Second))
	addUse(&out.CPU, &out.Memory, metric.Status.NodeMetric.NodeUsage, all)
	if p95, ok := shortest(metric.Status.NodeMetric.AggregatedNodeUsages); ok {
		if q, ok := p95.Resources[corev1.ResourceCPU]; ok {
			out.CPU.P95 = measuredCPU(q.MilliValue())
		}
		if q, ok := p95.Resources[corev1.ResourceMemory]; ok {
			out.Memory.P95 = measured(q.Value())
		}
	}
	if r := metric.Status.ProdReclaimableMetric; r != nil {
		if q, ok := r.Resource.Resources[corev1.ResourceCPU]; ok {
			out.CPU.Reclaimable = view.CPUText(q.MilliValue())
		}
		if q, ok := r.Resource.Resources[corev1.ResourceMemory]; ok {
			out.Memory.Reclaimable = measured(q.Value())
		}
	}
	return out
}

// measuredCPU is a measured amount of CPU, to a hundredth of a CPU, or a tenth from 10 CPUs on.
func measuredCPU(milli int64) string {
	unit := int64(10)
	if milli >= 10_000 {
		unit = 100
	}
	return view.CPUText((milli + unit/2) / unit * unit)
}

// measured is an amount of memory that follows from measurements, in whole MiB, or GiB from 10 GiB on: to the byte it
// would be long and say no more.
func measured(bytes int64) string {
	unit := int64(1 << 20)
	if bytes >= 10<<30 {
		unit = 1 << 30
	}
	return view.BytesText(bytes / unit * unit)
}

// Suppression returns to what the best-effort pods of a node are suppressed, and why, by the condition that its agent
// writes; "" where they are not.
func Suppression(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if string(c.Type) == event.BestEffortSuppressed.Condition() && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// Eviction returns why a pod that ends was evicted by the agent of its node, by the condition that it writes; "" where
// it was not.
func Eviction(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Reason == event.BestEffortEvicted.String() {
			return "evicted: " + c.Message
		}
	}
	return ""
}

// shortest returns p95 over the shortest time that has one.
func shortest(all []slo.AggregatedUsage) (found slo.ResourceMap, ok bool) {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b slo.AggregatedUsage) int {
		return int(a.Duration.Seconds() - b.Duration.Seconds())
	})
	for _, u := range sorted {
		if found, ok = u.Usage[slo.P95]; ok {
			return found, true
		}
	}
	return found, false
}

// addUse adds what is used, and how much that is of all.
func addUse(cpu, memory *view.AmountUse, used slo.ResourceMap, all corev1.ResourceList) {
	if q, ok := used.Resources[corev1.ResourceCPU]; ok {
		cpu.Used, cpu.UsedPercent = measuredCPU(q.MilliValue()), view.PercentOf(q.MilliValue(), all.Cpu().MilliValue())
	}
	if q, ok := used.Resources[corev1.ResourceMemory]; ok {
		memory.Used, memory.UsedPercent = measured(q.Value()), view.PercentOf(q.Value(), all.Memory().Value())
	}
}

// PodUse describes what a pod requests and uses by its node's report, nil where the report has no such pod or is older
// than the pod.
func PodUse(pod *corev1.Pod, reported *slo.PodMetricInfo) view.PodUse {
	class, asks, all := Class(pod), Requests(pod), requests(pod)
	if cpu, ok := all["kubernetes.io/batch-cpu"]; ok && asks.MilliCPU == 0 {
		asks.MilliCPU = cpu.Value()
	}
	if memory, ok := all["kubernetes.io/batch-memory"]; ok && asks.MemoryBytes == 0 {
		asks.MemoryBytes = memory.Value()
	}
	out := view.PodUse{
		Pod: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName,
		QoS: class.Class.String(), Priority: class.Band.String(),
		CPU:    view.AmountUse{Requested: view.CPUText(asks.MilliCPU), UsedPercent: -1},
		Memory: view.AmountUse{Requested: view.BytesText(asks.MemoryBytes), UsedPercent: -1},
	}
	if reported == nil {
		return out
	}
	addUse(&out.CPU, &out.Memory, reported.PodUsage, nil)
	if q, ok := reported.PodUsage.Resources[corev1.ResourceCPU]; ok {
		out.CPU.UsedPercent = view.PercentOf(q.MilliValue(), asks.MilliCPU)
	}
	if q, ok := reported.PodUsage.Resources[corev1.ResourceMemory]; ok {
		out.Memory.UsedPercent = view.PercentOf(q.Value(), asks.MemoryBytes)
	}
	return out
}

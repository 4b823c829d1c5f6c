package describe

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/config/sloconfig"
	"github.com/tenon-project/tenon/api/event"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/occupancy"
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// NodeUse describes what a node uses by its NodeMetric, nil for none, with the requests of its pods.
func NodeUse(node *corev1.Node, metric *slo.NodeMetric, requested occupancy.Room, now time.Time) view.NodeUse {
	all := node.Status.Allocatable
	out := view.NodeUse{Node: node.Name, ReportSeconds: -1, Suppressed: Suppression(node)}
	out.CPU, out.Memory = requestedUse(requested)
	out.CPU.Allocatable = view.CPUText(all.Cpu().MilliValue())
	out.Memory.Allocatable = view.BytesText(all.Memory().Value())
	if q, ok := all["kubernetes.io/batch-cpu"]; ok {
		out.CPU.Batch = view.CPUText(q.Value())
	}
	_, out.Memory.Batch = measured(all, "kubernetes.io/batch-memory")
	if metric == nil || metric.Status.UpdateTime == nil || metric.Status.NodeMetric == nil {
		return out
	}
	out.ReportSeconds = max(0, int64(now.Sub(metric.Status.UpdateTime.Time)/time.Second))
	use := metric.Status.NodeMetric
	has := convert.RawAllocatable(node)
	addUse(&out.CPU, &out.Memory, use.NodeUsage, has.Cpu().MilliValue(), has.Memory().Value())
	p95 := shortest(use.AggregatedNodeUsages).Resources
	_, out.CPU.P95 = measured(p95, corev1.ResourceCPU)
	_, out.Memory.P95 = measured(p95, corev1.ResourceMemory)
	if r := metric.Status.ProdReclaimableMetric; r != nil {
		if q, ok := r.Resource.Resources[corev1.ResourceCPU]; ok {
			out.CPU.Reclaimable = view.CPUText(q.MilliValue())
		}
		_, out.Memory.Reclaimable = measured(r.Resource.Resources, corev1.ResourceMemory)
	}
	return out
}

// reportLife is how many intervals old a report may be that says how busy CPUs are.
const reportLife = 3

// SetCPUUse says how busy the CPUs of a node were by its NodeMetric, nil for none.
func SetCPUUse(n *view.Node, metric *slo.NodeMetric, now time.Time) {
	if metric == nil || metric.Status.UpdateTime == nil || metric.Status.NodeMetric == nil ||
		now.Sub(metric.Status.UpdateTime.Time) > reportLife*convert.ReportInterval(metric) {
		return
	}
	used := metric.Status.NodeMetric.CPUUsages
	for _, s := range n.Sockets {
		for i := range s.NUMA {
			setCPUUse(&s.NUMA[i], used)
		}
	}
}

func setCPUUse(n *view.NUMA, used []int32) {
	type sum struct{ percent, cpus int }
	caches := map[int]sum{}
	for _, core := range n.Cores {
		for i := range core.CPUs {
			cpu := &core.CPUs[i]
			if cpu.CPU >= len(used) || used[cpu.CPU] < 0 {
				continue
			}
			percent := min(100, int(used[cpu.CPU]))
			cpu.UsedPercent = &percent
			s := caches[core.L3]
			caches[core.L3] = sum{s.percent + percent, s.cpus + 1}
		}
	}
	for _, l3 := range slices.Sorted(maps.Keys(caches)) {
		s := caches[l3]
		n.L3Use = append(n.L3Use, view.CacheUse{L3: l3, UsedPercent: (s.percent + s.cpus/2) / s.cpus})
	}
}

// requestedUse describes requests of which no use is known.
func requestedUse(r occupancy.Room) (cpu, memory view.AmountUse) {
	return view.AmountUse{Requested: view.CPUText(r.MilliCPU), UsedPercent: -1},
		view.AmountUse{Requested: view.BytesText(r.MemoryBytes), UsedPercent: -1}
}

// measured returns an amount that follows from measurements, and its text, "" for none: CPU to a hundredth of a CPU, or
// a tenth from 10 CPUs on; memory in whole MiB, or GiB from 10 GiB on. A longer text would say no more.
func measured(list corev1.ResourceList, name corev1.ResourceName) (amount int64, text string) {
	q, ok := list[name]
	if !ok {
		return 0, ""
	}
	if name == corev1.ResourceCPU {
		return q.MilliValue(), cpuText(q.MilliValue())
	}
	return q.Value(), memoryText(q.Value())
}

func cpuText(milli int64) string {
	unit := int64(10)
	if milli >= 10_000 {
		unit = 100
	}
	return view.CPUText((milli + unit/2) / unit * unit)
}

func memoryText(bytes int64) string {
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
func shortest(all []slo.AggregatedUsage) slo.ResourceMap {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b slo.AggregatedUsage) int {
		return int(a.Duration.Seconds() - b.Duration.Seconds())
	})
	for _, u := range sorted {
		if found, ok := u.Usage[slo.P95]; ok {
			return found
		}
	}
	return slo.ResourceMap{}
}

// addUse adds what is used, and how much that is of thousandths of a CPU and of bytes.
func addUse(cpu, memory *view.AmountUse, used slo.ResourceMap, milli, bytes int64) {
	if n, text := measured(used.Resources, corev1.ResourceCPU); text != "" {
		cpu.Used, cpu.UsedPercent = text, view.PercentOf(n, milli)
	}
	if n, text := measured(used.Resources, corev1.ResourceMemory); text != "" {
		memory.Used, memory.UsedPercent = text, view.PercentOf(n, bytes)
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
	}
	if out.CPU, out.Memory = requestedUse(asks); reported != nil {
		addUse(&out.CPU, &out.Memory, reported.PodUsage, asks.MilliCPU, asks.MemoryBytes)
		out.ThrottledMilliseconds = reported.Extension().ThrottledMilliseconds
	}
	return out
}

// Interrupts returns how often interrupts fire on the CPUs of a pod by its node's report, nil for none.
func Interrupts(reported *slo.PodMetricInfo) *quiet.Rate {
	if reported == nil {
		return nil
	}
	return (*quiet.Rate)(reported.Extension().Interrupts)
}

// Reclaim says what a Node grants batch pods of each amount of which it has less left than a pod asks for, and what
// takes the rest. pods are those of the Node.
func Reclaim(node *corev1.Node, m *slo.NodeMetric, s *sloconfig.Strategy, pods []*corev1.Pod, asks amount.Pair,
	now time.Time,
) (notes []string) {
	say := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("node %s grants batch pods "+format, append([]any{node.Name}, args...)...))
	}
	accounts, ok := convert.Reclaim(s, node, m, pods, now)
	switch {
	case !*s.Enable:
		say("nothing: %s of %s is not enabled for it", sloconfig.ColocationKey, sloconfig.Name)
		return notes
	case !ok:
		say("nothing: its NodeMetric has no report of the last %d minutes", *s.DegradeTimeMinutes)
		return notes
	}
	granted, requested := convert.BatchOf(node), amount.Pair{}
	for _, p := range pods {
		if !convert.Ended(p) {
			requested = requested.Plus(convert.BatchRequest(p))
		}
	}
	for r, text := range []func(int64) string{cpuText, memoryText} {
		a, left := &accounts[r], max(granted[r]-requested[r], 0)
		if left >= asks[r] {
			continue
		}
		grows := ""
		if a.Batch > granted[r] {
			grows = ", growing to " + text(a.Batch)
		}
		say("%s of %s %s%s, and %s of it is left: other pods take %s, the system uses %s (%s is reserved), and %s is "+
			"kept free", text(granted[r]), text(a.Capacity), []string{"CPUs", "memory"}[r], grows, text(left),
			text(a.High), text(a.System), text(a.Reserved), text(a.Margin))
	}
	return notes
}

package usage

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/window"
)

// minSamples is how many samples a window needs before its percentiles are reported.
const minSamples = 10

// Pod is a pod as it is reported.
type Pod struct {
	// UID is the one that the node knows it by.
	UID, Namespace, Name string
	// Priority is its band, such as koord-prod, QoS its class.
	Priority, QoS string
}

// Status returns what a NodeMetric reports under a policy: of the pods those that are given. It averages over the
// policy's time from now on. It returns nil before the first Sample, and when the last one is older than that time.
func (c *Collector) Status(policy *slo.NodeMetricCollectPolicy, pods []Pod, now time.Time) *slo.NodeMetricStatus {
	if policy == nil {
		policy = &slo.NodeMetricCollectPolicy{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.average = time.Duration(min(ptr.Deref(policy.AggregateDurationSeconds, 0), 86400)) * time.Second
	if c.average <= 0 {
		c.average = DefaultAverage
	}
	withCache := ptr.Deref(policy.NodeMemoryCollectPolicy, "") == slo.UsageWithPageCache
	node, ok := c.history.node.over(now)
	if !ok || !c.sampled || now.Sub(c.sample.Time) > c.average {
		return nil
	}
	system, _ := c.history.system.over(now)
	out := &slo.NodeMetricStatus{
		UpdateTime: ptr.To(metav1.NewTime(now)),
		NodeMetric: &slo.NodeMetricInfo{
			NodeUsage: quantities(node, withCache), SystemUsage: quantities(system, withCache),
		},
	}
	durations := window.Windows()
	if p := policy.NodeAggregatePolicy; p != nil && len(p.Durations) > 0 {
		durations = nil
		for _, d := range p.Durations {
			durations = append(durations, d.Duration)
		}
	}
	for _, d := range durations {
		h, m := &c.history, out.NodeMetric
		m.AggregatedNodeUsages = appendWindow(m.AggregatedNodeUsages, d, now, h.nodeCPU, h.nodeMem)
		m.AggregatedSystemUsages = appendWindow(m.AggregatedSystemUsages, d, now, h.sysCPU, h.sysMem)
	}
	for _, p := range pods {
		g := c.pods[p.UID]
		if g == nil {
			continue
		}
		if used, ok := g.averages.over(now); ok {
			out.PodsMetric = append(out.PodsMetric, &slo.PodMetricInfo{
				Namespace: p.Namespace, Name: p.Name, Priority: p.Priority, QoS: p.QoS,
				PodUsage: quantities(used, withCache),
			})
		}
	}
	slices.SortFunc(out.PodsMetric, func(a, b *slo.PodMetricInfo) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for name, g := range c.hosts {
		if used, ok := g.averages.over(now); ok {
			out.HostApplicationMetric = append(out.HostApplicationMetric, &slo.HostApplicationMetricInfo{
				Name: name, Usage: quantities(used, withCache),
			})
		}
	}
	slices.SortFunc(out.HostApplicationMetric, func(a, b *slo.HostApplicationMetricInfo) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return out
}

func quantities(a Amounts, withCache bool) slo.ResourceMap {
	memory := a.MemoryBytes
	if withCache {
		memory += a.CacheBytes
	}
	return amounts(a.MilliCPU, memory)
}

func amounts(milliCPU, memoryBytes int64) slo.ResourceMap {
	return slo.ResourceMap{Resources: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(milliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memoryBytes, resource.BinarySI),
	}}
}

// appendWindow appends what a window says, once it has enough samples. A span that is not a window is left out.
func appendWindow(to []slo.AggregatedUsage, span time.Duration, now time.Time, cpu, memory *window.Series,
) []slo.AggregatedUsage {
	c, hasCPU := cpu.Over(span, now)
	m, hasMemory := memory.Over(span, now)
	if !hasCPU || !hasMemory || c.Samples < minSamples {
		return to
	}
	usage := map[slo.AggregationType]slo.ResourceMap{
		slo.AVG: amounts(c.Avg, m.Avg), slo.P50: amounts(c.P50, m.P50), slo.P90: amounts(c.P90, m.P90),
		slo.P95: amounts(c.P95, m.P95), slo.P99: amounts(c.P99, m.P99),
	}
	return append(to, slo.AggregatedUsage{Duration: metav1.Duration{Duration: span}, Usage: usage})
}

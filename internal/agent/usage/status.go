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
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/colocation"
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/core/window"
)

// patience is how often a first report is refused because pods lack their second reading.
const patience = 5

// minSamples is how many samples a window needs before its percentiles are reported.
const minSamples = 10

// Pod is a pod as it is reported.
type Pod struct {
	// UID is the one that the node knows it by.
	UID, Namespace, Name string
	// Priority is its band, such as koord-prod, QoS its class.
	Priority, QoS string
	// Prod says that what it does not use of its Request may be lent to mid pods.
	Prod    bool
	Request Amounts
	// CPUs are those that it has alone, by the kernel's ids; none of another pod.
	CPUs []int
}

// Status returns what a NodeMetric reports under a policy: of the pods those that are given. It averages over the
// policy's time from now on. It returns nil before the first Sample, and when the last one is older than that time; the
// first times also while pods were not read twice, as a report without them says that they are new.
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
	unread := func(p Pod) bool { _, read := c.sample.Pods[p.UID]; return !read }
	if c.refused < patience && slices.ContainsFunc(pods, unread) {
		c.refused++
		return nil
	}
	c.refused = patience
	system, _ := c.history.system.over(now)
	out := &slo.NodeMetricStatus{
		UpdateTime: ptr.To(metav1.NewTime(now)),
		NodeMetric: &slo.NodeMetricInfo{
			NodeUsage: quantities(node, withCache), SystemUsage: quantities(system, withCache),
		},
	}
	for i := range c.numa {
		if used, ok := c.numa[i].averages.over(now); ok {
			out.NodeMetric.NUMAUsages = append(out.NodeMetric.NUMAUsages, slo.NUMAUsage{
				NUMANodeID: int32(c.numa[i].id), NodeUsage: quantities(used, withCache),
			})
		}
	}
	out.NodeMetric.CPUUsages = c.usedCPUs()
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
	out.ProdReclaimableMetric = c.reclaimable(pods, now)
	fired := c.interruptsSince(pods, now)
	for _, p := range pods {
		g := c.pods[p.UID]
		if g == nil {
			continue
		}
		if used, ok := g.averages.over(now); ok {
			milli, _ := g.throttle.average.At(now)
			out.PodsMetric = append(out.PodsMetric, &slo.PodMetricInfo{
				Namespace: p.Namespace, Name: p.Name, Priority: p.Priority, QoS: p.QoS,
				PodUsage:   quantities(used, withCache),
				Extensions: slo.PodExtension{ThrottledMilliseconds: milli, Interrupts: fired[p.UID]}.Encode(),
			})
		}
	}
	slices.SortFunc(out.PodsMetric, func(a, b *slo.PodMetricInfo) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, h := range c.said {
		if used, ok := c.hosts[h.Name].averages.over(now); ok {
			out.HostApplicationMetric = append(out.HostApplicationMetric, &slo.HostApplicationMetricInfo{
				Name: h.Name, Priority: h.Priority, QoS: h.QoS, Usage: quantities(used, withCache),
			})
		}
	}
	return out
}

// usedCPUs returns for how much of the time since the last Status CPUs were busy, in percent by the kernel's id; -1
// where that is not known.
func (c *Collector) usedCPUs() []int32 {
	before := c.reported
	c.reported = c.busy.copied()
	span := int64(c.busy.at.Sub(before.at))
	if span <= 0 {
		return nil
	}
	used := make([]int32, len(c.busy.nanos))
	for i, now := range c.busy.nanos {
		used[i] = -1
		if was := before.nanos[i]; was >= 0 && now >= was {
			used[i] = int32((100*min(now-was, span) + span/2) / span)
		}
	}
	return used
}

func (b busyTimes) copied() busyTimes {
	b.nanos = slices.Clone(b.nanos)
	return b
}

// interruptsSince returns how often interrupts fired on the CPUs that pods have alone since the last Status, by UID.
// The file is long, so it is read for a Status alone.
func (c *Collector) interruptsSince(pods []Pod, now time.Time) map[string]*slo.InterruptRate {
	var cpus []int
	for _, p := range pods {
		cpus = append(cpus, p.CPUs...)
	}
	before, span := c.fired, now.Sub(c.firedAt)
	c.fired, c.firedAt = quiet.Counts{}, now
	if len(cpus) == 0 {
		return nil
	}
	fired, err := host.Interrupts(c.o.Root, cpus)
	if err != nil {
		return nil
	}
	c.fired = fired
	out := map[string]*slo.InterruptRate{}
	for _, p := range pods {
		if rate, known := fired.Since(&before, span, p.CPUs); known {
			out[p.UID] = ptr.To(slo.InterruptRate(rate))
		}
	}
	return out
}

// peakSpan is how far back the peak of what prod pods use is looked for.
const peakSpan = 30 * time.Minute

// reclaimable predicts what prod pods requested and will not use: by the peak of what they used together, p95
// of CPU and p99 of memory. A pod counts with its request once it was measured for peakSpan. nil before
// anything was. The pods that are given are those whose use counts from now on.
func (c *Collector) reclaimable(pods []Pod, now time.Time) *slo.ReclaimableMetric {
	c.prod = make(map[string]bool, len(pods))
	var requests Amounts
	old := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) >= peakSpan }
	for _, p := range pods {
		if g := c.pods[p.UID]; g != nil && p.Prod {
			if c.prod[p.UID] = true; old(g.since) {
				requests.add(p.Request)
			}
		}
	}
	cpu, hasCPU := c.history.prodCPU.Over(peakSpan, now)
	memory, hasMemory := c.history.prodMem.Over(peakSpan, now)
	if !hasCPU || !hasMemory || !old(c.history.since) {
		return nil
	}
	rest := colocation.Predict(amount.Pair{requests.MilliCPU, requests.MemoryBytes},
		amount.Pair{cpu.P95, memory.P99})
	return &slo.ReclaimableMetric{Resource: quantities(Amounts{MilliCPU: rest[0], MemoryBytes: rest[1]}, false)}
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

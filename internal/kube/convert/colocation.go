package convert

import (
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/colocation"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// Amounts of batch and mid pods: CPU in milli, memory in bytes.
const (
	BatchCPU    corev1.ResourceName = "kubernetes.io/batch-cpu"
	BatchMemory corev1.ResourceName = "kubernetes.io/batch-memory"
	MidCPU      corev1.ResourceName = "kubernetes.io/mid-cpu"
	MidMemory   corev1.ResourceName = "kubernetes.io/mid-memory"
)

// Colocation returns a complete strategy as the core has it.
func Colocation(s *sloconfig.Strategy) colocation.Strategy {
	policies := map[string]colocation.Policy{
		sloconfig.Request: colocation.Request, sloconfig.MaxUsageRequest: colocation.MaxUseRequest,
	}
	c := colocation.Strategy{
		MidStatic: *s.MidReclaimMode == sloconfig.MidStatic, MidUnallocatedPercent: *s.MidUnallocatedPercent,
		Degrade:      time.Duration(*s.DegradeTimeMinutes) * time.Minute,
		Update:       time.Duration(*s.UpdateTimeThresholdSeconds) * time.Second,
		DiffPermille: int64(math.Round(*s.ResourceDiffThreshold * 1000)),
	}
	c.Rules[amount.CPU] = colocation.Rule{
		Policy: policies[*s.CPUCalculatePolicy], ReclaimPercent: *s.CPUReclaimThresholdPercent,
		BatchPercent: *s.BatchCPUThresholdPercent, MidPercent: *s.MidCPUThresholdPercent,
		StaticPercent: *s.MidStaticCPUReservedPercent,
	}
	c.Rules[amount.Memory] = colocation.Rule{
		Policy: policies[*s.MemoryCalculatePolicy], ReclaimPercent: *s.MemoryReclaimThresholdPercent,
		BatchPercent: *s.BatchMemoryThresholdPercent, MidPercent: *s.MidMemoryThresholdPercent,
		StaticPercent: *s.MidStaticMemoryReservedPercent,
	}
	return c
}

// Reclaimable returns a Node as package colocation divides it, at the time of a report that has a time and the use of
// the node. pods are those bound to it. A row of the report is that of the pod with its name, if the pod had started by
// then; else of a pod that is gone.
func Reclaimable(node *corev1.Node, m *slo.NodeMetric, pods []*corev1.Pod) *colocation.Node {
	n := &colocation.Node{
		Capacity: Pair(node.Status.Capacity), Allocatable: Pair(RawAllocatable(node)),
		Use: Pair(m.Status.NodeMetric.NodeUsage.Resources), Reserved: Reserved(node),
	}
	system := m.Status.NodeMetric.SystemUsage.Resources
	_, hasCPU := system[corev1.ResourceCPU]
	_, hasMemory := system[corev1.ResourceMemory]
	n.System, n.HasSystem = Pair(system), hasCPU && hasMemory
	// What cannot be read is a problem of the strategy, under which the Node grants nothing.
	third, _, _ := annotation.ParseThirdPartyAllocations(node.Annotations[annotation.NodeThirdPartyAllocations])
	for _, one := range third.Allocations {
		n.ThirdParty = n.ThirdParty.Plus(batchIn(one.Resources))
	}
	if p := m.Status.ProdReclaimableMetric; p != nil {
		n.ProdReclaimable = Pair(p.Resource.Resources)
	}
	for _, a := range m.Status.HostApplicationMetric {
		use := Pair(a.Usage.Resources)
		high := (&colocation.Pod{Band: reportedBand(a.Priority, a.QoS)}).High()
		if n.HostUse = n.HostUse.Plus(use); high {
			n.HighHostUse = n.HighHostUse.Plus(use)
		}
	}
	type name struct{ namespace, name string }
	rows := make(map[name]*slo.PodMetricInfo, len(m.Status.PodsMetric))
	for _, row := range m.Status.PodsMetric {
		rows[name{row.Namespace, row.Name}] = row
	}
	for _, pod := range pods {
		if Ended(pod) {
			continue
		}
		p := colocation.Pod{Band: Band(pod), Request: podRequest(pod)}
		p.Class, _, _ = PodQoS(pod)
		p.Started = pod.Status.StartTime != nil && !pod.Status.StartTime.After(m.Status.UpdateTime.Time)
		key := name{pod.Namespace, pod.Name}
		if row := rows[key]; row != nil && p.Started {
			p.Use, p.Reported = Pair(row.PodUsage.Resources), true
			delete(rows, key)
		}
		n.Pods = append(n.Pods, p)
	}
	for _, row := range rows {
		class, _ := ParseClass(row.QoS)
		n.Pods = append(n.Pods, colocation.Pod{
			Class: class, Band: reportedBand(row.Priority, row.QoS), Use: Pair(row.PodUsage.Resources), Reported: true,
			Gone: true,
		})
	}
	return n
}

// Reserved returns what a Node keeps for others than pods: the greater of what its kubelet and its annotations keep.
func Reserved(node *corev1.Node) amount.Pair {
	reserved, capacity, allocatable := Pair(takenOff(node)), Pair(node.Status.Capacity), Pair(RawAllocatable(node))
	for r := range reserved {
		reserved[r] = max(reserved[r], capacity[r]-allocatable[r])
	}
	return reserved
}

// Band returns the band of a pod: as it says, else that of its QoS class.
func Band(pod *corev1.Pod) qos.Band {
	class, band, _ := PodQoS(pod)
	return bandOr(band, class)
}

func bandOr(band qos.Band, class qos.Class) qos.Band {
	switch {
	case band != qos.NoBand || class == qos.None:
		return band
	case class == qos.BE:
		return qos.Batch
	}
	return qos.Prod
}

func reportedBand(priority, class string) qos.Band {
	band, _ := qos.ParseBand(priority)
	c, _ := ParseClass(class)
	return bandOr(band, c)
}

// podRequest returns what a pod requests of CPU and memory, as prod or as mid pods do.
func podRequest(pod *corev1.Pod) amount.Pair {
	all := PodAmounts(pod)
	return all.Pair("cpu", "memory").Plus(all.Pair(string(MidCPU), string(MidMemory)))
}

// BestEffortRequest returns what a best-effort pod requests, of whichever kind of CPU and memory.
func BestEffortRequest(pod *corev1.Pod) (milliCPU, memoryBytes int64) {
	ordinary, batch := podRequest(pod), BatchRequest(pod)
	return ordinary[amount.CPU] + batch[amount.CPU], ordinary[amount.Memory] + batch[amount.Memory]
}

// BatchRequest returns what a pod requests of batch amounts.
func BatchRequest(pod *corev1.Pod) amount.Pair {
	return PodAmounts(pod).Pair(string(BatchCPU), string(BatchMemory))
}

// Pair returns the CPU and the memory of a list; what is negative counts as none.
func Pair(list corev1.ResourceList) amount.Pair {
	var p amount.Pair
	for r := range amount.Resources {
		name := corev1.ResourceName(r.String())
		p[r] = max(inUnits(name, list[name]), 0)
	}
	return p
}

// Granted returns the amounts of a Node's status.
func Granted(g colocation.Grant) corev1.ResourceList {
	all := g.Batch.List(string(BatchCPU), string(BatchMemory))
	all.Add(g.Mid.List(string(MidCPU), string(MidMemory)))
	return ResourceList(all)
}

// Shown returns what a Node shows of amounts that the manager wrote, and since when.
func Shown(node *corev1.Node) (shown colocation.Shown) {
	names := Owned(node, ColocationManager, "status", "f:status", "f:allocatable")
	for _, name := range names {
		q := node.Status.Allocatable[corev1.ResourceName(name)]
		switch corev1.ResourceName(name) {
		case BatchCPU:
			shown.Batch[amount.CPU] = q.Value()
		case BatchMemory:
			shown.Batch[amount.Memory] = q.Value()
		case MidCPU:
			shown.Mid[amount.CPU] = q.Value()
		case MidMemory:
			shown.Mid[amount.Memory] = q.Value()
		}
	}
	for _, e := range node.ManagedFields {
		if e.Manager == ColocationManager && e.Subresource == "status" && e.Time != nil && len(names) > 0 {
			// The time is in whole seconds, rounded down. A second that has not passed would count as growth in each
			// version that is written within it.
			shown.Since = e.Time.Add(time.Second)
		}
	}
	return shown
}

// BatchOf returns what a Node grants batch pods.
func BatchOf(node *corev1.Node) amount.Pair { return batchIn(node.Status.Allocatable) }

// batchIn returns the batch amounts of a list; what is negative counts as none.
func batchIn(list corev1.ResourceList) amount.Pair {
	batchCPU, batchMemory := list[BatchCPU], list[BatchMemory]
	return amount.Pair{
		amount.CPU: max(batchCPU.Value(), 0), amount.Memory: max(batchMemory.Value(), 0),
	}
}

// SpreadBatch divides what a Node grants batch pods over its NUMA nodes, by the last report; nil for none. capacity is
// what batch pods could have of each NUMA node, by its kernel id.
func SpreadBatch(granted amount.Pair, m *slo.NodeMetricStatus, capacity map[int]amount.Pair) (
	parts map[int]corev1.ResourceList,
) {
	ids := slices.Sorted(maps.Keys(capacity))
	zones, batchUse := make([]colocation.Zone, len(ids)), amount.Pair{}
	for i, id := range ids {
		zones[i].Capacity = capacity[id]
	}
	if m != nil && m.NodeMetric != nil {
		for _, u := range m.NodeMetric.NUMAUsages {
			if i, ok := slices.BinarySearch(ids, int(u.NUMANodeID)); ok {
				zones[i].Use = Pair(u.NodeUsage.Resources)
			}
		}
		for _, row := range m.PodsMetric {
			if (&colocation.Pod{Band: reportedBand(row.Priority, row.QoS)}).High() {
				continue
			}
			batchUse = batchUse.Plus(Pair(row.PodUsage.Resources))
		}
	}
	parts = make(map[int]corev1.ResourceList, len(ids))
	for i, part := range colocation.Spread(granted, batchUse, zones) {
		parts[ids[i]] = ResourceList(part.List(string(BatchCPU), string(BatchMemory)))
	}
	return parts
}

// Reclaim computes what a Node is to show of a report. ok is false where the report grants nothing: there is none, it
// is too old, or it lacks the use of the node.
func Reclaim(s *sloconfig.Strategy, node *corev1.Node, m *slo.NodeMetric, pods []*corev1.Pod, now time.Time) (
	accounts colocation.Accounts, ok bool,
) {
	strategy := Colocation(s)
	if !*s.Enable || annotation.IsLeaving(node.Annotations) || m == nil || m.Status.UpdateTime == nil ||
		m.Status.NodeMetric == nil || !strategy.Fresh(m.Status.UpdateTime.Time, now) {
		return accounts, false
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, found := m.Status.NodeMetric.NodeUsage.Resources[name]; !found {
			return accounts, false
		}
	}
	return strategy.Compute(Reclaimable(node, m, pods)), true
}

// Names of the resources that a pod may use while others leave them idle. A container uses the first that it names.
var (
	idleCPUs   = []corev1.ResourceName{"kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu", "kubernetes.io/mid-cpu"}
	idleMemory = []corev1.ResourceName{
		"kubernetes.io/batch-memory", "koordinator.sh/batch-memory", "kubernetes.io/mid-memory",
	}
)

// Batch is what a container, or a whole pod, requests of batch or mid resources.
type Batch struct {
	// CPU and Memory report whether it uses such CPUs and such memory. Its amounts are 0 otherwise.
	CPU, Memory bool
	// MilliCPU is the request.
	MilliCPU int64
	// LimitMilliCPU and LimitBytes are the limits; 0 is none. A limit may be above the request.
	LimitMilliCPU, LimitBytes int64
}

// BatchAmounts returns what the containers of a pod, by name, and the pod as a whole request of batch or mid resources.
// A container whose resources name none has those of the annotation extended-resource-spec. The pod has a limit only if
// all its containers have one, and uses batch CPUs or memory only if no container requests ordinary ones: the kubelet
// limits the pod by those.
func BatchAmounts(pod *corev1.Pod) (named map[string]Batch, whole Batch) {
	spec := extendedSpec(pod.Annotations)
	cpu, memory := true, true
	for _, c := range containers(pod) {
		b := batchOf(c.Resources.Requests, c.Resources.Limits)
		if x := spec.Containers[c.Name]; b == (Batch{}) {
			b = batchOf(x.Requests, x.Limits)
		}
		if b != (Batch{}) {
			if named == nil {
				named = map[string]Batch{}
			}
			named[c.Name] = b
		}
		cpu = cpu && !names(c, corev1.ResourceCPU)
		memory = memory && !names(c, corev1.ResourceMemory)
	}
	limitsCPU, limitsMemory := true, true
	for _, c := range containers(pod) {
		b := named[c.Name]
		whole.CPU, whole.Memory = whole.CPU || b.CPU, whole.Memory || b.Memory
		limitsCPU, limitsMemory = limitsCPU && b.LimitMilliCPU > 0, limitsMemory && b.LimitBytes > 0
	}
	whole.CPU, whole.Memory = whole.CPU && cpu, whole.Memory && memory
	sum := func(used bool, amount func(Batch) int64) int64 {
		if !used {
			return 0
		}
		return together(pod, func(c *corev1.Container) int64 { return amount(named[c.Name]) })
	}
	whole.MilliCPU = sum(whole.CPU, func(b Batch) int64 { return b.MilliCPU })
	whole.LimitMilliCPU = sum(whole.CPU && limitsCPU, func(b Batch) int64 { return b.LimitMilliCPU })
	whole.LimitBytes = sum(whole.Memory && limitsMemory, func(b Batch) int64 { return b.LimitBytes })
	return named, whole
}

// SandboxBatch returns what the annotations of a pod say of its containers' batch or mid resources, by name.
func SandboxBatch(annotations map[string]string) map[string]Batch {
	var named map[string]Batch
	for name, x := range extendedSpec(annotations).Containers {
		if b := batchOf(x.Requests, x.Limits); b != (Batch{}) {
			if named == nil {
				named = map[string]Batch{}
			}
			named[name] = b
		}
	}
	return named
}

// extendedSpec returns the annotation extended-resource-spec; an empty one if it cannot be read.
func extendedSpec(annotations map[string]string) annotation.ExtendedResourceSpec {
	s, _, _ := parse(annotations, annotation.ExtendedResourceSpecKey, annotation.ParseExtendedResourceSpec)
	return s
}

func names(c *corev1.Container, name corev1.ResourceName) bool {
	request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
	return !request.IsZero() || !limit.IsZero()
}

func batchOf(requests, limits corev1.ResourceList) (b Batch) {
	b.MilliCPU, b.LimitMilliCPU, b.CPU = firstOf(requests, limits, idleCPUs)
	_, b.LimitBytes, b.Memory = firstOf(requests, limits, idleMemory)
	return b
}

// firstOf returns request and limit of the first of some resources that is named. A limit alone is a request too.
func firstOf(requests, limits corev1.ResourceList, names []corev1.ResourceName) (request, limit int64, found bool) {
	for _, name := range names {
		r, requested := requests[name]
		l, limited := limits[name]
		switch {
		case !requested && !limited:
			continue
		case !requested:
			r = l
		}
		return max(r.Value(), 0), max(l.Value(), 0), true
	}
	return 0, 0, false
}

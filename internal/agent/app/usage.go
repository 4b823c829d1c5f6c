package app

import (
	corev1 "k8s.io/api/core/v1"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Sampled shows what the node uses in metrics, and lets the publisher report it when it is time to.
func (a *Agent) Sampled(s *usage.Sample) {
	pods := usage.Amounts{}
	for _, used := range s.Pods {
		pods.MilliCPU += used.MilliCPU
		pods.MemoryBytes += used.MemoryBytes
	}
	m := a.o.Shared.Metrics
	m.ShowUse(a.o.Node, "all", s.Node.MilliCPU, s.Node.MemoryBytes)
	m.ShowUse(a.o.Node, "pods", pods.MilliCPU, pods.MemoryBytes)
	m.ShowUse(a.o.Node, "system", s.System.MilliCPU, s.System.MemoryBytes)
	for uid, time := range s.Throttled {
		m.AddThrottled(a.o.Node, a.enforcer.Class(uid), time)
	}
	a.suppressor.Tick(s)
	a.evictor.Tick(s)
	select {
	case <-a.wired:
		use := func(a usage.Amounts) report.Use { return report.Use{MilliCPU: a.MilliCPU, MemoryBytes: a.MemoryBytes} }
		a.publisher.use.Tick(s.Time, use(s.Average), use(s.Capacity))
	default: // the API is not known yet
	}
}

// reportUse returns what the node's NodeMetric reports under a policy; nil while it is not known.
func (a *Agent) reportUse(policy *slo.NodeMetricCollectPolicy) *slo.NodeMetricStatus {
	if a.usage == nil || !a.pods.HasSynced() {
		return nil
	}
	cpus := map[string][]int{}
	alone, _ := a.Exclusive()
	for _, p := range alone {
		cpus[p.UID] = p.CPUs
	}
	var pods []usage.Pod
	for _, pod := range a.Pods() {
		if convert.Ended(pod.Pod) {
			continue
		}
		class, band, _ := convert.PodQoS(pod.Pod)
		lends := convert.Band(pod.Pod)
		request := convert.PodAmounts(pod.Pod)
		pods = append(pods, usage.Pod{
			UID: convert.NodeUID(pod.Pod), Namespace: pod.Namespace, Name: pod.Name,
			Priority: band.String(), QoS: class.String(),
			Prod: class != qos.LSE && (lends == qos.Prod || lends == qos.NoBand) && !convert.Ended(pod.Pod),
			Request: usage.Amounts{
				MilliCPU: request[string(corev1.ResourceCPU)], MemoryBytes: request[string(corev1.ResourceMemory)],
			},
			CPUs: cpus[convert.NodeUID(pod.Pod)],
		})
	}
	status := a.usage.Status(policy, pods, a.o.Clock.Now())
	if status != nil {
		a.facts.mu.Lock()
		a.facts.metric = status
		a.facts.mu.Unlock()
	}
	return status
}

// batchParts are what batch pods may have of each NUMA node, and what that was computed for.
type batchParts struct {
	granted amount.Pair
	machine *topo.Machine
	parts   map[int]corev1.ResourceList // never changed
}

// batchByNUMA returns what batch pods may have of each NUMA node of a Node that aligns pods to them, by its kernel id;
// nil of another Node. It is computed anew only when the Node grants another amount: it must not change with each
// report, as the whole object would be written.
func (a *Agent) batchByNUMA(in *probe.Input) map[int]corev1.ResourceList {
	m, view := in.Machine, a.enforcer.View()
	if in.Node == nil || in.Draft.Facts.Topology == hint.None || view.Machine() == nil {
		return nil
	}
	granted := convert.BatchOf(in.Node)
	a.facts.mu.Lock()
	last, report := a.facts.batch, a.facts.metric
	a.facts.mu.Unlock()
	switch {
	case granted == amount.Pair{}:
		return nil
	case last.granted == granted && last.machine == m:
		return last.parts
	}
	capacity, pool := map[int]amount.Pair{}, view.BEPool()
	for n := range topo.NUMA(m.NumNUMA()) {
		own := amount.Pair{amount.Memory: m.MemoryBytes(n)}
		if known, ok := view.Machine().NUMAByID(m.NUMAID(n)); ok {
			cpus := pool.Intersect(view.Machine().NUMACPUs(known))
			own[amount.CPU] = int64(cpus.Len()) * 1000
		}
		capacity[m.NUMAID(n)] = own
	}
	parts := convert.SpreadBatch(granted, report, capacity)
	a.facts.mu.Lock()
	a.facts.batch = batchParts{granted, m, parts}
	a.facts.mu.Unlock()
	return parts
}

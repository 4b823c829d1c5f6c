package app

import (
	corev1 "k8s.io/api/core/v1"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// showUse shows what the node uses in metrics, and lets the publisher report it when it is time to.
func (a *Agent) showUse(s *usage.Sample) {
	pods := usage.Amounts{}
	for _, used := range s.Pods {
		pods.MilliCPU += used.MilliCPU
		pods.MemoryBytes += used.MemoryBytes
	}
	m := a.o.Shared.Metrics
	m.ShowUse(a.o.Node, "all", s.Node.MilliCPU, s.Node.MemoryBytes)
	m.ShowUse(a.o.Node, "pods", pods.MilliCPU, pods.MemoryBytes)
	m.ShowUse(a.o.Node, "system", s.System.MilliCPU, s.System.MemoryBytes)
	a.suppressor.Tick(s)
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
	var pods []usage.Pod
	for _, pod := range a.podList() {
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
		})
	}
	return a.usage.Status(policy, pods, a.o.Clock.Now())
}

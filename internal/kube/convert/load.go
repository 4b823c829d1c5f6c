package convert

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// LoadSettings are how it is estimated what pods will use.
type LoadSettings struct {
	Factors load.Percents
	// AfterScheduled and AfterInitialized are for how long an estimate counts beside a report; nil where only reports
	// decide.
	AfterScheduled, AfterInitialized *time.Duration
	Customized                       bool // annotations of pods count
}

// Pod returns what accounts of load know of a pod that was assigned at a time. It fails for annotations that cannot be
// read.
func (s LoadSettings) Pod(pod *corev1.Pod, assigned time.Time) (load.Pod, error) {
	out := load.Pod{
		UID: string(pod.UID), Name: pod.Namespace + "/" + pod.Name, Prod: isProduction(pod), Assigned: assigned,
	}
	var err error
	if s.Customized && len(pod.Annotations) > 0 {
		err = s.customize(pod.Annotations)
	}
	out.Estimate = load.Estimate(loadAsk(pod), s.Factors)
	switch {
	case s.AfterInitialized != nil:
		out.Initializing = true
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue {
				out.Initializing, out.Until = false, c.LastTransitionTime.Add(*s.AfterInitialized)
			}
		}
	case s.AfterScheduled != nil:
		out.Until = assigned.Add(*s.AfterScheduled)
	}
	return out, err
}

// reportInterval is how often agents report where a NodeMetric does not say it.
const reportInterval = time.Minute

// ReportInterval is how often the agent reports a NodeMetric.
func ReportInterval(m *slo.NodeMetric) time.Duration {
	if p := m.Spec.CollectPolicy; p != nil && p.ReportIntervalSeconds != nil {
		if n := *p.ReportIntervalSeconds; n > 0 && n < int64(24*time.Hour/time.Second) {
			return time.Duration(n) * time.Second
		}
	}
	return reportInterval
}

// LoadReport returns what a NodeMetric says about use. A use that lacks one of cpu and memory counts as not reported.
// It fails for a use that is negative.
func LoadReport(m *slo.NodeMetric) (*load.Report, error) {
	r := &load.Report{Interval: ReportInterval(m), Pods: make(map[string]load.PodUse, len(m.Status.PodsMetric))}
	if m.Status.UpdateTime != nil {
		r.Updated = m.Status.UpdateTime.Time
	}
	var err error
	read := func(use slo.ResourceMap) (out amount.Pair, whole bool) {
		found := 0
		for resource := range amount.Resources {
			name := corev1.ResourceName(resource.String())
			q, has := use.Resources[name]
			switch {
			case !has:
				continue
			case q.Sign() < 0:
				err = fmt.Errorf("the use %s of %s is negative", q.String(), name)
			}
			out[resource] = min(inUnits(name, q), load.Most)
			found++
		}
		return out, found == len(out)
	}
	all := true
	for _, p := range m.Status.PodsMetric {
		if p == nil {
			continue
		}
		key := p.Namespace + "/" + p.Name
		_, again := r.Pods[key]
		use, whole := read(p.PodUsage)
		if all = all && whole && !again; whole {
			band, _ := qos.ParseBand(p.Priority)
			r.Pods[key] = load.PodUse{Use: use, Prod: band == qos.Prod || p.Priority == ""}
		}
	}
	for _, a := range m.Status.HostApplicationMetric {
		if a != nil {
			use, whole := read(a.Usage)
			r.Apps, all = r.Apps.Plus(use), all && whole
		}
	}
	n := m.Status.NodeMetric
	if n == nil {
		return r, err
	}
	if use, whole := read(n.NodeUsage); whole {
		r.Use = &use
	}
	r.System, r.Whole = read(n.SystemUsage)
	r.Whole = r.Whole && all
	for _, over := range n.AggregatedNodeUsages {
		a := load.Aggregate{Duration: over.Duration.Duration, Use: map[load.Statistic]amount.Pair{}}
		for statistic, u := range over.Usage {
			if use, whole := read(u); whole {
				a.Use[load.Statistic(statistic)] = use
			}
		}
		r.Aggregates = append(r.Aggregates, a)
	}
	return r, err
}

// customize applies the annotations of a pod.
func (s *LoadSettings) customize(annotations map[string]string) error {
	if text, has := annotations[annotation.EstimatedScalingFactorsKey]; has {
		factors, _, err := annotation.ParseEstimatedScalingFactors(text)
		if err != nil {
			return fmt.Errorf("%s: %w", annotation.EstimatedScalingFactorsKey, err)
		}
		for r := range amount.Resources {
			if n, named := factors[r.String()]; named {
				s.Factors[r] = n
			}
		}
	}
	for key, into := range map[string]**time.Duration{
		annotation.EstimatedSecondsAfterPodScheduled: &s.AfterScheduled,
		annotation.EstimatedSecondsAfterInitialized:  &s.AfterInitialized,
	} {
		if text, has := annotations[key]; has {
			d, _, err := annotation.ParseEstimatedSeconds(text)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			*into = &d
		}
	}
	return nil
}

// AssignedAt returns when a pod was assigned to its node, as far as the API server knows.
func AssignedAt(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return pod.CreationTimestamp.Time
}

// IsOfDaemonSet reports whether a DaemonSet controls a pod.
func IsOfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// EvictedByAgent returns the workload of a pod that the agent of its node evicted, and when, by the condition that the
// agent writes; false for a pod that it did not evict, or that has no workload.
func EvictedByAgent(pod *corev1.Pod) (workload string, at time.Time, evicted bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || pod.Spec.NodeName == "" {
		return "", at, false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Reason == event.BestEffortEvicted.String() {
			return string(owner.UID), c.LastTransitionTime.Time, true
		}
	}
	return "", at, false
}

// isProduction reports whether a pod is of class koord-prod, or of none and not best-effort.
func isProduction(pod *corev1.Pod) bool {
	switch class, band, kube := PodQoS(pod); band {
	case qos.Prod:
		return true
	case qos.NoBand:
		return class != qos.BE && (class != qos.None || kube != qos.BestEffort)
	}
	return false
}

// loadNames are the resources that pods of a class ask for in place of cpu and memory. Amounts of CPU are milli-CPUs.
var loadNames = map[qos.Band][2][]corev1.ResourceName{
	qos.Batch: {
		{"kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu"},
		{"kubernetes.io/batch-memory", "koordinator.sh/batch-memory"},
	},
	qos.Mid: {
		{"kubernetes.io/mid-cpu", "koordinator.sh/mid-cpu"},
		{"kubernetes.io/mid-memory", "koordinator.sh/mid-memory"},
	},
}

func loadAsk(pod *corev1.Pod) load.Ask {
	band := bandOf(pod)
	ask, limited := load.Ask{Mid: band == qos.Mid}, [2]bool{true, true}
	for i := range pod.Spec.Containers {
		r := &pod.Spec.Containers[i].Resources
		request, _ := loadAmounts(band, r.Requests)
		limit, has := loadAmounts(band, r.Limits)
		ask.Request, ask.Limit = ask.Request.Plus(request), ask.Limit.Plus(limit)
		for k := range limited {
			limited[k] = limited[k] && has[k]
		}
	}
	// Of most pods only the containers count.
	if len(pod.Spec.InitContainers)+len(pod.Spec.Overhead) > 0 || pod.Spec.Resources != nil || IsResizing(pod) {
		ask.Request, _ = loadAmounts(band, boundRequests(pod))
		limit, has := loadAmounts(band, resource.PodLimits(pod, resource.PodResourcesOptions{}))
		if ask.Limit = limit; resource.IsPodLevelLimitsSet(pod) {
			limited = has
		}
	}
	for k := range limited { // a pod with a container that has no limit has none
		if !limited[k] {
			ask.Limit[k] = 0
		}
	}
	return ask
}

// loadAmounts returns the amounts of a list in the resources of a band, and which of them the list has.
func loadAmounts(band qos.Band, list corev1.ResourceList) (out amount.Pair, has [2]bool) {
	// An amount is bounded so that sums of those of all containers fit.
	const most = load.Most >> 10
	add := func(i amount.Resource, n int64) { out[i], has[i] = out[i]+min(max(n, 0), most), true }
	names, other := loadNames[band]
	for name, q := range list {
		switch {
		case other && slices.Contains(names[amount.CPU], name):
			add(amount.CPU, q.Value())
		case other && slices.Contains(names[amount.Memory], name):
			add(amount.Memory, q.Value())
		case other:
		case name == corev1.ResourceCPU:
			add(amount.CPU, q.MilliValue())
		case name == corev1.ResourceMemory:
			add(amount.Memory, q.Value())
		}
	}
	return out, has
}

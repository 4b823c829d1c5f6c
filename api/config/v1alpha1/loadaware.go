package v1alpha1

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tenon-project/tenon/api/annotation"
)

// LoadAwareSchedulingArgs are the arguments of the plugin LoadAwareScheduling, which has the names and meanings of
// Koordinator's. Thresholds, factors and weights are for cpu and memory.
//
// +kubebuilder:object:root=true
type LoadAwareSchedulingArgs struct {
	metav1.TypeMeta `json:",inline"`

	// FilterExpiredNodeMetrics refuses nodes whose NodeMetric is too old. With false, the check of thresholds uses an
	// old NodeMetric like a fresh one. Default: true.
	FilterExpiredNodeMetrics *bool `json:"filterExpiredNodeMetrics,omitempty"`
	// NodeMetricExpirationSeconds is the age from which a NodeMetric is too old, 0 or more; 0 means no limit. Nodes
	// with such a NodeMetric score 0, for any value of FilterExpiredNodeMetrics. Default: 180.
	NodeMetricExpirationSeconds *int64 `json:"nodeMetricExpirationSeconds,omitempty"`
	// EnableScheduleWhenNodeMetricsExpired skips the check of thresholds on nodes whose NodeMetric is too old, and does
	// not refuse them. Default: false.
	EnableScheduleWhenNodeMetricsExpired *bool `json:"enableScheduleWhenNodeMetricsExpired,omitempty"`

	// ResourceWeights are the weights of the free part of each resource in the score, 0 to 100. Default: cpu 1 and
	// memory 1, unless dominantResourceWeight is set.
	ResourceWeights map[corev1.ResourceName]int64 `json:"resourceWeights,omitempty"`
	// DominantResourceWeight is the weight of the scarcest resource, 0 to 100. Default: 0.
	DominantResourceWeight int64 `json:"dominantResourceWeight,omitempty"`

	// UsageThresholds are the percentages of a node's allocatable resources above which the node accepts no more pods,
	// 0 to 100; 0 means no threshold. A value replaces the whole default. Default: cpu 65 and memory 95.
	UsageThresholds map[corev1.ResourceName]int64 `json:"usageThresholds,omitempty"`
	// ProdUsageThresholds are the same for production pods: they compare the use of production pods only, and replace
	// all other thresholds. Default: none.
	ProdUsageThresholds map[corev1.ResourceName]int64 `json:"prodUsageThresholds,omitempty"`
	// ScoreAccordingProdUsage scores nodes for production pods only by the use of production pods. Default: false.
	ScoreAccordingProdUsage bool `json:"scoreAccordingProdUsage,omitempty"`
	// ProdUsageIncludeSys adds the use of processes outside pods to that of production pods. Default: false.
	ProdUsageIncludeSys bool `json:"prodUsageIncludeSys,omitempty"`
	// Aggregated judges nodes by averages or percentiles over a time. Default: by the last average.
	Aggregated *LoadAwareAggregatedArgs `json:"aggregated,omitempty"`

	// EstimatedScalingFactors are the expected use of a pod in percent of its request, 1 to 100. A resource that is not
	// named has its default: cpu 85, memory 70. If profiles differ, those of the last one count.
	EstimatedScalingFactors map[corev1.ResourceName]int64 `json:"estimatedScalingFactors,omitempty"`
	// EstimatedSecondsAfterPodScheduled is how long the estimate of a pod counts beside its reported use after it was
	// scheduled, 0 or more. Default: until a report covers a whole interval of its life.
	EstimatedSecondsAfterPodScheduled *int64 `json:"estimatedSecondsAfterPodScheduled,omitempty"`
	// EstimatedSecondsAfterInitialized is the same after its init containers have ended. It wins over
	// EstimatedSecondsAfterPodScheduled. Default: unset.
	EstimatedSecondsAfterInitialized *int64 `json:"estimatedSecondsAfterInitialized,omitempty"`
	// AllowCustomizeEstimation reads the pod annotations load-estimated-scaling-factors,
	// load-estimated-seconds-after-pod-scheduled and load-estimated-seconds-after-initialized. Default: false.
	AllowCustomizeEstimation bool `json:"allowCustomizeEstimation,omitempty"`

	// Estimator is "" or defaultEstimator, which mean the same.
	Estimator string `json:"estimator,omitempty"`
	// SupportedResources is accepted from configurations of Koordinator, without effect: nodes are judged by cpu and
	// memory.
	SupportedResources []corev1.ResourceName `json:"supportedResources,omitempty"`
}

// LoadAwareAggregatedArgs judges nodes by averages or percentiles over a time.
type LoadAwareAggregatedArgs struct {
	// UsageThresholds replace those of the arguments, and are compared with the type below. Default: none.
	UsageThresholds map[corev1.ResourceName]int64 `json:"usageThresholds,omitempty"`
	// UsageAggregationType is avg, p50, p90, p95 or p99. It must be set with UsageThresholds.
	UsageAggregationType string `json:"usageAggregationType,omitempty"`
	// UsageAggregatedDuration is the duration, such as 5m. Default: the longest in the NodeMetric.
	UsageAggregatedDuration metav1.Duration `json:"usageAggregatedDuration,omitempty"`
	// ScoreAggregationType determines how nodes are scored: avg, p50, p90, p95 or p99. Default: the last average.
	ScoreAggregationType string `json:"scoreAggregationType,omitempty"`
	// ScoreAggregatedDuration is the duration. Default: the longest in the NodeMetric.
	ScoreAggregatedDuration metav1.Duration `json:"scoreAggregatedDuration,omitempty"`
}

// SetDefaults fills what is not said.
func (a *LoadAwareSchedulingArgs) SetDefaults() {
	unless := func(p **bool, value bool) {
		if *p == nil {
			*p = &value
		}
	}
	unless(&a.FilterExpiredNodeMetrics, true)
	unless(&a.EnableScheduleWhenNodeMetricsExpired, false)
	if a.NodeMetricExpirationSeconds == nil {
		a.NodeMetricExpirationSeconds = new(int64(180))
	}
	type percentages = map[corev1.ResourceName]int64
	if len(a.ResourceWeights) == 0 && a.DominantResourceWeight == 0 {
		a.ResourceWeights = percentages{corev1.ResourceCPU: 1, corev1.ResourceMemory: 1}
	}
	if len(a.UsageThresholds) == 0 {
		a.UsageThresholds = percentages{corev1.ResourceCPU: 65, corev1.ResourceMemory: 95}
	}
	factors := percentages{corev1.ResourceCPU: 85, corev1.ResourceMemory: 70}
	maps.Copy(factors, a.EstimatedScalingFactors)
	a.EstimatedScalingFactors = factors
}

// Validate returns every field whose value cannot be used.
func (a *LoadAwareSchedulingArgs) Validate() field.ErrorList {
	var errs field.ErrorList
	seconds := func(name string, n *int64) {
		if n != nil && (*n < 0 || *n > mostSeconds) {
			errs = append(errs, field.Invalid(field.NewPath(name), *n, "must be 0…3155760000 (100 years)"))
		}
	}
	seconds("nodeMetricExpirationSeconds", a.NodeMetricExpirationSeconds)
	seconds("estimatedSecondsAfterPodScheduled", a.EstimatedSecondsAfterPodScheduled)
	seconds("estimatedSecondsAfterInitialized", a.EstimatedSecondsAfterInitialized)
	if n := a.DominantResourceWeight; n < 0 || n > 100 {
		errs = append(errs, field.Invalid(field.NewPath("dominantResourceWeight"), n, "must be 0…100"))
	}
	errs = append(errs, validateUsage(field.NewPath("resourceWeights"), a.ResourceWeights, 0, "must be 0…100")...)
	const percent = "must be 0…100 percent; 0 switches the threshold off"
	errs = append(errs, validateUsage(field.NewPath("usageThresholds"), a.UsageThresholds, 0, percent)...)
	errs = append(errs, validateUsage(field.NewPath("prodUsageThresholds"), a.ProdUsageThresholds, 0, percent)...)
	errs = append(errs, validateUsage(field.NewPath("estimatedScalingFactors"), a.EstimatedScalingFactors, 1,
		"must be 1…100 percent")...)
	if allowed := []string{"", "defaultEstimator"}; !slices.Contains(allowed, a.Estimator) {
		errs = append(errs, field.NotSupported(field.NewPath("estimator"), a.Estimator, allowed[1:]))
	}
	if g := a.Aggregated; g != nil {
		at := field.NewPath("aggregated")
		errs = append(errs, validateUsage(at.Child("usageThresholds"), g.UsageThresholds, 0, percent)...)
		types := annotation.AggregationTypes()
		if len(g.UsageThresholds) > 0 && g.UsageAggregationType == "" {
			errs = append(errs, field.Required(at.Child("usageAggregationType"),
				"must be set with usageThresholds: avg, p50, p90, p95 or p99"))
		} else if g.UsageAggregationType != "" {
			errs = append(errs, oneOf(at.Child("usageAggregationType"), g.UsageAggregationType, types...)...)
		}
		if g.ScoreAggregationType != "" {
			errs = append(errs, oneOf(at.Child("scoreAggregationType"), g.ScoreAggregationType, types...)...)
		}
		for name, d := range map[string]metav1.Duration{
			"usageAggregatedDuration": g.UsageAggregatedDuration, "scoreAggregatedDuration": g.ScoreAggregatedDuration,
		} {
			if d.Duration < 0 {
				errs = append(errs, field.Invalid(at.Child(name), d.Duration.String(), "must not be negative"))
			}
		}
	}
	return errs
}

// validateUsage accepts values from least to 100 of the resources whose use is reported.
func validateUsage(path *field.Path, all map[corev1.ResourceName]int64, least int64, rule string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch n := all[name]; {
		case name != corev1.ResourceCPU && name != corev1.ResourceMemory:
			errs = append(errs, field.NotSupported(path, string(name), []string{"cpu", "memory"}))
		case n < least || n > 100:
			errs = append(errs, field.Invalid(path.Key(string(name)), n, rule))
		}
	}
	return errs
}

package annotation

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// UsageThresholdsKey is an annotation of a Node that holds UsageThresholds: those of this node, in place of those of
// the plugin LoadAwareScheduling.
const UsageThresholdsKey = "scheduling.koordinator.sh/usage-thresholds"

// Annotations of a Pod that say how much it will use. They are read where the argument allowCustomizeEstimation of the
// plugin LoadAwareScheduling is true.
const (
	// EstimatedScalingFactorsKey holds Factors: which percentages of what it asks for the pod will use.
	EstimatedScalingFactorsKey = "scheduling.koordinator.sh/load-estimated-scaling-factors"
	// EstimatedSecondsAfterPodScheduled is for how many seconds after the pod was scheduled the estimate counts beside
	// what is reported of it.
	EstimatedSecondsAfterPodScheduled = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
	// EstimatedSecondsAfterInitialized is the same, after its init containers have ended.
	EstimatedSecondsAfterInitialized = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
)

// UsageThresholds are how much of a node may be used, in percent of what is allocatable, before pods go elsewhere. 0
// switches the threshold of a resource off. A group that is absent is that of the plugin's arguments.
type UsageThresholds struct {
	// UsageThresholds are for all pods.
	UsageThresholds map[string]int64 `json:"usageThresholds,omitempty"`
	// ProdUsageThresholds are for production pods, by the use of production pods.
	ProdUsageThresholds map[string]int64 `json:"prodUsageThresholds,omitempty"`
	// AggregatedUsage are by a percentile, in place of UsageThresholds.
	AggregatedUsage *AggregatedUsage `json:"aggregatedUsage,omitempty"`
}

// AggregatedUsage are thresholds for a percentile of the use.
type AggregatedUsage struct {
	UsageThresholds map[string]int64 `json:"usageThresholds,omitempty"`
	// UsageAggregationType is avg, p50, p90, p95 or p99.
	UsageAggregationType string `json:"usageAggregationType,omitempty"`
	// UsageAggregatedDuration is over which time, such as 5m; the longest that is reported where it is absent.
	UsageAggregatedDuration string `json:"usageAggregatedDuration,omitempty"`
}

// Duration returns the time, 0 for the longest that is reported.
func (a *AggregatedUsage) Duration() time.Duration {
	d, _ := time.ParseDuration(a.UsageAggregatedDuration)
	return d
}

// AggregationTypes returns the names of percentiles, and that of the average.
func AggregationTypes() []string { return []string{"avg", "p50", "p90", "p95", "p99"} }

// ParseUsageThresholds reads UsageThresholds.
func ParseUsageThresholds(text string) (UsageThresholds, []Warning, error) {
	return read(text, func(r *reader, t *UsageThresholds) {
		r.percentages("usageThresholds", t.UsageThresholds, 0, 100)
		r.percentages("prodUsageThresholds", t.ProdUsageThresholds, 0, 100)
		a := t.AggregatedUsage
		if a == nil {
			return
		}
		const field = "aggregatedUsage"
		r.percentages(field+".usageThresholds", a.UsageThresholds, 0, 100)
		if len(a.UsageThresholds) > 0 && !slices.Contains(AggregationTypes(), a.UsageAggregationType) {
			r.refuse(field+".usageAggregationType", Error{
				Value: a.UsageAggregationType, Allowed: AggregationTypes(),
				Text: Unsupported(a.UsageAggregationType, AggregationTypes()...),
			})
		}
		if d, err := time.ParseDuration(a.UsageAggregatedDuration); a.UsageAggregatedDuration != "" &&
			(err != nil || d < 0) {
			r.refuse(field+".usageAggregatedDuration", Error{
				Value: a.UsageAggregatedDuration,
				Text:  fmt.Sprintf("must be a duration such as 5m, is %.64q", a.UsageAggregatedDuration),
			})
		}
	})
}

// percentages refuses resources whose use is not reported, and values outside of a range.
func (r *reader) percentages(field string, all map[string]int64, least, most int64) {
	at := func(name string) string {
		if field == "" {
			return name
		}
		return field + "." + name
	}
	for _, name := range sorted(all) {
		if name != "cpu" && name != "memory" {
			r.refuse(at(name), Error{Value: name, Text: Unsupported(name, "cpu", "memory")})
		} else if n := all[name]; n < least || n > most {
			r.refuse(at(name), Error{Text: fmt.Sprintf("must be %d…%d percent, is %d", least, most, n)})
		}
	}
}

// Factors are percentages by resource.
type Factors map[string]int64

// String returns the canonical JSON.
func (f Factors) String() string {
	if f == nil {
		f = Factors{}
	}
	return encode(map[string]int64(f))
}

// ParseEstimatedScalingFactors reads Factors.
func ParseEstimatedScalingFactors(text string) (Factors, []Warning, error) {
	return read(text, func(r *reader, f *Factors) { r.percentages("", *f, 1, 1000) })
}

// ParseEstimatedSeconds reads a number of seconds.
func ParseEstimatedSeconds(text string) (time.Duration, []Warning, error) {
	const most = 3155760000 // 100 years; a Duration holds 292
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, nil, invalid(text, "must be a whole number of seconds from 0 to 3155760000 (100 years)")
	}
	return time.Duration(n) * time.Second, nil, nil
}

// SkipUpdateResources is an annotation of a ClusterColocationProfile: "true" leaves the CPU and memory of its pods as
// they are.
const SkipUpdateResources = "config.koordinator.sh/skip-update-resources"

// ExtendedResourceSpecKey holds an ExtendedResourceSpec, written by the webhook that rewrites a pod's CPU and memory.
const ExtendedResourceSpecKey = "node.koordinator.sh/extended-resource-spec"

// ExtendedResourceSpec is what the containers of a pod request of batch and mid resources: container runtimes see a
// pod's annotations, but not such requests.
type ExtendedResourceSpec struct {
	// Containers are by name, init containers too.
	Containers map[string]ExtendedResources `json:"containers,omitempty"`
}

// ExtendedResources are the batch and mid resources of one container.
type ExtendedResources struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

// ParseExtendedResourceSpec reads an ExtendedResourceSpec. No amount may be negative.
func ParseExtendedResourceSpec(text string) (ExtendedResourceSpec, []Warning, error) {
	return readAmounts(text, func(r *reader, s *ExtendedResourceSpec) {
		for _, c := range s.Containers {
			for _, amounts := range []corev1.ResourceList{c.Requests, c.Limits} {
				for name, q := range amounts {
					if q.Sign() < 0 {
						r.refuse("containers", Error{Text: string(name) + ": must not be negative"})
					}
				}
			}
		}
	})
}

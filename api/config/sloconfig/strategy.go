package sloconfig

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/strict"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
)

// Policies by which pods count that are neither batch nor free.
const (
	Usage           = "usage"
	Request         = "request" // of memory alone
	MaxUsageRequest = "maxUsageRequest"
)

// maxReclaimPercent is the largest share of the capacity that all pods together may use. Above 100 percent it bounds
// what pods request.
const maxReclaimPercent = 200

// MidStatic is the midReclaimMode that gives mid pods a fixed share.
const MidStatic = "static"

// Strategy is how the resources of a Node are measured and reclaimed. Defaults are those of Default; nil is "not said".
type Strategy struct {
	// Enable shows batch and mid amounts in the Node. Default: false.
	Enable *bool `json:"enable,omitempty"`
	// MetricAggregateDurationSeconds is the time over which use is averaged, 1 to 86400. Default: 300.
	MetricAggregateDurationSeconds *int64 `json:"metricAggregateDurationSeconds,omitempty"`
	// MetricReportIntervalSeconds is the time between two reports, 1 to 86400. Default: 60.
	MetricReportIntervalSeconds *int64 `json:"metricReportIntervalSeconds,omitempty"`
	// MetricAggregatePolicy has the times over which percentiles are reported. Default: 5m, 10m, 30m.
	MetricAggregatePolicy *slo.AggregatePolicy `json:"metricAggregatePolicy,omitempty"`
	// MetricMemoryCollectPolicy says which memory counts as used. Default: usageWithoutPageCache.
	MetricMemoryCollectPolicy *slo.NodeMemoryCollectPolicy `json:"metricMemoryCollectPolicy,omitempty"`

	// CPUReclaimThresholdPercent is the share of the capacity that all pods together may use, 0 to 200. Above 100 it
	// leaves more where pods count with their requests, and never what they and the system use. Default: 60.
	CPUReclaimThresholdPercent *int64 `json:"cpuReclaimThresholdPercent,omitempty"`
	// CPUCalculatePolicy is usage or maxUsageRequest. Default: usage.
	CPUCalculatePolicy *string `json:"cpuCalculatePolicy,omitempty"`
	// MemoryReclaimThresholdPercent is that of memory, 0 to 200. Default: 65.
	MemoryReclaimThresholdPercent *int64 `json:"memoryReclaimThresholdPercent,omitempty"`
	// MemoryCalculatePolicy is usage, request or maxUsageRequest. Default: usage.
	MemoryCalculatePolicy *string `json:"memoryCalculatePolicy,omitempty"`
	// BatchCPUThresholdPercent is the most that batch pods get of the capacity, 0 to 100. Default: 100.
	BatchCPUThresholdPercent *int64 `json:"batchCPUThresholdPercent,omitempty"`
	// BatchMemoryThresholdPercent is that of memory, 0 to 100. Default: 100.
	BatchMemoryThresholdPercent *int64 `json:"batchMemoryThresholdPercent,omitempty"`

	// DegradeTimeMinutes is the age at which a report grants nothing more, 1 to 1440. Default: 15.
	DegradeTimeMinutes *int64 `json:"degradeTimeMinutes,omitempty"`
	// UpdateTimeThresholdSeconds is the age at which a Node is written with any change, 1 to 86400. Default: 300.
	UpdateTimeThresholdSeconds *int64 `json:"updateTimeThresholdSeconds,omitempty"`
	// ResourceDiffThreshold is the change above which a Node is written at once, above 0 and at most 1. Default: 0.1.
	ResourceDiffThreshold *float64 `json:"resourceDiffThreshold,omitempty"`

	// MidCPUThresholdPercent is the most that mid pods get of the allocatable amount, 0 to 100. Default: 100.
	MidCPUThresholdPercent *int64 `json:"midCPUThresholdPercent,omitempty"`
	// MidMemoryThresholdPercent is that of memory, 0 to 100. Default: 100.
	MidMemoryThresholdPercent *int64 `json:"midMemoryThresholdPercent,omitempty"`
	// MidUnallocatedPercent is the share of what prod pods have not requested, 0 to 100. Default: 0.
	MidUnallocatedPercent *int64 `json:"midUnallocatedPercent,omitempty"`
	// MidReclaimMode is static, for a fixed share, or empty, for what prod pods are predicted not to use. Default: "".
	MidReclaimMode *string `json:"midReclaimMode,omitempty"`
	// MidStaticCPUReservedPercent is the fixed share of the capacity, 0 to 100. Default: 0.
	MidStaticCPUReservedPercent *int64 `json:"midStaticCPUReservedPercent,omitempty"`
	// MidStaticMemoryReservedPercent is that of memory, 0 to 100. Default: 0.
	MidStaticMemoryReservedPercent *int64 `json:"midStaticMemoryReservedPercent,omitempty"`
}

// Default returns what holds where nothing is said.
func Default() Strategy {
	var durations []metav1.Duration
	for _, minutes := range []time.Duration{5, 10, 30} {
		durations = append(durations, metav1.Duration{Duration: minutes * time.Minute})
	}
	return Strategy{
		Enable:                         new(false),
		MetricAggregateDurationSeconds: new(int64(300)), MetricReportIntervalSeconds: new(int64(60)),
		MetricAggregatePolicy:      &slo.AggregatePolicy{Durations: durations},
		MetricMemoryCollectPolicy:  new(slo.UsageWithoutPageCache),
		CPUReclaimThresholdPercent: new(int64(60)), CPUCalculatePolicy: new(Usage),
		MemoryReclaimThresholdPercent: new(int64(65)), MemoryCalculatePolicy: new(Usage),
		BatchCPUThresholdPercent: new(int64(100)), BatchMemoryThresholdPercent: new(int64(100)),
		DegradeTimeMinutes: new(int64(15)), UpdateTimeThresholdSeconds: new(int64(300)),
		ResourceDiffThreshold:  new(0.1),
		MidCPUThresholdPercent: new(int64(100)), MidMemoryThresholdPercent: new(int64(100)),
		MidUnallocatedPercent: new(int64(0)), MidReclaimMode: new(""),
		MidStaticCPUReservedPercent: new(int64(0)), MidStaticMemoryReservedPercent: new(int64(0)),
	}
}

// over returns the strategy with what another one says.
func (s Strategy) over(said *Strategy) Strategy {
	text, err := json.Marshal(said)
	if err == nil {
		err = json.Unmarshal(text, &s) // fields that are not said are not in the text
	}
	if err != nil {
		panic(fmt.Sprintf("sloconfig: copy a strategy: %v", err)) // it was read from JSON
	}
	return s
}

// validate returns every field whose value cannot be used.
func (s *Strategy) validate(path *field.Path) (errs field.ErrorList) {
	between := func(name string, value *int64, least, most int64) {
		if value != nil && (*value < least || *value > most) {
			errs = append(errs, field.Invalid(child(path, name), *value, fmt.Sprintf("must be %d to %d", least, most)))
		}
	}
	oneOf := func(name string, value *string, allowed ...string) {
		if value != nil && !slices.Contains(allowed, *value) {
			errs = append(errs, field.NotSupported(child(path, name), *value, allowed))
		}
	}
	between("cpuReclaimThresholdPercent", s.CPUReclaimThresholdPercent, 0, maxReclaimPercent)
	between("memoryReclaimThresholdPercent", s.MemoryReclaimThresholdPercent, 0, maxReclaimPercent)
	for name, value := range map[string]*int64{
		"batchCPUThresholdPercent":       s.BatchCPUThresholdPercent,
		"batchMemoryThresholdPercent":    s.BatchMemoryThresholdPercent,
		"midCPUThresholdPercent":         s.MidCPUThresholdPercent,
		"midMemoryThresholdPercent":      s.MidMemoryThresholdPercent,
		"midUnallocatedPercent":          s.MidUnallocatedPercent,
		"midStaticCPUReservedPercent":    s.MidStaticCPUReservedPercent,
		"midStaticMemoryReservedPercent": s.MidStaticMemoryReservedPercent,
	} {
		between(name, value, 0, 100)
	}
	const day = 24 * 60 * 60
	between("metricAggregateDurationSeconds", s.MetricAggregateDurationSeconds, 1, day)
	between("metricReportIntervalSeconds", s.MetricReportIntervalSeconds, 1, day)
	between("updateTimeThresholdSeconds", s.UpdateTimeThresholdSeconds, 1, day)
	between("degradeTimeMinutes", s.DegradeTimeMinutes, 1, day/60)
	if d := s.ResourceDiffThreshold; d != nil && !(*d > 0 && *d <= 1) {
		errs = append(errs, field.Invalid(child(path, "resourceDiffThreshold"), *d, "must be above 0 and at most 1"))
	}
	oneOf("cpuCalculatePolicy", s.CPUCalculatePolicy, Usage, MaxUsageRequest)
	oneOf("memoryCalculatePolicy", s.MemoryCalculatePolicy, Usage, Request, MaxUsageRequest)
	oneOf("midReclaimMode", s.MidReclaimMode, "", MidStatic)
	oneOf("metricMemoryCollectPolicy", (*string)(s.MetricMemoryCollectPolicy), string(slo.UsageWithoutPageCache),
		string(slo.UsageWithHotPageCache), string(slo.UsageWithPageCache))
	if p := s.MetricAggregatePolicy; p != nil {
		for i, d := range p.Durations {
			if d.Duration <= 0 || d.Duration > day*time.Second {
				at := child(path, "metricAggregatePolicy").Child("durations").Index(i)
				errs = append(errs, field.Invalid(at, d.Duration.String(), "must be above 0 and at most 24h"))
			}
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// ParseStrategy reads the annotation colocation-strategy of a Node.
func ParseStrategy(text string) (s Strategy, err error) {
	documents, err := strict.Parse(annotation.NodeColocationStrategy, []byte(text))
	if err != nil {
		return s, err
	}
	if len(documents) != 1 {
		return s, fmt.Errorf("%s: has %d documents, want one", annotation.NodeColocationStrategy, len(documents))
	}
	d := documents[0]
	if err := d.Decode("", &s).Err(); err != nil {
		return Strategy{}, err
	}
	if err := d.Locate("", s.validate(nil).ToAggregate()).Err(); err != nil {
		return Strategy{}, err
	}
	return s, nil
}

// onNode returns the strategy with what the annotation and the labels of a Node say. A label counts over the
// annotation.
func (s Strategy) onNode(node *corev1.Node) (Strategy, error) {
	if text, ok := node.Annotations[annotation.NodeColocationStrategy]; ok {
		said, err := ParseStrategy(text)
		if err != nil {
			return s, fmt.Errorf("metadata.annotations[%s]: %w", annotation.NodeColocationStrategy, err)
		}
		s = s.over(&said)
	}
	if text, ok := node.Annotations[annotation.NodeThirdPartyAllocations]; ok {
		if _, _, err := annotation.ParseThirdPartyAllocations(text); err != nil {
			return s, fmt.Errorf("metadata.annotations[%s]: %w", annotation.NodeThirdPartyAllocations, err)
		}
	}
	for _, label := range []struct {
		key     string
		percent **int64
		most    float64
	}{
		{annotation.NodeCPUReclaimRatio, &s.CPUReclaimThresholdPercent, maxReclaimPercent / 100},
		{annotation.NodeMemoryReclaimRatio, &s.MemoryReclaimThresholdPercent, maxReclaimPercent / 100},
		{annotation.NodeMidStaticCPURatio, &s.MidStaticCPUReservedPercent, 1},
		{annotation.NodeMidStaticMemoryRatio, &s.MidStaticMemoryReservedPercent, 1},
	} {
		text, ok := node.Labels[label.key]
		if !ok {
			continue
		}
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ratio >= 0 && ratio <= label.most) {
			return s, fmt.Errorf("metadata.labels[%s]: Invalid value %q: must be a number from 0 to %g", label.key,
				text, label.most)
		}
		*label.percent = new(int64(math.Floor(ratio*100 + 1e-9)))
	}
	return s, nil
}

func child(path *field.Path, name string) *field.Path {
	if path == nil {
		return field.NewPath(name)
	}
	return path.Child(name)
}

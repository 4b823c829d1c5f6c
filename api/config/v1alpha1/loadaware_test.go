package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
)

func TestDefaultsOfLoadAwareScheduling(t *testing.T) {
	t.Parallel()
	type percentages = map[corev1.ResourceName]int64
	for name, c := range map[string]struct {
		text string
		got  func(*v1alpha1.LoadAwareSchedulingArgs) percentages
		want percentages
	}{
		"thresholds": {
			`{}`, func(a *v1alpha1.LoadAwareSchedulingArgs) percentages { return a.UsageThresholds },
			percentages{"cpu": 65, "memory": 95},
		},
		"a threshold for cpu removes that for memory": {
			`{"usageThresholds":{"cpu":50}}`,
			func(a *v1alpha1.LoadAwareSchedulingArgs) percentages { return a.UsageThresholds },
			percentages{"cpu": 50},
		},
		"a factor for cpu leaves that for memory": {
			`{"estimatedScalingFactors":{"cpu":50}}`,
			func(a *v1alpha1.LoadAwareSchedulingArgs) percentages { return a.EstimatedScalingFactors },
			percentages{"cpu": 50, "memory": 70},
		},
		"weights": {
			`{}`, func(a *v1alpha1.LoadAwareSchedulingArgs) percentages { return a.ResourceWeights },
			percentages{"cpu": 1, "memory": 1},
		},
		"no weights beside the scarcest resource": {
			`{"dominantResourceWeight":1}`,
			func(a *v1alpha1.LoadAwareSchedulingArgs) percentages { return a.ResourceWeights }, nil,
		},
	} {
		a, err := v1alpha1.Decode[v1alpha1.LoadAwareSchedulingArgs](&runtime.Unknown{Raw: []byte(c.text)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, c.got(&a)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestArgumentsOfLoadAwareSchedulingThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a negative threshold": {
			`{"usageThresholds":{"cpu":-1}}`,
			"usageThresholds.cpu: Invalid value: -1: must be 0…100 percent; 0 switches the threshold off",
		},
		"101 percent": {
			`{"prodUsageThresholds":{"memory":101}}`,
			"prodUsageThresholds.memory: Invalid value: 101: must be 0…100 percent; 0 switches the " +
				"threshold off",
		},
		"a factor of 0": {
			`{"estimatedScalingFactors":{"cpu":0}}`,
			"estimatedScalingFactors.cpu: Invalid value: 0: must be 1…100 percent",
		},
		"a resource whose use is not reported": {
			`{"usageThresholds":{"nvidia.com/gpu":1}}`,
			`usageThresholds: Unsupported value: "nvidia.com/gpu": supported values: "cpu", "memory"`,
		},
		"not a number": {`{"usageThresholds":{"cpu":"NaN"}}`, "NaN"},
		"an unknown percentile": {
			`{"aggregated":{"usageAggregationType":"p42"}}`,
			`aggregated.usageAggregationType: Unsupported value: "p42": supported values: "avg", "p50", ` +
				`"p90", "p95", "p99"`,
		},
		"thresholds without a percentile": {
			`{"aggregated":{"usageThresholds":{"cpu":1}}}`,
			"aggregated.usageAggregationType: Required value: must be set with usageThresholds: avg, p50, " +
				"p90, p95 or p99",
		},
		"a negative age": {
			`{"nodeMetricExpirationSeconds":-1}`,
			"nodeMetricExpirationSeconds: Invalid value: -1: must be 0…3155760000 (100 years)",
		},
		"an age that no Duration holds": {
			`{"nodeMetricExpirationSeconds":9223372036854775807}`,
			"nodeMetricExpirationSeconds: Invalid value: 9223372036854775807: must be 0…3155760000 (100 years)",
		},
		"another estimator": {
			`{"estimator":"mine"}`,
			`estimator: Unsupported value: "mine": supported values: "defaultEstimator"`,
		},
		"an unknown field": {`{"usageThreshold":{}}`, `did you mean "usageThresholds"?`},
	} {
		_, err := v1alpha1.Decode[v1alpha1.LoadAwareSchedulingArgs](&runtime.Unknown{Raw: []byte(c.text)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

package annotation_test

import (
	"testing"

	. "github.com/tenon-project/tenon/api/annotation"
)

func TestThresholdsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a negative threshold": {
			`{"usageThresholds":{"cpu":-1}}`, "byte 19: usageThresholds.cpu: must be 0…100 percent, is -1",
		},
		"101 percent": {
			`{"prodUsageThresholds":{"cpu":101}}`, "byte 23: prodUsageThresholds.cpu: must be 0…100 percent, is 101",
		},
		"0 switches a threshold off": {`{"usageThresholds":{"cpu":0,"memory":100}}`, ""},
		"not a number": {
			`{"usageThresholds":{"cpu":"NaN"}}`,
			"byte 31: usageThresholds: want a whole number that fits int64, got string",
		},
		"a resource that is not reported": {
			`{"usageThresholds":{"nvidia.com/gpu":50}}`,
			`byte 19: usageThresholds.nvidia.com/gpu: Unsupported value "nvidia.com/gpu": supported cpu, memory`,
		},
		"an unknown percentile": {
			`{"aggregatedUsage":{"usageThresholds":{"cpu":1},"usageAggregationType":"p42"}}`,
			`byte 19: aggregatedUsage.usageAggregationType: Unsupported value "p42": supported avg, p50, p90, p95, p99`,
		},
		"no percentile": {
			`{"aggregatedUsage":{"usageThresholds":{"cpu":1}}}`,
			`byte 19: aggregatedUsage.usageAggregationType: Unsupported value "": supported avg, p50, p90, p95, p99`,
		},
		"a time without a unit": {
			`{"aggregatedUsage":{"usageAggregatedDuration":"300"}}`,
			`byte 19: aggregatedUsage.usageAggregatedDuration: must be a duration such as 5m, is "300"`,
		},
		"a negative time": {
			`{"aggregatedUsage":{"usageAggregatedDuration":"-5m"}}`,
			`byte 19: aggregatedUsage.usageAggregatedDuration: must be a duration such as 5m, is "-5m"`,
		},
	} {
		got := ""
		if _, _, err := ParseUsageThresholds(c.text); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestEstimatesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"cpu":85}`: "", `{"cpu":1000}`: "",
		`{"cpu":0}`:   "byte 7: cpu: must be 1…1000 percent, is 0",
		`{"cpu":-85}`: "byte 7: cpu: must be 1…1000 percent, is -85",
		`{"gpu":85}`:  `byte 7: gpu: Unsupported value "gpu": supported cpu, memory`,
	} {
		got := ""
		if _, _, err := ParseEstimatedScalingFactors(text); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "-1", "1.5", "NaN", "1e3", "9223372036854775807"} {
		if _, _, err := ParseEstimatedSeconds(text); err == nil {
			t.Errorf("%q is read as seconds", text)
		}
	}
}

func FuzzUsageThresholds(f *testing.F) {
	roundTrip(f, ParseUsageThresholds,
		`{"usageThresholds":{"cpu":65},"prodUsageThresholds":{"memory":0},"aggregatedUsage":{"usageThresholds":{"cpu":`+
			`1},"usageAggregationType":"p95","usageAggregatedDuration":"5m"}}`)
}

func FuzzEstimatedScalingFactors(f *testing.F) {
	roundTrip(f, ParseEstimatedScalingFactors, `{"cpu":85,"memory":70}`)
}

func FuzzEstimatedSeconds(f *testing.F) {
	for _, s := range []string{"60", "0", "-1", "NaN", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, _, err := ParseEstimatedSeconds(text)
		if err == nil && d < 0 {
			t.Fatalf("%q is read as %v", text, d)
		}
	})
}

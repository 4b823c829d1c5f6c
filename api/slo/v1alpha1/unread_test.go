package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
)

func TestFieldsThatNoPartReadsAreNamed(t *testing.T) {
	t.Parallel()
	one, first := new(int64(1)), new(int32(1))
	for name, c := range map[string]struct {
		spec slo.NodeSLOSpec
		want []string
	}{
		"nothing is set": {},
		"what is read": {slo.NodeSLOSpec{
			ResourceUsedThresholdWithBE: &slo.ResourceThresholdStrategy{
				Enable: new(true), CPUSuppressThresholdPercent: one, MemoryEvictThresholdPercent: one,
				CPUEvictBESatisfactionLowerPercent: one,
			},
			CPUBurstStrategy: &slo.CPUBurstStrategy{
				CPUBurstConfig: slo.CPUBurstConfig{Policy: slo.CPUBurstOnly, CPUBurstPercent: one},
			},
			HostApplications: []slo.HostApplicationSpec{{Name: "db"}}, Extensions: &slo.Unread{},
		}, nil},
		"what is not": {slo.NodeSLOSpec{
			ResourceUsedThresholdWithBE: &slo.ResourceThresholdStrategy{
				CPUSuppressMinPercent: one, EvictEnabledPriorityThreshold: first, CPUEvictThresholdPercent: one,
			},
			SystemStrategy: &slo.Unread{}, CPUBurstStrategy: &slo.CPUBurstStrategy{
				CPUBurstConfig: slo.CPUBurstConfig{
					Policy: slo.CPUBurstAuto, CPUBurstPercent: one, CFSQuotaBurstPercent: one,
					CFSQuotaBurstPeriodSeconds: one,
				},
				SharePoolThresholdPercent: one,
			},
			ResourceQOSStrategy: &slo.ResourceQOSStrategy{},
		}, []string{
			"resourceUsedThresholdWithBE.cpuEvictThresholdPercent",
			"resourceUsedThresholdWithBE.evictEnabledPriorityThreshold",
			"cpuBurstStrategy.cfsQuotaBurstPercent", "cpuBurstStrategy.cfsQuotaBurstPeriodSeconds",
			"cpuBurstStrategy.policy: quota scaling of auto", "cpuBurstStrategy.sharePoolThresholdPercent",
			"resourceQOSStrategy", "systemStrategy",
		}},
		"a policy without effect": {slo.NodeSLOSpec{CPUBurstStrategy: &slo.CPUBurstStrategy{
			CPUBurstConfig: slo.CPUBurstConfig{Policy: slo.CFSQuotaBurstOnly},
		}}, []string{"cpuBurstStrategy.policy: cfsQuotaBurstOnly"}},
	} {
		if diff := cmp.Diff(c.want, c.spec.Unread()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestThrottledTimeInExtensions(t *testing.T) {
	t.Parallel()
	raw := func(text string) *slo.Unread {
		return &slo.Unread{RawExtension: runtime.RawExtension{Raw: []byte(text)}}
	}
	for name, c := range map[string]struct {
		extensions *slo.Unread
		want       int64
	}{
		"the agent's": {slo.ThrottledExtension(120), 120}, "none": {slo.ThrottledExtension(0), 0},
		"another program's": {raw(`{"a":1}`), 0}, "both": {raw(`{"a":1,"cpuThrottledMilliseconds":7}`), 7},
		"a word":         {raw(`{"cpuThrottledMilliseconds":"7"}`), 0},
		"less than none": {raw(`{"cpuThrottledMilliseconds":-7}`), 0},
		"no object":      {raw(`7`), 0}, "not JSON": {raw(`{`), 0},
	} {
		if got := (&slo.PodMetricInfo{Extensions: c.extensions}).Throttled(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

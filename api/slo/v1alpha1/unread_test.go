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

func TestWhatTheAgentSaysInExtensions(t *testing.T) {
	t.Parallel()
	raw := func(text string) *slo.Unread {
		return &slo.Unread{RawExtension: runtime.RawExtension{Raw: []byte(text)}}
	}
	ms := func(milliseconds int64) slo.PodExtension {
		return slo.PodExtension{ThrottledMilliseconds: milliseconds}
	}
	fires := slo.PodExtension{Interrupts: &slo.InterruptRate{Devices: 3, Kernel: 250, Busiest: "24 (eth0)"}}
	none := slo.PodExtension{Interrupts: &slo.InterruptRate{}}
	for name, c := range map[string]struct {
		extensions *slo.Unread
		want       slo.PodExtension
	}{
		"the agent's":       {ms(120).Encode(), ms(120)},
		"nothing to say":    {ms(0).Encode(), ms(0)},
		"interrupts":        {fires.Encode(), fires},
		"no interrupts":     {none.Encode(), none},
		"another program's": {raw(`{"a":1}`), ms(0)},
		"both":              {raw(`{"a":1,"cpuThrottledMilliseconds":7}`), ms(7)},
		"a word": {
			raw(`{"cpuThrottledMilliseconds":"7","interruptsPerSecond":{"devices":0,"kernel":0}}`), none,
		},
		"less than none":    {raw(`{"cpuThrottledMilliseconds":-7}`), ms(0)},
		"fewer than none":   {raw(`{"interruptsPerSecond":{"devices":-1,"kernel":3}}`), ms(0)},
		"less than none, 2": {raw(`{"interruptsPerSecond":{"devices":1,"kernel":-3}}`), ms(0)},
		"no object":         {raw(`7`), ms(0)},
		"not JSON":          {raw(`{`), ms(0)},
		"no extensions":     {nil, ms(0)},
	} {
		got := (&slo.PodMetricInfo{Extensions: c.extensions}).Extension()
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if raw := ms(0).Encode(); raw != nil {
		t.Errorf("nothing to say is %s, want no extensions", raw.Raw)
	}
}

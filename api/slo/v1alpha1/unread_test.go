package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
			HostApplications: []slo.HostApplicationSpec{{Name: "db"}}, Extensions: &slo.Unread{},
		}, nil},
		"what is not": {slo.NodeSLOSpec{
			ResourceUsedThresholdWithBE: &slo.ResourceThresholdStrategy{
				CPUSuppressMinPercent: one, EvictEnabledPriorityThreshold: first, CPUEvictThresholdPercent: one,
			},
			SystemStrategy: &slo.Unread{}, CPUBurstStrategy: &slo.Unread{},
			ResourceQOSStrategy: &slo.ResourceQOSStrategy{},
		}, []string{
			"resourceUsedThresholdWithBE.cpuEvictThresholdPercent",
			"resourceUsedThresholdWithBE.evictEnabledPriorityThreshold",
			"cpuBurstStrategy", "resourceQOSStrategy", "systemStrategy",
		}},
	} {
		if diff := cmp.Diff(c.want, c.spec.Unread()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

package why_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/why"
)

func TestCausesOfTheKubeletAreReported(t *testing.T) {
	t.Parallel()
	tests := map[string]why.Reason{
		"node(s) kubelet would reject: TopologyAffinityError (no NUMA nodes in common)": {
			Code: why.KubeletTopologyAffinity, Extra: int64(why.NoCommonNodes),
		},
		"node(s) kubelet would reject: TopologyAffinityError (more than one NUMA node needed)": {
			Code: why.KubeletTopologyAffinity, Extra: int64(why.ManyNodes),
		},
		"node(s) kubelet would reject: TopologyAffinityError": {Code: why.KubeletTopologyAffinity},
		"node(s) kubelet would reject: UnexpectedAdmissionError (not enough memory)": {
			Code: why.KubeletAdmission, Extra: int64(why.MemoryShort),
		},
		"node(s) kubelet would reject: UnexpectedAdmissionError (the container already holds another amount)": {
			Code: why.KubeletAdmission, Extra: int64(why.OtherAmountHeld),
		},
		"node(s) kubelet would reject: UnexpectedAdmissionError": {Code: why.KubeletAdmission, Extra: 99},
		"node(s) kubelet would reject: SMTAlignmentError":        {Code: why.KubeletSMTAlignment, Extra: 2},
	}
	for want, reason := range tests {
		if got := reason.Text(); got != want {
			t.Errorf("%+v: got %q, want %q", reason, got, want)
		}
	}
}

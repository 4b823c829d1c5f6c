package quotarevoke

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/amount"
)

func TestShortage(t *testing.T) {
	t.Parallel()
	asked := amount.List{"cpu": 1000, "memory": 1 << 30, "nvidia.com/gpu": 1, "koordinator.sh/gpu": 0}
	for name, tt := range map[string]struct {
		message string
		want    []string
		level   string
	}{
		"the stock scheduler": {
			message: "0/5 nodes are available: 2 Insufficient cpu, 3 Insufficient nvidia.com/gpu. preemption: 0/5 " +
				"nodes are available: 5 No preemption victims found for incoming pod.",
			want: []string{"cpu", "nvidia.com/gpu"},
		},
		"the last one ends the sentence": {
			message: "0/5 nodes are available: 5 Insufficient memory.", want: []string{"memory"},
		},
		"a resource whose name begins alike": {message: "0/5 nodes are available: 5 Insufficient cpus-of-mine."},
		"a code of ours": {
			message: `InsufficientExclusiveCPU: 0/5 nodes are available: 5 node(s) too few CPUs. ` +
				`{"code":"InsufficientExclusiveCPU","nodes":5,"asked":4,"free":2,"resource":"cpu"}`,
			want: []string{"cpu"},
		},
		"a quota": {
			message: "Insufficient quotas, quotaName: eng, runtime: {cpu: 5, memory: 1}, used: {cpu: 5}, " +
				"pod's request: {cpu: 1}, exceedDimensions: [cpu nvidia.com/gpu]",
			want: []string{"cpu", "nvidia.com/gpu"}, level: "eng",
		},
		"node affinity": {message: "0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector."},
		"nothing":       {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, level := shortage(tt.message, asked)
			if diff := cmp.Diff(tt.want, got); diff != "" || level != tt.level {
				t.Errorf("shortage of level %q, want %q (-want +got):\n%s", level, tt.level, diff)
			}
		})
	}
}

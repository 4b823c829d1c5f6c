package describe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/kube/describe"
)

// TestWhatHoldsOnThePodsCPUs: the topology has CPUs 0-3 on two cores of two threads.
func TestWhatHoldsOnThePodsCPUs(t *testing.T) {
	t.Parallel()
	const cores = `{"detail":[{"id":0,"core":0},{"id":1,"core":1},{"id":2,"core":0},{"id":3,"core":1}]}`
	for name, c := range map[string]struct {
		quiet, cpus string
		want        []string
	}{
		"all": {`{"isolated":"1,3","noHzFull":"1,3"}`, "1,3", []string{
			"CPUs 1,3 have: isolated (isolcpus); no tick (nohz_full); no RCU callbacks (rcu_nocbs); no irqbalance; " +
				"full clock; whole cores; no fixed interrupts",
		}},
		"nothing but one": {`{"irqbalance":true,"slowGovernors":["powersave"],"fixedInterrupts":"1"}`, "0-1", []string{
			"CPUs 0-1 lack isolation: not isolated (isolcpus): CPUs 0-1; tick (no nohz_full): CPUs 0-1; RCU " +
				"callbacks (no rcu_nocbs): CPUs 0-1; irqbalance runs; frequency governor powersave; sibling threads " +
				"are in other use: CPUs 0-1; interrupts that cannot be moved: CPU 1 (tenon doctor --node n has the " +
				"commands)",
		}},
		"an annotation that cannot be read": {`[]`, "1", nil},
		"CPUs that are not a list":          {`{}`, "one", nil},
		"no CPUs":                           {`{}`, "", nil},
	} {
		topology := &v1alpha2.NodeResourceTopology{}
		topology.Name = "n"
		topology.Annotations = map[string]string{
			annotation.IsolatedCPUsKey: c.quiet, annotation.CPUTopology: cores,
		}
		if diff := cmp.Diff(c.want, describe.Quiet(topology, c.cpus)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

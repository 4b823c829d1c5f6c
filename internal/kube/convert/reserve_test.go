package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// An LS pod of 120 CPUs must not fit 128 CPUs of which 32 are reserved, nor 100Gi beside 500Gi reserved of 512Gi.
func TestWhatIsReservedLeavesAllocatable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ reservation, system, cpu, memory string }{
		"nothing is reserved": {cpu: "128", memory: "512Gi"},
		"amounts": {
			reservation: `{"resources":{"cpu":"32","memory":"500Gi"}}`, cpu: "96",
			memory: "12Gi",
		},
		"Default is the default": {
			reservation: `{"resources":{"cpu":"32"},"applyPolicy":"Default"}`,
			cpu:         "96", memory: "512Gi",
		},
		"more CPUs are named": {
			reservation: `{"resources":{"cpu":"1500m"},"reservedCPUs":"0-3"}`,
			cpu:         "124", memory: "512Gi",
		},
		"fewer CPUs are named": {
			reservation: `{"resources":{"cpu":"1500m"},"reservedCPUs":"0"}`,
			cpu:         "126500m", memory: "512Gi",
		},
		"only CPUs are named": {reservation: `{"reservedCPUs":"0-31"}`, cpu: "96", memory: "512Gi"},
		"for CPU allocation only": {reservation: `{"resources":{"cpu":"9","memory":"1Gi"},` +
			`"reservedCPUs":"0-31","applyPolicy":"ReservedCPUsOnly"}`, cpu: "128", memory: "512Gi"},
		"more than there is": {
			reservation: `{"resources":{"cpu":"200","example.com/absent":"1"}}`,
			cpu:         "0", memory: "512Gi",
		},
		"unreadable":           {reservation: `{"resources":`, cpu: "128", memory: "512Gi"},
		"CPUs of class SYSTEM": {system: `{"cpuset":"0-7"}`, cpu: "120", memory: "512Gi"},
		"CPUs of class SYSTEM that all share": {
			system: `{"cpuset":"0-7","cpusetExclusive":false}`, cpu: "128",
			memory: "512Gi",
		},
		"both, two CPUs in both": {
			reservation: `{"reservedCPUs":"0-3"}`, system: `{"cpuset":"2-5"}`,
			cpu: "122", memory: "512Gi",
		},
	}
	for name, tt := range tests {
		node := object.Node("n", nil, "cpu", "128", "memory", "512Gi")
		allocatable := node.Status.Allocatable.DeepCopy()
		object.Annotate(node, annotation.NodeReservation, tt.reservation, annotation.NodeSystemQoSResource, tt.system)
		left := convert.Schedulable(node).Status.Allocatable
		want := object.List("cpu", tt.cpu, "memory", tt.memory)
		if diff := cmp.Diff(want, left); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(allocatable, node.Status.Allocatable); diff != "" {
			t.Errorf("%s: the node itself has changed (-was +is):\n%s", name, diff)
		}
	}
}

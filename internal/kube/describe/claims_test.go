package describe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/view"
)

// TestClaimsNameTheirDevicesAndNUMANodes: node n publishes d0 on NUMA node 0 and d1 on an unknown one.
func TestClaimsNameTheirDevicesAndNUMANodes(t *testing.T) {
	t.Parallel()
	v := ledger.New(ledger.Facts{
		Machine: grid.Machine{Arch: "amd64", Sockets: 2, Cores: 4, Threads: 2}.Build(t),
	}).View()
	slice := func(node string, numa int64) *resourcev1.ResourceSlice {
		s := &resourcev1.ResourceSlice{}
		s.Spec.Driver, s.Spec.NodeName, s.Spec.Pool.Name = "x", &node, "p"
		s.Spec.Devices = []resourcev1.Device{
			{Name: "d0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"resource.kubernetes.io/numaNode": {IntValue: &numa},
			}},
			{Name: "d1"},
		}
		return s
	}
	claim := func(name string, devices ...string) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{}
		c.Name, c.Status.Allocation = name, &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{}}
		for _, d := range devices {
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
				resourcev1.DeviceRequestAllocationResult{Driver: "x", Pool: "p", Device: d})
		}
		return c
	}
	waits := claim("waits")
	waits.Status.Allocation = nil
	held := []*resourcev1.ResourceClaim{claim("two", "d0", "d1"), waits, claim("none"), claim("lost", "d2")}
	published := []*resourcev1.ResourceSlice{slice("n", 0), slice("m", 1)}
	at := func(nodes ...int) []view.HeldClaim {
		return []view.HeldClaim{
			{Name: "two", Devices: []view.ClaimedDevice{{Name: "x/p/d0", NUMANodes: nodes}, {Name: "x/p/d1"}}},
			{Name: "none", Devices: []view.ClaimedDevice{}},
			{Name: "lost", Devices: []view.ClaimedDevice{{Name: "x/p/d2"}}},
		}
	}
	if diff := cmp.Diff(at(0), describe.Claims(held, published, "n", v)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(at(), describe.Claims(held, published, "n", nil)); diff != "" {
		t.Errorf("nothing known of the node (-want +got):\n%s", diff)
	}
}

package convert_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Slices that work, of GPUs that work, count by profile; their GPUs do not.
func TestCapacityOfSlices(t *testing.T) {
	t.Parallel()
	slice := func(id, gpu, profile string, health bool) devicev1alpha1.DeviceInfo {
		return devicev1alpha1.DeviceInfo{
			Type: "gpu", ID: id, Health: health,
			Labels: map[string]string{annotation.MIGParentLabel: gpu, annotation.MIGProfileLabel: profile},
			Resources: map[corev1.ResourceName]resource.Quantity{
				"koordinator.sh/gpu-memory": resource.MustParse("5Gi"),
			},
		}
	}
	d := &devicev1alpha1.Device{Spec: devicev1alpha1.DeviceSpec{Devices: []devicev1alpha1.DeviceInfo{
		{Type: "gpu", ID: "a", Health: true},
		{Type: "gpu", ID: "b"},
		{Type: "gpu", ID: "c", Health: true},
		{Type: "rdma", ID: "b", Health: true}, // no GPU, whatever its id
		slice("a1", "a", "1g.5gb", true), slice("a2", "a", "1g.5gb", true), slice("a3", "a", "2g.10gb", true),
		slice("a4", "a", "1g.5gb", false), slice("b1", "b", "1g.5gb", true), slice("x", "gone", "3g.20gb", true),
		slice("y", "gone", strings.Repeat("1", 60), true), slice("z", "gone", "1g 5gb", true),
	}}}
	list := func() string {
		var got []string
		for name, q := range convert.Capacity(d) {
			got = append(got, fmt.Sprint(name, " ", q.String()))
		}
		slices.Sort(got)
		return strings.Join(got, ", ")
	}
	const want = "koordinator.sh/gpu-core 100, koordinator.sh/gpu-memory-ratio 100, nvidia.com/mig-1g.5gb 2, " +
		"nvidia.com/mig-2g.10gb 1, nvidia.com/mig-3g.20gb 1"
	if got := list(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	d.Annotations = map[string]string{annotation.DeviceModeKey: annotation.DeviceFollow}
	if got := list(); got != "" {
		t.Errorf("under Follow %s", got)
	}
}

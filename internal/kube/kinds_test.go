package kube_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// TestKindsOfAnInformer: whatever comes, changes and goes, the kinds are those of the objects that are there, and those
// that the accounts of their nodes have.
func TestKindsOfAnInformer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var k kube.Kinds
		h := kube.Handler(k.PutDevice, k.RemoveDevice)
		there := map[string]*devicev1alpha1.Device{}
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node")
			object := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: name}}
			kind := rapid.SampledFrom([]string{"gpu", "rdma", "dpu", "qat"})
			for i, kind := range rapid.SliceOfN(kind, 0, 3).Draw(t, "types") {
				amount := resource.MustParse(rapid.SampledFrom([]string{"1", "100"}).Draw(t, "amount"))
				object.Spec.Devices = append(object.Spec.Devices, devicev1alpha1.DeviceInfo{
					Type: kind, ID: string(rune('0' + i)), Health: true,
					Resources: map[corev1.ResourceName]resource.Quantity{
						corev1.ResourceName("example.com/" + kind): amount,
					},
				})
			}
			switch was := there[name]; {
			case was == nil:
				h.OnAdd(object, rapid.Bool().Draw(t, "at first"))
				there[name] = object
			case rapid.Bool().Draw(t, "goes"):
				delete(there, name)
				if rapid.Bool().Draw(t, "missed") {
					h.OnDelete(cache.DeletedFinalStateUnknown{Key: name, Obj: was})
				} else {
					h.OnDelete(was)
				}
			default:
				h.OnUpdate(was, object)
				there[name] = object
			}
			want := map[device.Kind]bool{}
			for _, d := range there {
				kinds := convert.Inventory(d).Kinds()
				for _, kind := range kinds {
					want[kind] = true
				}
				if got := convert.DeviceKinds(d); !slices.Equal(got, kinds) {
					t.Fatalf("kinds %v of the object, %v of its account", got, kinds)
				}
			}
			got := k.List()
			for _, kind := range got {
				if !want[kind] {
					t.Fatalf("%v is listed, want %v", got, want)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("kinds %v, want %v", got, want)
			}
		}
	})
}

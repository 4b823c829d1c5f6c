package report_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/report"
	"github.com/tenon-project/tenon/internal/testkit"
)

// deviceServer is an API server for Devices that can delete them.
type deviceServer struct{ *server }

func (r deviceServer) Delete(_ context.Context, name string, o metav1.DeleteOptions, _ ...string) error {
	object, _ := r.state()
	if object == nil || *o.Preconditions.UID != object.GetUID() {
		return apierrors.NewConflict(devicev1alpha1.Resource().GroupResource(), name, nil)
	}
	r.remove()
	return nil
}

func deviceOf(ids ...string) *devicev1alpha1.Device {
	o := &devicev1alpha1.Device{}
	o.APIVersion, o.Kind, o.Name = devicev1alpha1.GroupVersion().String(), "Device", "n0"
	o.Labels = map[string]string{"node.koordinator.sh/gpu-model": "H100"}
	for _, id := range ids {
		o.Spec.Devices = append(o.Spec.Devices, devicev1alpha1.DeviceInfo{Type: "gpu", ID: id, Health: true})
	}
	return o
}

func listed(object *unstructured.Unstructured) string {
	if object == nil {
		return "no object"
	}
	devices, _, _ := unstructured.NestedSlice(object.Object, "spec", "devices")
	var ids []string
	for _, d := range devices {
		ids = append(ids, d.(map[string]any)["id"].(string))
	}
	return strings.Join(ids, " ")
}

func TestTheNodesDeviceIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gv := devicev1alpha1.GroupVersion()
		fields, err := managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), converter{},
			plain{}, plain{}, gv.WithKind("Device"), gv, "", nil)
		testkit.Check(t, err)
		api := deviceServer{&server{fields: fields, gv: gv, kind: "Device"}}
		var mu sync.Mutex
		var want, seen *devicev1alpha1.Device
		condition := ""
		r := report.NewDevice(report.Target{
			Objects: api, Node: "n0", Clock: clock.RealClock{},
			SetConflict: func(_ context.Context, holds bool, reason, message string) error {
				mu.Lock()
				defer mu.Unlock()
				if condition = ""; holds {
					condition = reason + ": " + message
				}
				return nil
			},
		}, func(published *devicev1alpha1.Device) *devicev1alpha1.Device {
			mu.Lock()
			defer mu.Unlock()
			seen = published
			return want
		})
		api.onWrite = r.Observe
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		step := func(what string, d *devicev1alpha1.Device, ids string, writes int) {
			t.Helper()
			mu.Lock()
			want = d
			mu.Unlock()
			r.Changed()
			later(2 * time.Minute)
			if object, n := api.state(); listed(object) != ids || n != writes {
				t.Errorf("%s: %q after %d writes, want %q after %d", what, listed(object), n, ids, writes)
			}
		}
		step("before the API was read", deviceOf("a"), "no object", 0)
		r.Observe(nil)
		step("the first object", deviceOf("a"), "a", 1)
		step("the same", deviceOf("a"), "a", 1)
		step("one more device", deviceOf("a", "b"), "a b", 2)
		mu.Lock()
		if seen == nil || len(seen.Spec.Devices) != 2 {
			t.Errorf("the source saw %+v published, want two devices", seen)
		}
		mu.Unlock()
		api.change("a-labeller", func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{"node.koordinator.sh/gpu-model": "H100", "x": "y"})
		})
		step("labels of others", deviceOf("a", "b"), "a b", 2)
		api.change("kubectl-edit", func(u *unstructured.Unstructured) {
			unstructured.RemoveNestedField(u.Object, "spec", "devices")
		})
		step("edited by hand", deviceOf("a", "b"), "a b", 3)
		parted := func(table string) *devicev1alpha1.Device {
			d := deviceOf("a", "b")
			d.Annotations = map[string]string{annotation.GPUPartitionsKey: table}
			d.Labels[annotation.GPUPartitionPolicyLabel] = annotation.PartitionHonor
			return d
		}
		wantTable := func(table, policy string) {
			t.Helper()
			object, _ := api.state()
			if got := object.GetAnnotations()[annotation.GPUPartitionsKey]; got != table ||
				object.GetLabels()[annotation.GPUPartitionPolicyLabel] != policy {
				t.Errorf("partitions %q, labels %v; want %q and %s", got, object.GetLabels(), table, policy)
			}
		}
		step("a derived table", parted("one"), "a b", 4)
		step("it is renewed", parted("two"), "a b", 5)
		wantTable("two", annotation.PartitionHonor)
		api.change("kubectl-annotate", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{annotation.GPUPartitionsKey: "theirs"})
		})
		step("a person writes one", parted("three"), "a b", 5)
		wantTable("theirs", annotation.PartitionHonor)
		api.change("kubectl-label", func(u *unstructured.Unstructured) {
			labels := u.GetLabels()
			labels[annotation.GPUPartitionPolicyLabel] = annotation.PartitionPrefer
			u.SetLabels(labels)
			u.SetAnnotations(nil)
		})
		step("a person removes it, and writes how it counts", parted("three"), "a b", 6)
		wantTable("three", annotation.PartitionPrefer)
		step("no device any more", nil, "no object", 6)
		r.Observe(nil)
		api.change("koordlet", func(u *unstructured.Unstructured) {
			theirs := []any{map[string]any{"type": "gpu", "id": "k"}}
			_ = unstructured.SetNestedSlice(u.Object, theirs, "spec", "devices")
		})
		step("another reporter", deviceOf("a"), "k", 6)
		if !strings.HasPrefix(condition, `ForeignWriter: the spec of Device n0 is written by "koordlet"`) {
			t.Errorf("condition %q", condition)
		}
		step("another reporter's object is not deleted", nil, "k", 6)
		api.remove()
		r.Observe(nil)
		step("it is gone", deviceOf("a"), "a", 7)
		if condition != "" {
			t.Errorf("condition %q", condition)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

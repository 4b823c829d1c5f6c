package deviceshare

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	basemetrics "k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestTheGaugesOfDevices(t *testing.T) {
	t.Parallel()
	store := kube.NewStore()
	gpu := func(i int, health bool) string {
		return fmt.Sprintf(`{"type":"gpu","id":"GPU-%d","minor":%d,"health":%t,"labels":`+
			`{"node.koordinator.sh/gpu-model":"A"},`+
			`"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"8Ki"}}`, i, i, health)
	}
	for node, devices := range map[string]string{
		"n": gpu(0, true) + "," + gpu(1, true) + "," + gpu(2, false) + `,{"type":"rdma","id":"x","health":true}`,
		"m": gpu(0, true),
	} {
		const object = `{"metadata":{"name":%q,"annotations":{%q:"Own"}},"spec":{"devices":[%s]}}`
		d, err := kube.ReadDevice(fmt.Appendf(nil, object, node, annotation.DeviceModeKey, devices))
		testkit.Check(t, err)
		store.PutDevice(d)
		store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	}
	store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}})
	store.PutPod(object.Pod("d/p", object.On("n"), object.Annotation(annotation.DeviceAllocatedKey,
		`{"gpu":[{"minor":1,"id":"GPU-1","resources":{"koordinator.sh/gpu-core":"30",`+
			`"koordinator.sh/gpu-memory":"2Ki"}}]}`)))
	registry := basemetrics.NewKubeRegistry()
	testkit.Check(t, registry.CustomRegister(NewGauges(store, nil)))
	families, err := registry.Gather()
	testkit.Check(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "tenon_device_")
			for _, l := range m.GetLabel() {
				key += " " + strings.TrimPrefix(l.GetValue(), "koordinator.sh/")
			}
			got[key] = m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"total n gpu-core gpu": 300, "free n gpu-core gpu": 170, "used n gpu-core gpu": 30,
		"total n gpu-memory gpu": 24 << 10, "free n gpu-memory gpu": 14 << 10, "used n gpu-memory gpu": 2 << 10,
		"total n rdma rdma": 100, "free n rdma rdma": 100, "used n rdma rdma": 0,
		"total m gpu-core gpu": 100, "free m gpu-core gpu": 100, "used m gpu-core gpu": 0,
		"total m gpu-memory gpu": 8 << 10, "free m gpu-memory gpu": 8 << 10, "used m gpu-memory gpu": 0,
		"fit_nodes 1 A": 2, "fit_nodes 2 A": 0, "fit_nodes 4 A": 0, "fit_nodes 8 A": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

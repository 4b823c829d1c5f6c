package kube

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
)

// TestADeviceOfKnownKindsIsReadAsAnyOther reads objects of which nothing, something and all is known already.
func TestADeviceOfKnownKindsIsReadAsAnyOther(t *testing.T) {
	t.Parallel()
	gpu := func(id string, more ...string) string {
		return `{"type":"gpu","id":"` + id + `"` + strings.Join(more, "") + `}`
	}
	var s sharedDevices
	for range 3 {
		for name, devices := range map[string]string{
			"two GPUs that differ by their ids": `[` + gpu("a") + `,` + gpu("b") + `]`,
			"the same of another node":          `[` + gpu("c") + `,` + gpu("d") + `]`,
			"an id that occurs twice":           `[` + gpu("a") + `,` + gpu("a") + `]`,
			"an id with escapes":                `[` + gpu(`\u0061\"`) + `]`,
			"an empty id":                       `[` + gpu("") + `]`,
			"no id":                             `[{"type":"gpu"}]`,
			"an id that is a number":            `[{"type":"gpu","id":7}]`,
			"another health":                    `[` + gpu("a", `,"health":true`) + `]`,
			"an unknown field":                  `[` + gpu("a", `,"colour":"red"`) + `,` + gpu("b") + `]`,
			"an odd field":                      `[` + gpu("a", `,"minor":"x"`) + `,` + gpu("b") + `]`,
			"an alias": `[{"deviceType":"rdma","id":"0000:01:00.0","resource":{"koordinator.sh/rdma":"100"}},` +
				gpu("a") + `]`,
			"amounts and a place": `[` + gpu("a", `,"resources":{"koordinator.sh/gpu-memory":"80Gi"},"topology":`+
				`{"socketID":0,"nodeID":1,"pcieID":"p","busID":"b"},"labels":{"x":"y"}`) + `]`,
			"no devices":       `[]`,
			"null":             `null`,
			"not a list":       `{}`,
			"not only objects": `[` + gpu("a") + `,7]`,
		} {
			metadata := `"metadata":{"name":"n","uid":"u","labels":{"l":"1"},"annotations":{"a":"2"},` +
				`"resourceVersion":"3","generation":4}`
			for _, parts := range []string{ // metadata are read whatever is in front of them
				metadata + `,"status":{"allocations":[]},"spec":{"devices":` + devices + `}`,
				`"spec":{"x":[{"}":1}],"devices":` + devices + ` , "y":{"z":"\\"}} ,` + metadata,
				`"spec":` + devices + `,` + metadata,
			} {
				text := json.RawMessage(`{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Device",` +
					parts + `}`)
				want, err := ReadDevice(text)
				if err != nil {
					want = &devicev1alpha1.Device{}
				}
				got := s.read(&text)
				want.TypeMeta, got.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
				if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b devicev1alpha1.DeviceSpec) bool {
					return len(a.Devices) == len(b.Devices) && (len(a.Devices) == 0 || cmp.Equal(a.Devices, b.Devices))
				})); diff != "" {
					t.Errorf("%s, in %s: (-want +got)\n%s", name, parts, diff)
				}
			}
		}
	}
	if len(s.kinds) == 0 {
		t.Error("no kind is kept")
	}
}

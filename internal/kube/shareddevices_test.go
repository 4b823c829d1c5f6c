package kube

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
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

// TestAccountsOfListedDevicesAreAsEachByItself: nodes of equal and of other servers, whose Devices share memory as a
// list's do, have the accounts that each of them has alone.
func TestAccountsOfListedDevicesAreAsEachByItself(t *testing.T) {
	t.Parallel()
	equal := 0 // accounts that differ by the ids of their devices alone
	rapid.Check(t, func(rt *rapid.T) {
		var s sharedDevices
		live, texts := NewStore(), map[string]json.RawMessage{}
		for range rapid.IntRange(1, 20).Draw(rt, "events") {
			name := fmt.Sprint("node-", rapid.IntRange(0, 3).Draw(rt, "node"))
			usual := func(label string, values ...any) any {
				return values[max(rapid.IntRange(-3, len(values)-1).Draw(rt, label), 0)]
			}
			switch {
			case rapid.IntRange(0, 4).Draw(rt, "gone") == 0:
				delete(texts, name)
				live.RemoveDevice(name)
			default:
				ids := usual("ids", name, "other", `odd \"`+name)
				gpu := func(i int, health any) string {
					return fmt.Sprintf(`{"type":"gpu","id":%q,"minor":%d,"health":%v,"resources":{`+
						`"koordinator.sh/gpu-memory":"%vGi"},"topology":{"busID":"%d%v"}}`,
						fmt.Sprint(ids, i), i, health, usual("memory", 80, 40), i, usual("bus", "", "x"))
				}
				links := fmt.Sprintf(`{"links":[{"ids":[%q,%q],"type":"NVLink","count":%v}]}`, fmt.Sprint(ids, 0),
					fmt.Sprint(ids, 1), usual("count", 4, 2))
				texts[name] = fmt.Appendf(nil, `{"metadata":{"name":%q,"annotations":{"node.tenon.sh/device-links":%q,`+
					`"node.tenon.sh/device-mode":%q},"labels":{"node.koordinator.sh/gpu-model":%q}},"spec":{"devices":`+
					`[%s,%s,{"type":"rdma","id":"%v","health":true}]}}`, name, links, usual("mode", "Own", "Follow"),
					usual("model", "H100", "A100"), gpu(0, usual("health", true, false)), gpu(1, true),
					usual("NIC", "0000:09:00.0", "0000:0a:00.0"))
				text := texts[name]
				live.PutDevice(s.read(&text))
			}
			if rapid.Bool().Draw(rt, "with its node") {
				live.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
		}
		for name, text := range texts {
			d, err := ReadDevice(text)
			if err != nil {
				rt.Fatal(err)
			}
			alone := NewStore()
			alone.PutDevice(d)
			if n, _ := live.Node(name); n.Object != nil {
				alone.PutNode(n.Object)
			}
			got, want := live.View(name), alone.View(name)
			if !got.Equal(want) || !want.Equal(got) {
				rt.Fatalf("the account of %s differs: %s", name, text)
			}
			got.Devices().Devices()(func(d device.Status) bool {
				if at := want.Facts().Devices.Resolve(d.ID); at != d.ID {
					rt.Fatalf("%s: the account has %q, the object names %q", name, d.ID, at)
				}
				return true
			})
			for other := range texts {
				if other < name && live.View(other).Likeness() == got.Likeness() && !live.View(other).Equal(got) {
					equal++
				}
			}
		}
	})
	if equal == 0 && !testing.Short() {
		t.Error("no two nodes are equal servers")
	}
}

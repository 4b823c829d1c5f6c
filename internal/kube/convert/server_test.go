package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/vary"
)

// TestEqualServersAreReadAsEachByItself: what Known keeps of servers changes no facts and no problems.
func TestEqualServersAreReadAsEachByItself(t *testing.T) {
	t.Parallel()
	read, models, reported := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		var known convert.Known
		pick := func(label, usual string, others ...string) string {
			if rapid.IntRange(0, 7).Draw(rt, "usual "+label) > 0 {
				return usual
			}
			return rapid.SampledFrom(append(others, usual)).Draw(rt, label)
		}
		for node := range rapid.IntRange(2, 12).Draw(rt, "nodes") {
			var devices []string
			n := rapid.IntRange(1, 3).Draw(rt, "GPUs")
			id := func(i int) string { return fmt.Sprintf("GPU-%d-%d", node, i) }
			switch pick("ids", "own", "equal", "reversed", "twice", "odd") {
			case "equal":
				id = func(i int) string { return fmt.Sprint("GPU-", i) }
			case "reversed":
				id = func(i int) string { return fmt.Sprintf("GPU-%d-%d", node, 9-i) }
			case "twice":
				id = func(i int) string { return fmt.Sprint("GPU-", i/2) }
			case "odd":
				id = func(i int) string { return fmt.Sprintf("GPU \\\"%d<%d", node, i) }
			}
			memory, health := pick("memory", "80Gi", "40Gi"), pick("health", "true", "false")
			bus := pick("bus", "known", "unknown") == "known"
			for i := range n {
				at := ""
				if bus {
					at = fmt.Sprintf(`,"topology":{"socketID":0,"nodeID":%d,"pcieID":"pci%d","busID":"%d1:00.0"}`, i/2,
						i, i)
				}
				devices = append(devices, fmt.Sprintf(`{"type":"gpu","id":%q,"minor":%d,"health":%s,"resources":{`+
					`"koordinator.sh/gpu-memory":%q}%s}`, id(i), i, health, memory, at))
			}
			switch pick("more", "", "rdma", "slice", "bad") {
			case "rdma":
				devices = append(devices, fmt.Sprintf(`{"type":"rdma","id":"0000:0%d:00.0","health":true}`, node%2))
			case "slice":
				devices = append(devices, fmt.Sprintf(`{"type":"gpu","id":"MIG-%d","health":true,"labels":{`+
					`"node.tenon.sh/mig-profile":"1g.5gb","node.tenon.sh/parent":%q}}`, node, id(0)))
			case "bad":
				devices = append(devices, `{"type":"gpu","id":7}`)
			}
			links := ""
			if n > 1 {
				links = fmt.Sprintf(`{"links":[{"ids":[%q,%q],"type":"NVLink","count":%s}]}`, id(0), id(1),
					pick("count", "4", "2"))
			}
			var annotations []string
			if text := pick("links", links, "", "{", `{"links":[{"ids":["x","y"]}]}`); text != "" || n > 1 {
				annotations = append(annotations, fmt.Sprintf(`"node.tenon.sh/device-links":%q`, text))
			}
			switch pick("annotation", "", "mode", "table", "given") {
			case "mode":
				annotations = append(annotations, `"node.tenon.sh/device-mode":"`+pick("mode", "Own", "None")+`"`)
			case "table":
				annotations = append(annotations, `"scheduling.koordinator.sh/gpu-partitions":"{\"1\":[{\"minors\":[`+
					pick("minor", "0", "5")+`]}]}"`)
			case "given":
				annotations = append(annotations, fmt.Sprintf(`"node.koordinator.sh/devices-checkpoints":"[{`+
					`\"podUID\":\"p\",`+
					`\"resourceName\":\"nvidia.com/gpu\",\"deviceIDs\":[\"%d\"]}]"`, node%3))
			}
			label := pick("model", "H100", "A100")
			object := deviceObject(t, `,"labels":{"node.koordinator.sh/gpu-model":"`+label+`"},"annotations":{`+
				strings.Join(annotations, ",")+`}`, "["+strings.Join(devices, ",")+"]")
			alone := *object
			want, wantProblems := devicesOf(&alone)
			got, problems := known.Read(convert.Sources{Devices: object}, convert.DefaultArgs())
			if !got.Equal(&want) || !want.Equal(&got) {
				rt.Fatalf("%+v: facts differ", object.Device)
			}
			if diff := cmp.Diff(wantProblems, problems); diff != "" {
				rt.Fatalf("problems (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(statuses(want), statuses(got)); diff != "" {
				rt.Fatalf("devices (-want +got):\n%s", diff)
			}
			a, b := ledger.New(want).View(), ledger.New(got).View()
			if a.UnknownHolders() != b.UnknownHolders() {
				rt.Fatal("unknown holders differ")
			}
			if len(problems) > 0 {
				reported++
			} else if got.Devices != nil {
				read++
			}
		}
		models += known.Servers()
	})
	if (read-models < 50 || reported < 10) && !testing.Short() {
		t.Errorf("%d nodes are of %d models, %d have problems", read, models, reported)
	}
}

// TestDevicesThatShareMemoryDifferByEveryField: devices of equal servers are compared by their pointers first, and a
// field that is forgotten there would give a server the devices of another one.
func TestDevicesThatShareMemoryDifferByEveryField(t *testing.T) {
	t.Parallel()
	kinds := vary.Whole(map[string]string{"a": "b"}, metav1.Now(),
		map[corev1.ResourceName]resource.Quantity{"a": resource.MustParse("1")})
	for _, kind := range []string{string(device.GPU), string(device.RDMA)} {
		var known convert.Known
		one := devicev1alpha1.DeviceInfo{Type: kind}
		vary.Fill(&one, kinds)
		same := one
		if !known.Alike(one, same) {
			t.Fatalf("a device of type %s differs from itself", kind)
		}
		vary.Each(&one, kinds, func(field string) {
			ignored := kind == string(device.GPU) && field == ".ID"
			if known.Alike(one, same) != ignored || known.Alike(same, one) != ignored {
				t.Errorf("type %s: DeviceInfo%s: alike is %t, want %t", kind, field, !ignored, ignored)
			}
		})
	}
}

// TestServersThatDifferByTheIDsOfGPUsAreReadOnce, in their links too.
func TestServersThatDifferByTheIDsOfGPUsAreReadOnce(t *testing.T) {
	t.Parallel()
	var known convert.Known
	for node := range 3 {
		object := deviceObject(t, fmt.Sprintf(`,"annotations":{%q:"{\"links\":[{\"ids\":[\"a%[2]d\",\"b%[2]d\"]}]}"}`,
			annotation.DeviceLinksKey, node), fmt.Sprintf(`[{"type":"gpu","id":"a%[1]d","minor":0,"health":true},`+
			`{"type":"gpu","id":"b%[1]d","minor":1,"health":true}]`, node))
		known.Read(convert.Sources{Devices: object}, convert.DefaultArgs())
	}
	if got := known.Servers(); got != 1 {
		t.Errorf("%d servers are kept, want 1", got)
	}
}

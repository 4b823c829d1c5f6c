package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

// published is an object as Koordinator's agent and scheduler write it.
const published = `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Device","metadata":{"name":"node-1",` +
	`"labels":{"node.koordinator.sh/gpu-vendor":"nvidia"}},"spec":{"devices":[` +
	`{"type":"gpu","id":"GPU-98583a5c","minor":0,"moduleID":1,"health":true,"labels":{"a":"b"},"resources":` +
	`{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"15472384Ki",` +
	`"koordinator.sh/gpu-memory-ratio":"100"},"topology":{"socketID":-1,"nodeID":0,"pcieID":"pci0000:3a",` +
	`"busID":"0000:3b:00.0"},"conditions":[{"type":"Healthy","status":"True","reason":"Ok","message":"",` +
	`"lastTransitionTime":"2026-01-02T03:04:05Z"}]},` +
	`{"type":"rdma","id":"0000:09:00.0","minor":0,"health":false,"resources":{"koordinator.sh/rdma":"100"},` +
	`"vfGroups":[{"labels":{"type":"general"},"vfs":[{"minor":-1,"busID":"0000:09:00.2"}]}]}]},` +
	`"status":{"allocations":[{"type":"gpu","entries":[{"name":"p","namespace":"d","uuid":"u","minors":[0]}]}]}}`

func TestObjectsOfKoordinatorAreReadAndWrittenUnchanged(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	testkit.Check(t, v1alpha1.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	typed, _, err := decoder.Decode([]byte(published), nil, nil)
	testkit.Check(t, err)
	got, warnings, err := v1alpha1.Decode([]byte(published))
	if err != nil || len(warnings) > 0 || len(got.Unread) > 0 {
		t.Fatalf("%v, %v, %v", warnings, err, got.Unread)
	}
	if diff := cmp.Diff(typed, runtime.Object(got)); diff != "" {
		t.Errorf("differs from what a typed client reads (-typed +got):\n%s", diff)
	}
	text, err := json.Marshal(got)
	testkit.Check(t, err)
	var before, after any
	testkit.Check(t, json.Unmarshal([]byte(published), &before))
	testkit.Check(t, json.Unmarshal(text, &after))
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	if r := v1alpha1.Resource().String(); r != "scheduling.koordinator.sh/v1alpha1, Resource=devices" {
		t.Errorf("Resource() = %s", r)
	}
}

func TestDecodeReadsEverySpelling(t *testing.T) {
	t.Parallel()
	amounts := func(pairs ...string) map[corev1.ResourceName]resource.Quantity {
		list := map[corev1.ResourceName]resource.Quantity{}
		for i := 0; i < len(pairs); i += 2 {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return list
	}
	whole := amounts(annotation.ResourceGPUCore, "100", annotation.ResourceGPUMemoryRatio, "100")
	for name, test := range map[string]struct {
		device   string
		want     v1alpha1.DeviceInfo
		warnings []annotation.Warning
	}{
		"a GPU as seed 001 declares it": {
			`{"deviceType":"gpu","id":"a","health":true,"resource":{"kubernetes.io/gpu-core":100,` +
				`"kubernetes.io/gpu-memory":"8Gi","kubernetes.io/gpu-memory-ratio":"100"}}`,
			v1alpha1.DeviceInfo{
				Type: "gpu", ID: "a", Health: true, Resources: amounts(annotation.ResourceGPUCore, "100",
					annotation.ResourceGPUMemory, "8Gi", annotation.ResourceGPUMemoryRatio, "100"),
			},
			nil,
		},
		"misspelt resources": {
			`{"type":"rdma","id":"a","resouurces":{"kubernetes.io/rdma":"100"}}`,
			v1alpha1.DeviceInfo{Type: "rdma", ID: "a", Resources: amounts(annotation.ResourceRDMA, "100")},
			nil,
		},
		"a GPU without resources": {
			`{"type":"gpu","id":"a"}`, v1alpha1.DeviceInfo{Type: "gpu", ID: "a", Resources: whole}, nil,
		},
		"a GPU without any resource": {
			`{"deviceType":"gpu","id":"a","resource":{}}`,
			v1alpha1.DeviceInfo{Type: "gpu", ID: "a", Resources: whole},
			nil,
		},
		"another device without resources": {
			`{"type":"fpga","id":"a"}`, v1alpha1.DeviceInfo{Type: "fpga", ID: "a"}, nil,
		},
		"a type that no pod can ask for": {
			`{"type":"xpu","id":"a"}`, v1alpha1.DeviceInfo{Type: "xpu", ID: "a"}, nil,
		},
		"a place that is not known is null": {
			`{"type":"fpga","id":"a","topology":null}`, v1alpha1.DeviceInfo{Type: "fpga", ID: "a"}, nil,
		},
		"a NUMA node that is not known is not 0": {
			`{"type":"fpga","id":"a","topology":{"busID":"b"}}`,
			v1alpha1.DeviceInfo{
				Type: "fpga", ID: "a", Topology: &v1alpha1.DeviceTopology{SocketID: -1, NodeID: -1, BusID: "b"},
			},
			nil,
		},
		"aliases of equal meaning": {
			`{"type":"fpga","deviceType":"fpga","id":"a","resources":{"koordinator.sh/fpga":100},` +
				`"resource":{"kubernetes.io/fpga":"100"}}`,
			v1alpha1.DeviceInfo{Type: "fpga", ID: "a", Resources: amounts(annotation.ResourceFPGA, "100")},
			nil,
		},
		"canonical names win over aliases": {
			`{"type":"fpga","deviceType":"gpu","id":"a","resources":{"koordinator.sh/fpga":100},` +
				`"resouurces":{"koordinator.sh/fpga":"50"}}`,
			v1alpha1.DeviceInfo{Type: "fpga", ID: "a", Resources: amounts(annotation.ResourceFPGA, "100")},
			[]annotation.Warning{
				{Field: "spec.devices[0].deviceType", Text: "conflicting values for type and its alias deviceType"},
				{
					Field: "spec.devices[0].resouurces",
					Text:  "conflicting values for resources and its alias resouurces",
				},
			},
		},
		"unknown fields": {
			`{"type":"fpga","id":"a","healthy":true,"topology":{"nodeId":1}}`,
			v1alpha1.DeviceInfo{Type: "fpga", ID: "a", Topology: &v1alpha1.DeviceTopology{SocketID: -1, NodeID: -1}},
			[]annotation.Warning{
				{Field: "spec.devices[0].healthy", Text: `unknown field, did you mean "health"?`},
				{Field: "spec.devices[0].topology.nodeId", Text: `unknown field, did you mean "nodeID"?`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := v1alpha1.Decode([]byte(`{"spec":{"devices":[` + test.device + `]}}`))
			if err != nil || len(got.Unread) > 0 {
				t.Fatalf("%v, %v", err, got.Unread)
			}
			if diff := cmp.Diff([]v1alpha1.DeviceInfo{test.want}, got.Spec.Devices); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.warnings, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// One odd device does not hide the others, and says what is wrong with it.
func TestDecodeLeavesOutWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	const good = `{"type":"gpu","id":"good"}`
	for name, test := range map[string]struct{ device, field, want string }{
		"no type":          {`{"id":"a"}`, ".type", "must be gpu, rdma, fpga or another type"},
		"no id":            {`{"type":"gpu"}`, ".id", "must be a UUID or a PCI address"},
		"an id twice":      {good, ".id", `"good" is also the id of spec.devices[0]: must be unique`},
		"not an object":    {`7`, "", "want an object, got number"},
		"a word as health": {`{"type":"gpu","id":"a","health":"yes"}`, ".health", "want true or false, got string"},
		"a minor that overflows": {
			`{"type":"gpu","id":"a","minor":4294967296}`, ".minor", "want a whole number that fits int32",
		},
		"more than a GPU": {
			`{"type":"gpu","id":"a","resource":{"kubernetes.io/gpu-core":200}}`, ".resource",
			"kubernetes.io/gpu-core: must be a whole percentage from 0 to 100, is 200",
		},
		"negative memory": {
			`{"type":"gpu","id":"a","resources":{"koordinator.sh/gpu-memory":-1}}`, ".resources",
			"koordinator.sh/gpu-memory: must not be negative, is -1",
		},
		"memory that takes seconds to read": {
			`{"type":"gpu","id":"a","resources":{"koordinator.sh/gpu-memory":"1e99999999"}}`, ".resources",
			`quantity "1e99999999" is out of range`,
		},
		"a NUMA node below -1": {
			`{"type":"gpu","id":"a","topology":{"nodeID":-2}}`, ".topology.nodeID", "must be -1 or more, is -2",
		},
		"a socket below -1": {
			`{"type":"gpu","id":"a","topology":{"socketID":-2}}`, ".topology.socketID", "must be -1 or more, is -2",
		},
		"a NUMA node in words": {
			`{"type":"gpu","id":"a","topology":{"nodeID":"0"}}`, ".topology.nodeID",
			"want a whole number that fits int32, got string",
		},
		"a virtual function without an address": {
			`{"type":"rdma","id":"a","vfGroups":[{"vfs":[{"minor":0}]}]}`, ".vfGroups",
			`the busID of each of vfs must be set, and unique: ""`,
		},
		"a virtual function of two groups": {
			`{"type":"rdma","id":"a","vfGroups":[{"vfs":[{"busID":"v"}]},{"vfs":[{"busID":"v"}]}]}`, ".vfGroups",
			`the busID of each of vfs must be set, and unique: "v"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, err := v1alpha1.Decode([]byte(`{"spec":{"devices":[` + good + `,` + test.device + `]}}`))
			testkit.Check(t, err)
			if len(got.Spec.Devices) != 1 || got.Spec.Devices[0].ID != "good" {
				t.Errorf("devices %+v, want the good one alone", got.Spec.Devices)
			}
			why, ok := got.Unread["spec.devices[1]"+test.field]
			if !ok || len(got.Unread) != 1 || !strings.Contains(why, test.want) {
				t.Errorf("%q, want %q of field %q", got.Unread, test.want, test.field)
			}
		})
	}
}

func TestDecodeKeepsTheRestOfAnOddObject(t *testing.T) {
	t.Parallel()
	got, _, err := v1alpha1.Decode([]byte(`{"metadata":{"name":"n"},"spec":{"devices":{}},"status":[]}`))
	testkit.Check(t, err)
	want := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Unread: map[string]string{
		"spec.devices": "want a list, got object", "status": "want an object, got array",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{``, `[]`, `{"spec":[]}`, `{} {}`} {
		if got, _, err := v1alpha1.Decode([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, got)
		}
	}
}

// What is read once is written and read again without change or warning.
func FuzzDecode(f *testing.F) {
	f.Add(published)
	f.Add(`{"spec":{"devices":[{"deviceType":"gpu","id":"a","resource":{"kubernetes.io/gpu-core":"1e1"}},{}]}}`)
	f.Add(`{"spec":{"devices":[null,{"type":"rdma","id":"a","topology":{},"vfGroups":[{"vfs":[{"busID":"v"}]}]}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		first, _, err := v1alpha1.Decode([]byte(text))
		if err != nil {
			return
		}
		first.Unread = nil
		written, err := json.Marshal(first)
		if err != nil {
			t.Skip(err) // a time that JSON cannot hold
		}
		again, warnings, err := v1alpha1.Decode(written)
		if err != nil || len(warnings) > 0 || len(again.Unread) > 0 {
			t.Fatalf("%q was written as %s, which reads with %v, %v, %v", text, written, warnings, err, again.Unread)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(written) {
			t.Fatalf("%q was written as %s, then as %s, %v", text, written, twice, err)
		}
	})
}

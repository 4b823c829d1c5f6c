package verb

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
)

// accounts returns the Devices of machines, and the accounts of all their nodes.
func accounts(t *testing.T, machines ...string) (map[string]*devicev1alpha1.Device, *kube.Store) {
	t.Helper()
	objects, err := MachineObjects(machines)
	testkit.Check(t, err)
	devices, store := map[string]*devicev1alpha1.Device{}, kube.NewStore()
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Node:
			store.PutNode(o)
		case *v1alpha2.NodeResourceTopology:
			store.PutTopology(o)
		case *devicev1alpha1.Device:
			devices[o.Name] = o
			store.PutDevice(o)
		}
	}
	return devices, store
}

// deviceRules are what an API server checks of a Device.
func deviceRules(t *testing.T) func(d *devicev1alpha1.Device) error {
	t.Helper()
	for _, doc := range deploy.CRDs() {
		var crd apiextensionsv1.CustomResourceDefinition
		testkit.Check(t, yaml.UnmarshalStrict(doc, &crd))
		if crd.Spec.Names.Kind != "Device" {
			continue
		}
		properties := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema, properties, nil); err != nil {
			t.Fatal(err)
		}
		validator, _, err := apivalidation.NewSchemaValidator(properties)
		testkit.Check(t, err)
		structural, err := schema.NewStructural(properties)
		testkit.Check(t, err)
		rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
		return func(d *devicev1alpha1.Device) error {
			var object map[string]any
			text, err := json.Marshal(d)
			if err == nil {
				err = yaml.Unmarshal(text, &object)
			}
			if err != nil {
				return err
			}
			errs := apivalidation.ValidateCustomResource(nil, object, validator)
			errs = append(errs, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
			if len(errs) == 0 && rules != nil {
				errs, _ = rules.Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
			}
			return errs.ToAggregate()
		}
	}
	t.Fatal("no definition of Device")
	return nil
}

// The best GPUs of each preset, by minor, one request after the other on an empty machine and beside what holds some.
func TestPresetsWithDevicesMeanWhatTheySay(t *testing.T) {
	t.Parallel()
	names := []string{"hgx-h100", "t4-2", "dgx-v100", "pcie-bridges", "mi300x", "fpga-2", "epyc-2s"}
	devices, store := accounts(t, names...)
	obeys := deviceRules(t)
	for name, d := range devices {
		if err := obeys(d); err != nil {
			t.Errorf("%s: the API server refuses the Device: %v", name, err)
		}
		if node, _ := store.Node(name); len(node.Problems) > 0 {
			t.Errorf("%s: %+v", name, node.Problems)
		}
	}
	bad := devices["t4-2-0"].DeepCopy()
	if bad.Spec.Devices[0].ID = ""; obeys(bad) == nil {
		t.Error("the rules accept a device without an id")
	}
	if devices["epyc-2s-0"] != nil || len(devices) != len(names)-1 {
		t.Errorf("Devices of %d machines, want of all but epyc-2s", len(devices))
	}
	type row struct {
		node  string
		busy  []int32 // GPUs
		count int64
		want  []int32
	}
	for _, c := range []row{
		{"pcie-bridges-0", nil, 2, []int32{0, 1}},
		{"pcie-bridges-0", []int32{0, 2, 5, 6}, 2, []int32{1, 3}}, // no pair is left: on one NUMA node
		{"pcie-bridges-0", []int32{0, 2, 4}, 2, []int32{6, 7}},
		{"pcie-bridges-0", []int32{0, 2, 4}, 1, []int32{1}}, // a widow, not one of a pair
		{"dgx-v100-0", nil, 4, []int32{0, 1, 2, 3}},
		{"dgx-v100-0", nil, 2, []int32{2, 3}}, // two lanes, and one root complex
		{"dgx-v100-0", []int32{3, 6}, 2, []int32{1, 2}},
		{"hgx-h100-0", []int32{0}, 2, []int32{2, 3}},
		{"mi300x-0", nil, 8, []int32{0, 1, 2, 3, 4, 5, 6, 7}},
		{"t4-2-0", []int32{0}, 1, []int32{1}},
	} {
		view := store.View(c.node).Devices()
		for d := range view.Devices() {
			if d.Type == device.GPU && slices.Contains(c.busy, d.Minor) {
				view = view.With(&device.Holding{UID: d.ID, Grants: []device.Grant{{
					Type: device.GPU, ID: d.ID, Amount: d.Total, Ratio: 100,
				}}})
			}
		}
		choice, reason := view.Choose(&device.Request{Parts: []device.Part{
			{Type: device.GPU, Count: c.count, Need: device.Need{Whole: true}},
		}}, nil)
		var got []int32
		for _, g := range choice.Grants {
			got = append(got, g.Minor)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) || !reason.OK() {
			t.Errorf("%s: %d GPUs beside %v: got %v, want %v (%+v)", c.node, c.count, c.busy, got, c.want, reason)
		}
	}
	share := &device.Request{Parts: []device.Part{{
		Type: device.FPGA, Count: 2, Need: device.Need{Amount: device.Vector{device.Share: 100}},
	}}}
	if choice, reason := store.View("fpga-2-0").Devices().Choose(share, nil); len(choice.Grants) != 2 {
		t.Errorf("two FPGAs: %+v, %+v", choice, reason)
	}
}

func TestMachinesOfEqualNamesHaveEqualDevices(t *testing.T) {
	t.Parallel()
	ids := func(d *devicev1alpha1.Device) string {
		var list []string
		for _, i := range d.Spec.Devices {
			list = append(list, i.ID)
		}
		return strings.Join(list, " ")
	}
	first, _ := accounts(t, "hgx-h100=2")
	again, _ := accounts(t, "hgx-h100")
	if diff := cmp.Diff(ids(first["hgx-h100-0"]), ids(again["hgx-h100-0"])); diff != "" {
		t.Errorf("-first +again:\n%s", diff)
	}
	if ids(first["hgx-h100-0"]) == ids(first["hgx-h100-1"]) {
		t.Error("two machines have the same devices")
	}
}

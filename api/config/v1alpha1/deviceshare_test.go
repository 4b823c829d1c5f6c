package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
)

func TestDecodeDeviceShare(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]v1alpha1.DeviceScoringStrategy{
		`{}`:                     {Type: "FragmentationAware"},
		`{"scoringStrategy":{}}`: {Type: "FragmentationAware"},
		`{"allocator":"default","enableQueueHint":true,"devicePluginAdaption":true,` +
			`"disableDeviceNUMATopologyAlignment":true,` +
			`"gpuShareUnsupportedModels":[{"vendor":"nvidia","model":"A"}]}`: {
			Type: "FragmentationAware",
		},
		`{"scoringStrategy":{"type":"LeastAllocated"}}`: {Type: "LeastAllocated", Resources: []v1alpha1.ResourceWeight{
			{Name: "koordinator.sh/gpu-memory-ratio", Weight: 1},
			{Name: "koordinator.sh/rdma", Weight: 1},
			{Name: "koordinator.sh/fpga", Weight: 1},
		}},
		`{"scoringStrategy":{"type":"MostAllocated","resources":[{"name":"koordinator.sh/gpu-core"}]}}`: {
			Type: "MostAllocated", Resources: []v1alpha1.ResourceWeight{{Name: "koordinator.sh/gpu-core", Weight: 1}},
		},
	} {
		a, err := v1alpha1.Decode[v1alpha1.DeviceShareArgs](&runtime.Unknown{Raw: []byte(raw)})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if diff := cmp.Diff(&want, a.ScoringStrategy); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
	a, err := v1alpha1.Decode[v1alpha1.DeviceShareArgs](&runtime.Unknown{
		Raw: []byte(`{"gpuSharedResourceTemplatesConfig":{}}`),
	})
	if want := (&v1alpha1.GPUTemplatesConfig{
		ConfigMapNamespace: "koordinator-system", ConfigMapName: "gpu-shared-resource-templates",
	}); err != nil || !cmp.Equal(a.GPUSharedResourceTemplatesConfig, want) {
		t.Errorf("templates: %+v, %v, want %+v", a.GPUSharedResourceTemplatesConfig, err, want)
	}
	if a, err = v1alpha1.Decode[v1alpha1.DeviceShareArgs](nil); err != nil ||
		a.ScoringStrategy.Type != "FragmentationAware" {
		t.Errorf("no arguments: %+v, %v", a, err)
	}
}

func TestDeviceShareArgumentsThatCannotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	least := func(resources string) string {
		return `{"scoringStrategy":{"type":"LeastAllocated","resources":[` + resources + `]}}`
	}
	for raw, want := range map[string]string{
		`{"scoringStrategi":{}}`:                `scoringStrategi: unknown field, did you mean "scoringS`,
		`{"scoringStrategy":{"types":"x"}}`:     `scoringStrategy.types: unknown field, did you mean "type"?`,
		`{"scoringStrategy":{"type":"Packed"}}`: `scoringStrategy.type: Unsupported value: "Packed": supported`,
		`{"scoringStrategy":{"type":1}}`:        `scoringStrategy.type: "1" is not allowed: use a string`,
		`{"kind":"ElasticQuotaArgs"}`:           `kind: Unsupported value: "ElasticQuotaArgs": supported`,
		`{"apiVersion":"v2"}`:                   `apiVersion: Unsupported value: "v2"`,
		`{"gpuSharedResourceTemplatesConfig":{"configMapName":"A"}}`: `gpuSharedResourceTemplatesConfig.` +
			`configMapName: Invalid value: "A": a lowercase RFC 1123 subdomain`,
		`{"gpuSharedResourceTemplatesConfig":{"configMapNamespace":"a.b"}}`: `Config.configMapNamespace: Invalid value`,
		`{"gpuSharedResourceTemplatesConfig":{"matchedResources":["cpu"]}}`: `Config.matchedResources[0]: ` +
			`Unsupported value: "cpu": supported values: "huawei.com/npu-core"`,
		`{"gpuSharedResourceTemplatesConfig":{"name":"a"}}`: `gpuSharedResourceTemplatesConfig.name: unknown field`,
		`{"gpuShareUnsupportedModels":["A"]}`:               `Models[0]: "A" is not allowed: use an object`,
		`{"gpuShareUnsupportedModels":[{"model":"A"}]}`: `gpuShareUnsupportedModels[0].vendor: Required value: must ` +
			`be a value of the label gpu-vendor`,
		`{"gpuShareUnsupportedModels":[{"vendor":"nvidia"}]}`: `gpuShareUnsupportedModels[0].model: Required value`,
		`{"gpuShareUnsupportedModels":[{"vendor":"v","model":"A"},{"vendor":"v","model":"A"}]}`: `gpuShareUnsupported` +
			`Models[1]: Duplicate value: "v A"`,
		`{"gpuShareUnsupportedModels":[{"vendor":"v","name":"A"}]}`: `gpuShareUnsupportedModels[0].name: unknown field`,
		least(`{"name":"cpu"},{"name":"koordinator.sh/fpga","weight":-1}`): `resources[1].weight: Invalid value: -1: ` +
			`must be 1…100`,
		`{"scoringStrategy":{"resources":[{"name":"koordinator.sh/rdma"}]}}`: `scoringStrategy.resources: Forbidden: ` +
			`must be left out with type F`,
		`{"scoringStrategy":{"degradedPenaltyMilli":0}}`: `scoringStrategy.degradedPenaltyMilli: unknown field`,
		least(`{"name":"cpu"}`):                          `scoringStrategy.resources[0].name: Unsupported value: "cpu": supported`,
		least(`{"name":"koordinator.sh/rdma"},{"name":"koordinator.sh/rdma"}`): `scoringStrategy.resources[1].name: ` +
			`Duplicate value: "koordinator.sh/rdma"`,
		least(`{"name":"koordinator.sh/rdma","weight":101}`): `scoringStrategy.resources[0].weight: Invalid value: ` +
			`101: must be 1…100`,
	} {
		if _, err := v1alpha1.Decode[v1alpha1.DeviceShareArgs](&runtime.Unknown{Raw: []byte(raw)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

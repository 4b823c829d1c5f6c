package convert_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func TestTemplates(t *testing.T) {
	t.Parallel()
	got, err := convert.Templates(`
huawei-Ascend-310P:
  vir02_1c: {huawei.com/npu-core: 2, huawei.com/npu-cpu: "1", huawei.com/npu-dvpp: 25, koordinator.sh/gpu-memory: 6Gi}
  vir01: {huawei.com/npu-core: "1", koordinator.sh/gpu-memory-ratio: 25}
huawei-Ascend-910B: {}
`)
	want := []device.Template{
		{Name: "vir01", Model: "huawei-Ascend-310P", Amount: device.Vector{device.NPUCores: 1}, Ratio: 25},
		{Name: "vir02_1c", Model: "huawei-Ascend-310P", Amount: device.Vector{
			device.NPUCores: 2, device.NPUCPUs: 1, device.NPUDVPPs: 25, device.Bytes: 6 << 30,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	if got, err := convert.Templates(""); len(got) > 0 || err != nil {
		t.Errorf("nothing: %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"[a]":       "want models with templates with amounts",
		"m: {t: 1}": "want models with templates with amounts",
		"m: {t: {cpu: 1}}": "cpu: 1, want a quantity of at least 0 of one of " +
			"huawei.com/npu-core, ",
		"m: {t: {huawei.com/npu-core: x}}":           "m, t: huawei.com/npu-core: x, want a quantity of at least 0",
		"m: {t: {huawei.com/npu-core: -1}}":          "m, t: huawei.com/npu-core: -1, want a quantity",
		"m: {t: {huawei.com/npu-core: [1]}}":         "m, t: huawei.com/npu-core: [1], want a quantity",
		"m: {t: {huawei.com/npu-core: 1e999999999}}": "m, t: huawei.com/npu-core: ",
	} {
		got, err := convert.Templates(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", text, got, err, want)
		}
	}
}

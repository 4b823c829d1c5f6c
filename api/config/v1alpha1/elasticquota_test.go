package v1alpha1_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestDecodeElasticQuota(t *testing.T) {
	t.Parallel()
	a, err := v1alpha1.Decode[v1alpha1.ElasticQuotaArgs](&runtime.Unknown{Raw: []byte(
		"kind: ElasticQuotaArgs\nenableRuntimeQuota: false\ndefaultQuotaGroupMax: {cpu: 100}\ndelayEvictTime: 5m\n" +
			"missingQuotaPolicy: Reject\n")})
	testkit.Check(t, err)
	if *a.EnableRuntimeQuota || !*a.EnableCheckParentQuota || !*a.DisableDefaultQuotaPreemption ||
		a.DefaultQuotaGroupMax.Cpu().Value() != 100 || a.DelayEvictTime.Minutes() != 5 ||
		a.MissingQuotaPolicy != v1alpha1.MissingQuotaReject {
		t.Errorf("read as %+v", a)
	}
	again, err := v1alpha1.Decode[v1alpha1.ElasticQuotaArgs](&a)
	if err != nil || *again.EnableRuntimeQuota {
		t.Errorf("decoded arguments read as %+v, %v", again, err)
	}
}

func TestDecodeElasticQuotaRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"enableRuntimQuota":true}`:            `enableRuntimQuota: unknown field, did you mean "enableRuntimeQuota"?`,
		`{"rounding":"Divisor"}`:                `rounding: unknown field`,
		`{"revokePolicy":"Never"}`:              `revokePolicy: Unsupported value: "Never"`,
		`{"missingQuotaPolicy":"Ask"}`:          `missingQuotaPolicy: Unsupported value: "Ask"`,
		`{"defaultQuotaGroupMax":{"cpu":"-1"}}`: `defaultQuotaGroupMax.cpu: Invalid value: "-1": must be 0 or more`,
		`{"delayEvictTime":"-1s"}`:              `delayEvictTime: Invalid value: "-1s": must be 0 or more`,
		`{"revokePodInterval":"0s"}`:            `revokePodInterval: Invalid value: "0s": must be more than 0`,
		`{"kind":"NodeNUMAResourceArgs"}`:       `kind: Unsupported value: "NodeNUMAResourceArgs"`,
	} {
		if _, err := v1alpha1.Decode[v1alpha1.ElasticQuotaArgs](&runtime.Unknown{Raw: []byte(raw)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

func TestMappingsOfDeviceClassesThatAreRefused(t *testing.T) {
	t.Parallel()
	const first = `{"name":"a/b","deviceClassNames":["x"]}`
	for raw, want := range map[string]string{
		`{"name":"a b/c","deviceClassNames":["x"]}`:              `[0].name: Invalid value: "a b/c"`,
		`{"name":"cpu","deviceClassNames":["x"]}`:                `[0].name: Invalid value: "cpu": must count devices`,
		`{"name":"koordinator.sh/gpu","deviceClassNames":["x"]}`: `[0].name: Invalid value: "koordinator.sh/gpu"`,
		`{"name":"a/b"}`: `[0].deviceClassNames: Required value: must name 1`,
		`{"name":"a/b","deviceClassNames":["X"]}`:          `[0].deviceClassNames[0]: Invalid value: "X"`,
		`{"name":"a/b","deviceClassNames":["x","x"]}`:      `[0].deviceClassNames[1]: Duplicate value: "x"`,
		first + `,{"name":"a/b","deviceClassNames":["y"]}`: `[1].name: Duplicate value: "a/b"`,
		first + `,{"name":"a/c","deviceClassNames":["x"]}`: `[1].deviceClassNames[0]: Duplicate value: "x"`,
		first: "",
	} {
		_, err := v1alpha1.Decode[v1alpha1.ElasticQuotaArgs](&runtime.Unknown{
			Raw: []byte(`{"deviceClassMappings":[` + raw + `]}`),
		})
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), "deviceClassMappings"+want)) {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

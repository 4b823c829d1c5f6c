package v1alpha1_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
)

// TestScarceResources are read as in configurations of Koordinator.
func TestScarceResources(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"resources":["nvidia.com/gpu","koordinator.sh/gpu"]}`: "",
		`{}`:                          "",
		`{"resources":["a","b","a"]}`: `resources[2]: Duplicate value: "a"`,
		`{"resources":["-"]}`:         `resources[0]: Invalid value: "-"`,
		`{"resource":["a"]}`:          `resource: unknown field`,
		`{"kind":"LoadAwareArgs"}`:    `supported values: "ScarceResourceAvoidanceArgs"`,
		`{"resources":{"a":"b"}}`:     "resources",
	} {
		a, err := v1alpha1.Decode[v1alpha1.ScarceResourceAvoidanceArgs](&runtime.Unknown{Raw: []byte(raw)})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q; read %v", raw, err, want, a.Resources)
		}
	}
}

package v1alpha1_test

import (
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
)

func TestDecodeCoscheduling(t *testing.T) {
	t.Parallel()
	a, err := v1alpha1.Decode[v1alpha1.CoschedulingArgs](&runtime.Unknown{Raw: []byte(
		"kind: CoschedulingArgs\ndefaultTimeout: 60s\ncontrollerWorkers: 3\nenablePreemption: false\n" +
			"enableJointGPUs: false\n")})
	if err != nil || a.DefaultTimeout.Seconds() != 60 || a.DefaultMatchPolicy != annotation.GangOnceSatisfied ||
		*a.EnableJointGPUs {
		t.Errorf("read as %+v, %v", a, err)
	}
	if a, err := v1alpha1.Decode[v1alpha1.CoschedulingArgs](nil); err != nil || !*a.EnableJointGPUs ||
		*a.MaxHolds != 1 || !*a.EnableBackfill || a.HoldOrder != "Priority" ||
		*a.BackfillBelowPriority != math.MinInt32 {
		t.Errorf("no arguments: %v", err)
	}
	for raw, want := range map[string]string{
		`{"defaultTimeOut":"1s"}`:         `defaultTimeOut: unknown field, did you mean "defaultTimeout"?`,
		`{"defaultTimeout":"0s"}`:         `defaultTimeout: Invalid value: "0s": must be more than 0`,
		`{"resolverPeriod":"5s"}`:         `resolverPeriod: unknown field`,
		`{"preemptionDelay":"5"}`:         `missing unit in duration`,
		`{"preemptionDelay":"-1ms"}`:      `preemptionDelay: Invalid value: "-1ms": must be 0s or more`,
		`{"reservedBeforeScaleUp":"-1s"}`: `reservedBeforeScaleUp: Invalid value: "-1s": must be 0s or more`,
		`{"maxOvertakes":-1}`:             `maxOvertakes: Invalid value: -1: must be 0, for never, or more`,
		`{"maxOvertakes":"10"}`:           `"10" is not allowed: use a number`,
		`{"maxOvertake":1}`:               `maxOvertake: unknown field, did you mean "maxOvertakes"?`,
		`{"maxHolds":-1}`:                 `maxHolds: Invalid value: -1: must be 0, for none, to 1000`,
		`{"maxHolds":1001}`:               `maxHolds: Invalid value: 1001: must be 0, for none, to 1000`,
		`{"maxHolds":"one"}`:              `"one" is not allowed: use a number`,
		`{"maxHolds":1e12}`:               `maxHolds`,
		`{"holdOrder":"Fifo"}`:            `holdOrder: Unsupported value: "Fifo": supported values: "Priority", "Age"`,
		`{"enableBackfill":"yes"}`:        `enableBackfill`,
		`{"backfill":true}`:               `backfill: unknown field`,

		`{"backfillBelowPriority":1000000001}`: `backfillBelowPriority: Invalid value: 1000000001: must be at m`,
		`{"backfillBelowPriority":3e9}`:        `backfillBelowPriority`,
		`{"defaultMatchPolicy":"always"}`:      `defaultMatchPolicy: Unsupported value: "always": supported values: "o`,
		`{"interruptedGangs":"true"}`:          `interruptedGangs: Unsupported value: "true": supported values: "`,
		`{"kind":"ElasticQuotaArgs"}`:          `kind: Unsupported value: "ElasticQuotaArgs"`,
	} {
		if _, err := v1alpha1.Decode[v1alpha1.CoschedulingArgs](&runtime.Unknown{Raw: []byte(raw)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

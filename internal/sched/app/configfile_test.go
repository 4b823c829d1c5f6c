package app

import (
	"os"
	"slices"
	"strings"
	"testing"

	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestTheFileOfAScheduler(t *testing.T) {
	t.Parallel()
	const header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	for name, c := range map[string]struct{ text, want string }{
		"nothing": {"", ""},
		"a misspelt field": {
			"profiles:\n- schedulrName: a\n",
			`s.yaml:4:3: profiles[0].schedulrName: unknown field, did you mean "schedulerName"?`,
		},
		"arguments of ours, and a plugin": {
			"profiles:\n- schedulerName: a\n  plugins: {multiPoint: {enabled: [{name: Cosheduling}]}}\n" +
				"  pluginConfig:\n  - name: NodeNUMAResource\n    args:\n      defaultCPUBindPolicy: Full\n" +
				"  - name: DeviceShare\n    args: {scoringStrateg: 1}\n",
			`s.yaml:5:37: profiles[0].plugins.multiPoint.enabled[0].name: unknown plugin "Cosheduling", did you mean ` +
				`"Coscheduling"?` + "\n" +
				`s.yaml:9:7: profiles[0].pluginConfig[0].args.defaultCPUBindPolicy: plugin NodeNUMAResource: ` +
				`Unsupported value: "Full": supported values: "FullPCPUs", "SpreadByPCPUs"` + "\n" +
				`s.yaml:11:12: profiles[0].pluginConfig[1].args.scoringStrateg: plugin DeviceShare: unknown field, ` +
				`did you mean "scoringStrategy"?`,
		},
		"a plugin that is planned, one that is there, and one that is not": {
			"profiles:\n- schedulerName: a\n  plugins: {multiPoint: {enabled: [{name: SchedulingHint}, " +
				"{name: Reservation}, {name: Descheduling}]}}\n  pluginConfig:\n  - name: Reservation\n" +
				"    args: {kind: ReservationArgs, gcDurationSeconds: 0, enablePreemption: false}\n",
			`s.yaml:5:37: profiles[0].plugins.multiPoint.enabled[0].name: plugin "SchedulingHint" is not in ` +
				"this version: scheduling hints: planned\n" +
				`s.yaml:5:82: profiles[0].plugins.multiPoint.enabled[2].name: unknown plugin "Descheduling", ` +
				`did you mean "Coscheduling"?` + "\n" +
				`s.yaml:8:35: profiles[0].pluginConfig[0].args.gcDurationSeconds: plugin Reservation: Invalid value: ` +
				"0: must be more than 0, and at most 3155760000 (100 years)",
		},
		"a value that kube-scheduler refuses": {
			"parallelism: -1\n",
			"s.yaml:3:1: parallelism: Invalid value: -1: should be an integer value greater than zero",
		},
		"two profiles of one name": {
			"profiles:\n- schedulerName: a\n- schedulerName: a\n",
			"s.yaml:5:3: profiles[1].schedulerName: Duplicate value",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := strict.Parse("s.yaml", []byte(header+c.text))
			testkit.Check(t, err)
			err = CheckConfig(all[0])
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

// TestTheSampleIsCheckedAtStart: the sample of the reference is accepted, and a wrong file ends the start.
func TestTheSampleIsCheckedAtStart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/reference/scheduler-config.yaml")
	testkit.Check(t, err)
	all, err := strict.Parse("s.yaml", text)
	testkit.Check(t, err)
	var sample configv1.KubeSchedulerConfiguration
	for _, d := range all {
		testkit.Check(t, CheckConfig(d))
		testkit.Check(t, yaml.Unmarshal(text, &sample))
	}
	for _, args := range sample.Profiles[0].PluginConfig {
		if _, theirs := plugins.NewInTreeRegistry()[args.Name]; theirs { // enabled by default
			continue
		}
		if !slices.ContainsFunc(sample.Profiles[0].Plugins.MultiPoint.Enabled, func(e configv1.Plugin) bool {
			return e.Name == args.Name
		}) {
			t.Errorf("the sample has arguments of %s and does not enable it", args.Name)
		}
	}
}

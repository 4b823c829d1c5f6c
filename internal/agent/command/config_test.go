package command

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/nearest"
	"github.com/tenon-project/tenon/internal/testkit"
)

const configHeader = "apiVersion: config.tenon.sh/v1alpha1\nkind: AgentConfiguration\n"

func checkConfig(t *testing.T, text string) (strict.Settings, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	testkit.Check(t, os.WriteFile(file, []byte(text), 0o600))
	d, err := strict.ReadFile("--config", file)
	testkit.Check(t, err)
	d.File = "agent.yaml"
	return CheckConfig(d)
}

// TestTheFileOfAnAgent: everything wrong is reported at once, with its place; also what only a flag's own check finds.
func TestTheFileOfAnAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"nothing": {configHeader, ""},
		"all of it good": {
			configHeader + "resync: 10s\nfeatureGates: {CPUSetAllocator: true}\ndeviceExempt: [a, b/c=d]\n", "",
		},
		"a misspelt field": {
			configHeader + "resnyc: 1s\n", `agent.yaml:3:1: resnyc: unknown field, did you mean "resync"?`,
		},
		"another kind": {"kind: Pod\n", `agent.yaml:1:1: kind: "Pod" is not allowed: use AgentConfiguration`},
		"values out of range": {
			configHeader + "resync: 1ms\ncgroupRoot: pods\ndeviceMode: Mine\n",
			"agent.yaml:3:1: resync: --resync 1ms: want 1s or more\n" +
				`agent.yaml:4:1: cgroupRoot: --cgroup-root "pods": want an absolute path such as / or /pods, as the ` +
				"kubelet's cgroupRoot\n" +
				`agent.yaml:5:1: deviceMode: --device-mode: byte 0: Unsupported value "Mine": ` +
				"supported Own, Follow, Moving",
		},
		"a gate that is none": {configHeader + "featureGates: {X: true}\n", `unknown feature gate "X"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := checkConfig(t, c.text)
			got := fmt.Sprint(err)
			if (c.want == "") != (err == nil) || !strings.Contains(got, c.want) && c.want != "" {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestEveryFieldOfTheFileHasAFlag(t *testing.T) {
	t.Parallel()
	settings, err := checkConfig(t, configHeader+"nriSocket: ''\n")
	testkit.Check(t, err)
	names := nearest.Fields(reflect.TypeFor[v1alpha1.AgentConfiguration]())
	if len(settings.All) != len(names)-2 { // apiVersion and kind
		t.Errorf("%d settings of %d fields", len(settings.All), len(names)-2)
	}
	if !slices.Contains(settings.All, strict.Setting{Field: "nriSocket", Origin: "agent.yaml:3"}) ||
		!slices.Contains(settings.All, strict.Setting{Field: "resync", Value: "30s", Origin: "default"}) {
		t.Errorf("settings: %v", settings.All)
	}
}

func TestAFlagOfTheAgentWinsOverItsFile(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	var r runFlags
	r.add(fs)
	testkit.Check(t, fs.Parse([]string{"--resync=7s", "--device-exempt=mine"}))
	all, err := strict.Parse("f", []byte(configHeader+"resync: 9s\ndeviceExempt: [theirs]\ncgroupRoot: /pods\n"))
	testkit.Check(t, err)
	if _, err := r.complete(fs, all[0]); err != nil {
		t.Fatal(err)
	}
	if r.o.Resync.String() != "7s" || len(r.o.DeviceExempt) != 1 || !slices.Equal(r.exempt, []string{"mine"}) ||
		r.o.CgroupRoot != "/pods" {
		t.Errorf("resync %v, exempt %v, cgroup root %s", r.o.Resync, r.exempt, r.o.CgroupRoot)
	}
}

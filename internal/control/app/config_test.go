package app

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/testkit"
)

const configHeader = "apiVersion: config.tenon.sh/v1alpha1\nkind: ManagerConfiguration\n"

// apply applies a file to a manager that was started with flags.
func apply(t *testing.T, text, quotaArgs string, flags ...string) (*Options, []string, error) {
	t.Helper()
	all, err := strict.Parse("manager.yaml", []byte(configHeader+text))
	testkit.Check(t, err)
	var o Options
	cmd := NewCommand()
	testkit.Check(t, cmd.ParseFlags(flags))
	err = o.apply(cmd.Flags(), all[0], quotaArgs)
	ids, _ := cmd.Flags().GetStringSlice("scheduler-identities") // it exists
	return &o, ids, err
}

func TestTheFileOfAManager(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, quotaArgs, want string }{
		"a misspelt field": {
			"requireNRIPlugn: true\n", "",
			`manager.yaml:3:1: requireNRIPlugn: unknown field, did you mean "requireNRIPlugin"?`,
		},
		"arguments of quotas, which have a file of their own": {
			"elasticQuotaArgs: {}\n", "", "manager.yaml:3:1: elasticQuotaArgs: unknown field",
		},
		"a rule of workloads with a wrong path": {
			"workloads:\n  rules:\n  - kind: K\n    versions: [v1]\n    default: Never\n    total: {at: a..b}\n", "",
			`manager.yaml:8:13: workloads.rules[0].total.at: path "a..b"`,
		},
		"a rule of workloads without roles": {
			"workloads:\n  rules:\n  - {kind: K, versions: [v1], default: Grouped}\n", "",
			"manager.yaml:5:5: workloads.rules[0].roles: must list at least one role",
		},
		"a grouping that does not exist": {
			"workloads:\n  grouping: Always\n", "",
			`manager.yaml:4:3: workloads.grouping: "Always" is not allowed: use Declared, OptIn, Off`,
		},
		"no file of arguments": {"", "/does/not/exist", "read the arguments of quotas"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := apply(t, c.text, c.quotaArgs); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	for name, c := range map[string]struct {
		text  string
		flags []string
		want  workload.Grouping
	}{
		"without a word": {"", nil, workload.Declared},
		"in the file":    {"workloads: {grouping: OptIn}\n", nil, workload.OptIn},
		"a flag wins":    {"workloads: {grouping: OptIn}\n", []string{"--workload-grouping=Off"}, workload.Off},
	} {
		if o, _, err := apply(t, c.text, "", c.flags...); err != nil || o.WorkloadGrouping != c.want {
			t.Errorf("grouping %s: got %q, %v", name, o.WorkloadGrouping, err)
		}
	}
	_, _, err := apply(t, "", "", "--workload-grouping=Some")
	if err == nil || err.Error() != `--workload-grouping: "Some" is not allowed: use Declared, OptIn, Off` {
		t.Errorf("a wrong flag: got %v", err)
	}
	o, ids, err := apply(t, "schedulerIdentities: [a, b]\nrelaxResourceKeys: true\n", "", "--relax-resource-keys=false")
	if err != nil || o.Quotas == nil || strings.Join(ids, ",") != "a,b" {
		t.Errorf("identities %v, %v", ids, err)
	}
	for _, s := range o.Settings.All {
		want := map[string]string{
			"schedulerIdentities": "manager.yaml:3", "relaxResourceKeys": "--relax-resource-keys",
		}[s.Field]
		if want == "" {
			want = "default"
		}
		if s.Origin != want {
			t.Errorf("%s is from %s, want %s", s.Field, s.Origin, want)
		}
	}
}

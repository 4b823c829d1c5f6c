package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

func TestCallsOfContainerdAreUnderstood(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want command
	}{
		"create": {
			[]string{
				"--root", "/s/runc", "--log", "/b/log.json", "--log-format", "json", "create", "--bundle", "/b",
				"--pid-file", "/b/pid", "c1",
			},
			command{verb: "create", id: "c1", bundle: "/b"},
		},
		"create in the current folder": {
			[]string{"create", "c1"},
			command{verb: "create", id: "c1"},
		},
		"values joined to their flags": {
			[]string{"--root=/s", "--debug", "--systemd-cgroup", "run", "-b=/b", "--no-pivot", "--pid-file=/p", "c1"},
			command{verb: "run", id: "c1", bundle: "/b"},
		},
		"update with one argument": {
			[]string{"--root", "/s", "update", "--resources=-", "c1"},
			command{verb: "update", id: "c1", resources: "-"},
		},
		"update with two arguments": {
			[]string{"--root", "/s", "update", "--resources", "-", "c1"},
			command{verb: "update", id: "c1", resources: "-"},
		},
		"update, short": {
			[]string{"update", "-r", "-", "c1"},
			command{verb: "update", id: "c1", resources: "-"},
		},
		"update by a flag": {
			[]string{"update", "--cpuset-cpus", "2-3", "c1"},
			command{verb: "update", id: "c1", flags: map[string]string{"cpuset-cpus": "2-3"}},
		},
		"other verbs are none of its business": {
			[]string{"--root", "/s", "kill", "--all", "c1", "9"},
			command{verb: "kill"},
		},
		"a container called create": {
			[]string{"--root", "/s", "state", "create"},
			command{verb: "state"},
		},
		"no verb": {[]string{"--version"}, command{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(tt.args)
			testkit.Check(t, err)
			if tt.want.flags == nil {
				got.flags = nil // those that are not compared
			}
			got.args = nil
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(command{})); diff != "" {
				t.Errorf("parse(%q) (-want +got):\n%s", tt.args, diff)
			}
		})
	}
}

func TestCallsWithoutTheirValuesAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"create"},
		{"update", "--resources=-"},
		{"create", "c1", "--bundle"},
		{"update", "-r"},
	} {
		if got, err := parse(args); err == nil {
			t.Errorf("parse(%q) = %+v, want an error", args, got)
		}
	}
}

func FuzzParseNeverPanics(f *testing.F) {
	f.Add("--root", "update", "--resources=-", "c1")
	f.Add("create", "--bundle", "/b", "c1")
	f.Add("--log", "-", "--", "run")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		args := []string{a, b, c, d}
		got, err := parse(args)
		if err != nil {
			return
		}
		if _, folds := verbValues[got.verb]; folds && got.id == "" {
			t.Errorf("parse(%q) = %+v: folds a container without an id", args, got)
		}
	})
}

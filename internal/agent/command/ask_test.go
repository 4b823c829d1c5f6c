package command

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestWhoIsAskedFollowsFromTheFlags: settings by flag take precedence over the kubelet's, and phase 1 asks no kubelet.
func TestWhoIsAskedFollowsFromTheFlags(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	tests := map[string]struct {
		args                []string
		blind               bool
		settings, resources bool
		err                 string
	}{
		"nothing said":                  {nil, false, true, true, ""},
		"settings by flag":              {[]string{"--kubelet=static"}, false, false, true, ""},
		"settings by flag, the poorest": {[]string{"--kubelet="}, false, false, true, ""},
		"no socket":                     {[]string{"--pod-resources-socket="}, false, true, false, ""},
		"a socket":                      {[]string{"--pod-resources-socket=/run/x.sock"}, false, true, true, ""},
		"a place": {
			[]string{"--kubelet-endpoint=https://127.0.0.1:10250"},
			false, true, true,
			"",
		},
		"phase 1": {nil, true, false, false, ""},
		"a place in the clear": {
			[]string{"--kubelet-endpoint=http://127.0.0.1:10250"},
			false, false, false,
			"--kubelet-endpoint: kubelet endpoint",
		},
		"a place and settings": {
			[]string{"--kubelet-endpoint=https://127.0.0.1:10250", "--kubelet=none"},
			false, false, false, "want one of them",
		},
		"a socket somewhere": {
			[]string{"--pod-resources-socket=kubelet.sock"},
			false, false, false,
			"want an absolute path",
		},
		"a socket too far": {
			[]string{"--pod-resources-socket=/" + strings.Repeat("x", 107)},
			false, false,
			false, "at most 107 bytes",
		},
		"a bad place in phase 1": {[]string{"--kubelet-endpoint=x"}, true, false, false, "--kubelet-endpoint"},
	}
	kubeconfig := t.TempDir() + "/kubeconfig"
	if err := os.WriteFile(kubeconfig, []byte(
		"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\n"+
			"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			var flags common
			var ask askFlags
			flags.add(fs)
			ask.add(fs)
			testkit.Check(t, fs.Parse(tt.args))
			o := app.Options{
				Node: "n0", Root: host.Root{Dir: "/"},
				Switches: probe.Switches{QueryKubelet: !tt.blind, CPUSetAllocator: !tt.blind},
			}
			err := ask.check(fs, o.Root)
			if err == nil {
				err = ask.wire(&o, fs, kubeconfig)
			}
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want an error that says %q", err, tt.err)
				}
				return
			}
			if err != nil || (o.AskKubelet != nil) != tt.settings || (o.AskResources != nil) != tt.resources {
				t.Errorf("asks for settings: %v, for resources: %v (%v); want %v, %v", o.AskKubelet != nil,
					o.AskResources != nil, err, tt.settings, tt.resources)
			}
		})
	}
}

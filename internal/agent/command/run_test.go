package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlagsAboutTheRuntimeThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("x", 120)
	tests := map[string]struct{ flags, want []string }{
		"a socket by a relative path":   {[]string{"--nri-socket=run/nri.sock"}, []string{"--nri-socket", "absolute"}},
		"a socket with too long a path": {[]string{"--hook-socket=" + long}, []string{"--hook-socket", "107"}},
		"one socket for both": {
			[]string{"--nri-socket=/run/x.sock", "--hook-socket=/run/x.sock"},
			[]string{"--nri-socket and --hook-socket"},
		},
		"a cgroup by a relative path": {[]string{"--cgroup-root=pods"}, []string{"--cgroup-root", "absolute"}},
		"a cgroup above the root":     {[]string{"--cgroup-root=/../pods"}, []string{"--cgroup-root", "absolute"}},
	}
	dir := tree(t, "hybrid")
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, []byte(
		`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],
		"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := run(t, append([]string{"run", "--root", dir, "--kubeconfig", config, "--health-address="},
				tt.flags...)...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("err = %v, want %q in it", err, want)
				}
			}
		})
	}
}

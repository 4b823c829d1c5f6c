package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// fakeGo downloads 120 modules and compiles 450 packages, in no time. Its build fails where FAIL is set.
const fakeGo = `#!/bin/sh
case "$1 $2" in
"list -m") echo "go: downloading go1.26 (linux/amd64)" >&2; echo v1.37.2 ;;
"list -tags")
  for i in $(seq 120); do echo "go: downloading k8s.io/m$i v0.37.2" >&2; done
  for i in $(seq 450); do echo "k8s.io/p$i"; done ;;
*)
  for i in $(seq 450); do echo "k8s.io/p$i"; done >&2
  [ -z "$FAIL" ] || { echo "cmd/tenon/main.go:3:1: syntax error" >&2; exit 1; } ;;
esac
`

const first = "downloading modules and compiling Kubernetes: 5 to 10 minutes on 2 cores; later builds take seconds\n"

func TestABuildShowsHowFarItIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail bool
		want string
	}{
		"the first build": {want: first + `  50 modules downloaded
  100 modules downloaded
  200 of 450 packages compiled
  400 of 450 packages compiled
`},
		"a first build that fails": {fail: true, want: first + `  50 modules downloaded
  100 modules downloaded
  200 of 450 packages compiled
  400 of 450 packages compiled
cmd/tenon/main.go:3:1: syntax error
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			compiler := filepath.Join(dir, "go")
			testkit.Check(t, os.WriteFile(compiler, []byte(fakeGo), 0o700))
			cmd := exec.CommandContext(t.Context(), "bash", "build.sh", filepath.Join(dir, "bin"), "./cmd/tenon")
			cmd.Env = append(os.Environ(), "GO="+compiler, "VERSION=v1")
			if c.fail {
				cmd.Env = append(cmd.Env, "FAIL=yes")
			}
			out, err := cmd.CombinedOutput()
			if got := string(out); got != c.want || (err != nil) != c.fail {
				t.Errorf("it ends with %v and prints\n%s\nwant\n%s", err, got, c.want)
			}
			if strings.Contains(string(out), "go: downloading") {
				t.Error("it lists modules")
			}
		})
	}
}

package hack

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/terminal"
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

// TestWorkIsShownOnATerminalAlone has commands that run until the seconds are shown, or are not to be.
func TestWorkIsShownOnATerminalAlone(t *testing.T) {
	t.Parallel()
	const line = "\r  level 3: "
	for name, c := range map[string]struct {
		terminal, process, shown bool
		env                      string
	}{
		"a command on a terminal": {terminal: true, shown: true},
		"a process":               {terminal: true, process: true, shown: true},
		"a command in a pipe":     {},
		"a command in CI":         {terminal: true, env: "CI=true"},
		"a short command":         {terminal: true, env: "PATIENCE="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := []string{"sh", "-c", "read line; exit 7"}
			stdin, release, err := os.Pipe()
			testkit.Check(t, err)
			if c.process {
				other := exec.CommandContext(t.Context(), run[0], run[1:]...)
				other.Stdin = stdin
				testkit.Check(t, other.Start())
				go func() { _ = other.Wait() }() // until then it exists
				run = []string{strconv.Itoa(other.Process.Pid)}
			}
			cmd := exec.CommandContext(t.Context(), "bash", append([]string{"elapsed.sh", "level 3"}, run...)...)
			cmd.Env, cmd.Stdin = append(os.Environ(), "CI=", "PATIENCE=0", c.env), stdin
			out := start(t, cmd, c.terminal)
			testkit.Check(t, stdin.Close())
			got := ""
			for part := make([]byte, 1024); c.shown && !strings.Contains(got, line); {
				n, err := out.Read(part)
				testkit.Check(t, err)
				got += string(part[:n])
			}
			testkit.Check(t, release.Close())
			rest, _ := io.ReadAll(out) // of a terminal it ends with an error
			got += string(rest)
			_ = cmd.Wait()
			if c.shown != strings.HasSuffix(got, "\r\x1b[K") || !c.shown && got != "" {
				t.Errorf("it shows %q, want the seconds: %t", got, c.shown)
			}
			if code := cmd.ProcessState.ExitCode(); (code == 7) == c.process {
				t.Errorf("it ends with %d", code)
			}
		})
	}
}

// start starts a command whose standard output is a terminal or a pipe, and returns what reads it.
func start(t *testing.T, cmd *exec.Cmd, onTerminal bool) io.Reader {
	t.Helper()
	out, to, err := os.Pipe()
	testkit.Check(t, err)
	if onTerminal {
		to, out = terminal.Open(t, 80)
	}
	cmd.Stdout = to
	testkit.Check(t, cmd.Start())
	testkit.Check(t, to.Close())
	return out
}

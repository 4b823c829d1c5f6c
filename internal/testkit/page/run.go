package page

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/testkit"
)

// reader runs commands as a reader of the pages has them.
type reader struct {
	dir string // the home of the reader, in which all files are
	env []string
}

// Play runs the blocks of a scene. In the reader's home are the files of the page, by name and by number (1.yaml), and
// links to deploy, docs, bin and the Makefile of the repository. Environment is what the commands have beside HOME;
// their kubectl is that of tenon.
func Play(t *testing.T, scene Scene, tenon string, environment ...string) {
	t.Helper()
	for _, name := range []string{"bash", "curl", "make", "openssl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NOT RUN: the pages use %s: %v", name, err)
		}
	}
	root := testkit.RepoRoot(t)
	dir, err := os.MkdirTemp("", "docs-") // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	r := reader{dir: dir, env: append(os.Environ(), environment...)}
	r.env = append(r.env, "HOME="+dir, "TMPDIR="+dir, "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"))
	r.env = slices.DeleteFunc(r.env, func(v string) bool { return v == "KUBECONFIG="+os.Getenv("KUBECONFIG") })
	err = os.Mkdir(filepath.Join(dir, "path"), 0o755)
	for name, script := range map[string]string{
		"tenon":   fmt.Sprintf(`exec %q "$@"`, tenon),
		"kubectl": fmt.Sprintf(`exec %q kubectl "$@"`, tenon),
		"helm":    `HELM_CACHE_HOME=$HOME/helm HELM_CONFIG_HOME=$HOME/helm HELM_DATA_HOME=$HOME/helm exec "$HELM" "$@"`,
		// The binary is there; CI runs the tests.
		"make":       fmt.Sprintf(`[ "$1" = test ] || PATH=${PATH#*:} exec make -s -C %q -o bin/tenon "$@"`, root),
		"eventually": `for i in $(seq 60); do "$@" && exit; sleep 1; done; exit 1`,
		// Where all is well some searches find nothing.
		"grep": `PATH=${PATH#*:} grep "$@" || [ $? = 1 ]`,
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "path", name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	for _, name := range []string{"deploy", "docs", "bin", "Makefile"} {
		err = errors.Join(err, os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		const down = "for of in .tenon tmp.*/move; do [ ! -e $of ] || tenon down --purge --data $of; done"
		if out, code := r.run(context.Background(), t, down); code != 0 {
			t.Errorf("%s: %d\n%s", down, code, out)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	ran, blocks := 0, Blocks(t)
	for _, step := range Steps() {
		for _, b := range blocks {
			if found, _ := Find(b); found.Blocks != step.Blocks || step.Scene != scene || b.isFile() {
				continue
			}
			ran++
			r.play(t, step, b)
		}
	}
	if ran == 0 {
		t.Errorf("no block is of the scene %s", scene)
	}
}

var prompt = regexp.MustCompile(`(?m)^\$ ((?:.*\\\n)*.*)$`)

// play runs a block and compares what it prints with the page.
func (r reader) play(t *testing.T, step Step, b Block) {
	t.Helper()
	for name, text := range files(t, b.File) {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := r.run(t.Context(), t, step.Before); code != 0 {
		t.Errorf("%s: what comes before ends with %d\n%s\n%s", b, code, step.Before, out)
		return
	}
	text := strings.NewReplacer(step.Replace...).Replace(b.Text)
	if step.Command != "" {
		text = "$ " + step.Command + "\n" + text
	}
	prompts := prompt.FindAllStringSubmatchIndex(text, -1)
	if prompts == nil {
		r.expect(t, b, step, text, "")
	}
	for i, at := range prompts {
		end := len(text)
		if i+1 < len(prompts) {
			end = prompts[i+1][0]
		}
		r.expect(t, b, step, text[at[2]:at[3]], strings.Trim(text[at[1]:end], "\n"))
	}
}

// expect runs commands and compares what they print with what the page shows, again and again for a minute: much of it
// takes a moment, but after a failure. Commands of which the page shows nothing run once.
func (r reader) expect(t *testing.T, b Block, step Step, script, shown string) {
	t.Helper()
	patience := time.Minute
	if t.Failed() {
		patience = time.Second
	}
	want := pattern(shown, step.Roughly)
	for begun := time.Now(); ; {
		out, code := r.run(t.Context(), t, script)
		if code == step.Exit && (shown == "" || want.MatchString(out)) {
			return
		}
		if shown == "" || time.Since(begun) > patience || t.Context().Err() != nil {
			t.Errorf("%s: exit %d, want %d\n%s\n--- prints\n%s\n--- the page shows\n%s", b, code, step.Exit, script,
				out, shown)
			return
		}
		select {
		case <-t.Context().Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// run runs a script with what earlier ones exported, and returns all that it prints. What it leaves in the background
// ends with the test.
func (r reader) run(ctx context.Context, t *testing.T, script string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 12*time.Minute) // the pages wait for ten at most
	defer cancel()
	file, err := os.CreateTemp(r.dir, ".output-")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c",
		"touch .exports; . ./.exports\n"+script+"\nexport -p >.exports")
	c.Dir, c.Env, c.Stdout, c.Stderr = r.dir, r.env, file, file
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = c.Run()
	if c.Process != nil && strings.HasSuffix(strings.TrimSpace(script), " &") {
		t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	}
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), c.ProcessState.ExitCode()
}

// varies is what differs from run to run: lines and words that the page leaves out, ids, durations, counts of attempts,
// the width of columns.
var varies = regexp.MustCompile(`(?m)(^ *…\n)|(^ *…\z)|(…)|(-[b-df-hj-np-tv-xz2-9]{6,10}-[b-df-hj-np-tv-xz2-9]{5}\b)|` +
	`([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22})|(\b(?:\d+m)?[0-9.]+ ?s\b)|(\d+ attempts?\b)|(snapshot \d+)|( *\n)|( +)`)

// pattern fits what is as the page shows it.
func pattern(shown string, roughly bool) *regexp.Regexp {
	if roughly {
		shown = regexp.MustCompile(`(?m)^( *\S+) .*$`).ReplaceAllString(shown, "$1 …")
	}
	instead := []string{ // of each group of varies
		`(?:.*\n)*?`, `(?s:.*)`, `.*`, `-[0-9a-z]+-[0-9a-z]+`, `[0-9a-f-]+`, `[0-9hms. ]+`, `\d+ attempts?`,
		`snapshot \d+`, ` *\n`, ` +`,
	}
	var p strings.Builder
	from := 0
	for _, at := range varies.FindAllStringSubmatchIndex(shown, -1) {
		p.WriteString(regexp.QuoteMeta(shown[from:at[0]]))
		for i, as := range instead {
			if at[2*i+2] >= 0 {
				p.WriteString(as)
			}
		}
		from = at[1]
	}
	return regexp.MustCompile(`^` + p.String() + regexp.QuoteMeta(shown[from:]) + `\s*$`)
}

package verb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/local/cluster"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

// report returns what the user's process makes of what a detached one says.
func report(t *testing.T, say func(*console)) (string, error) {
	t.Helper()
	reader, writer, err := os.Pipe()
	testkit.Check(t, err)
	c := &console{out: io.Discard, report: writer}
	say(c)
	_ = writer.Close() // closed already after a good start
	var out bytes.Buffer
	err = follow(reader, &out)
	return out.String(), err
}

func TestADetachedStartIsReported(t *testing.T) {
	t.Parallel()
	t.Run("a good one until it is ready", func(t *testing.T) {
		t.Parallel()
		out, err := report(t, func(c *console) {
			c.step(cluster.Step{Text: "scheduler", Took: 1500 * time.Millisecond})
			c.step(cluster.Step{Text: "port 1 is taken"})
			c.send(line{Ready: true})
			c.say("scheduler ended") // no process reads the pipe any more
		})
		if err != nil || out != "   1.5 s  scheduler\nport 1 is taken\n" {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("a bad one with its text and exit code", func(t *testing.T) {
		t.Parallel()
		_, err := report(t, func(c *console) {
			_ = c.end(&cluster.ExitError{Err: errors.New("no such machine"), Code: 2})
		})
		var failed *cluster.ExitError
		if !errors.As(err, &failed) || failed.Error() != "no such machine" || failed.ExitCode() != 2 {
			t.Errorf("got %#v, want the text with exit code 2", err)
		}
	})
	t.Run("one that dies without a word", func(t *testing.T) {
		t.Parallel()
		if _, err := report(t, func(c *console) { c.say("starting") }); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want EOF", err)
		}
	})
}

// Every setting that the parser knows is in the help.
func TestHelpNamesEverySetting(t *testing.T) {
	t.Parallel()
	text := newUp(nil).Long
	release := fmt.Sprintf("Kubernetes 1.%d in this process", machine.ManagersMinor)
	if !strings.Contains(text, release) {
		t.Errorf("the help of --machine does not name %s", release)
	}
	for _, word := range append(host.KubeletSettings(), "follow") {
		key, _, _ := strings.Cut(word, "=")
		if key == "scope" {
			key = "pod-scope" // its other spelling
		}
		if !strings.Contains(text, key) {
			t.Errorf("the help of --machine does not name %s", key)
		}
	}
}

// All commands share the flags of the process: one after the other.
func TestFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string // of the error; "" for none
		out  string
	}{
		"machines are listed": {args: []string{"--list-machines"}, out: "arm64-1s"},
		"an unknown machine":  {args: []string{"--machine", "epic-2s"}, want: "Did you mean epyc-2s?"},
		"an unknown machine, detached": {
			args: []string{"--detach", "--machine", "epic-2s"},
			want: "Did you mean epyc-2s?",
		},
		"more schedulers than ports": {
			args: []string{"--schedulers", "4"},
			want: "--schedulers: 4 is not allowed: use 1 to 3",
		},
		"a scheduler's file that does not exist": {
			args: []string{"--scheduler-config", "/none.yaml"}, want: "--scheduler-config: open /none.yaml: no such file",
		},
		"a scheduler's file with a field that is unknown": {
			args: []string{"--scheduler-config", "testdata/misspelt.yaml"},
			want: `testdata/misspelt.yaml:4:3: profiles[0].shedulerName: unknown field`,
		},
		"a demo that no profile serves": {
			args: []string{"--demo", "--scheduler-config", "testdata/by-load.yaml"},
			want: "must have the schedulerName tenon-scheduler, which the pods of --demo name: the profiles have " +
				"by-load",
		},
		"a negative number of nodes": {args: []string{"--nodes", "-1"}, want: "want 1 to"},
		"an argument that is none":   {args: []string{"epyc-2s"}, want: "unknown command"},
		"a console for other machines": {
			args: []string{"--console", "0.0.0.0:80"},
			want: `--console: "0.0.0.0:80" is not allowed: use a loopback address`,
		},
		"a count that is not a number": {args: []string{"--machine", "epyc-2s=many"}, want: "many"},
		"settings that contradict": {
			args: []string{"--machine", "epyc-2s,kubelet=none+follow"},
			want: "follow needs the CPU policy static",
		},
		"a kubelet that would hang": {args: []string{
			"--machine",
			"epyc-2s@static,full-pcpus-only,distribute-cpus-across-numa,reserved=0",
		}, want: "splits a core"},
		"another release's managers": {
			args: []string{"--machine", "epyc-2s@static,version=1.35"},
			want: "managers of Kubernetes 1.37",
		},
		"help names the settings":         {args: []string{"--help"}, out: "prefer-align-cpus-by-uncorecache"},
		"a list of machines split by ','": {args: []string{"--machine", "epyc-2s,snc2"}, want: "not a preset"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newUp(nil)
			var out bytes.Buffer
			c.SetOut(&out)
			c.SetErr(io.Discard)
			c.SilenceUsage, c.SilenceErrors = true, true
			c.SetArgs(append(test.args, "--data", t.TempDir()))
			err := c.ExecuteContext(t.Context())
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("tenon up %v: %v, want an error that says %q", test.args, err, test.want)
			}
			if !strings.Contains(out.String(), test.out) {
				t.Errorf("output %q does not have %q", out.String(), test.out)
			}
		})
	}
}

//go:build nolocal

package main

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tenon-project/tenon/internal/cli"
	"github.com/tenon-project/tenon/internal/sim"
)

// execute runs a command line of kubectl-tenon.
func execute(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr}
	verbs := append(localVerbs(streams), sim.NewCommand(streams, machines()))
	code = cli.Run(t.Context(), cli.NewRoot("kubectl-tenon", streams, doctors, verbs...), args, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestVerbsOfTheLocalClusterAreRefused(t *testing.T) {
	for _, args := range [][]string{{"up"}, {"up", "--demo"}, {"down", "--purge"}, {"kubectl", "get", "pods"}} {
		code, out, errs := execute(t, args...)
		want := `error: "` + args[0] + `" is not in this build, which is for clusters`
		if code != cli.ExitUsage || out != "" || !strings.HasPrefix(errs, want) {
			t.Errorf("%v: got %d %q %q, want %d and %q", args, code, out, errs, cli.ExitUsage, want)
		}
	}
	_, out, _ := execute(t, "--help")
	if !strings.Contains(out, "\n  explain ") || strings.Contains(out, "\n  up  ") ||
		strings.Contains(out, "\n  kubectl  ") {
		t.Errorf("the help lacks verbs, or lists those that are absent:\n%s", out)
	}
	code, _, errs := execute(t, "simulate", "--machine", "epyc-2s", "-f", "-")
	if code != cli.ExitUsage || !strings.Contains(errs, "has no simulated machines") {
		t.Errorf("simulate --machine: got %d %q", code, errs)
	}
}

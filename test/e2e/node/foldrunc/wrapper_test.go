package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// stub is a runc that writes its arguments, its standard input and the bundle's cpuset to a file, and ends with the
// code that it is given.
const stub = `#!/bin/sh
echo "$@" >> %DIR%/calls
case "$*" in *update*) cat >> %DIR%/calls;; esac
exit $(cat %DIR%/exit 2>/dev/null || echo 0)
`

// install builds the program beside its settings, with a stub for runc.
func install(t *testing.T) (program, dir string) {
	t.Helper()
	dir = t.TempDir()
	program = filepath.Join(dir, "foldrunc")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	runc := filepath.Join(dir, "runc")
	testkit.Check(t, os.WriteFile(runc, []byte(strings.ReplaceAll(stub, "%DIR%", dir)), 0o700))
	text, err := json.Marshal(settings{Runc: runc, Store: dir, CPUs: 2})
	testkit.Check(t, err)
	testkit.Check(t, os.WriteFile(program+".json", text, 0o600))
	return program, dir
}

func TestProgramFoldsAndRecords(t *testing.T) {
	t.Parallel()
	program, dir := install(t)
	store := fold.Store{Dir: dir}
	bundle := filepath.Join(dir, "config.json")
	if err := os.WriteFile(bundle, []byte(`{"linux":{"resources":{"cpu":{"cpus":"6-9","mems":"1"}}}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	call := func(in string, args ...string) error {
		cmd := exec.Command(program, args...)
		cmd.Stdin = strings.NewReader(in)
		return cmd.Run()
	}
	testkit.Check(t, call("", "--root", "/x", "create", "--bundle", dir, "c1"))
	if text, err := os.ReadFile(bundle); err != nil ||
		!sameJSON(t, string(text), `{"linux":{"resources":{"cpu":{"cpus":"0-1","mems":"0"}}}}`) {
		t.Errorf("the bundle has %s, %v", text, err)
	}
	testkit.Check(t, call(`{"cpu":{"cpus":"12"}}`, "update", "--resources=-", "c1"))
	if r, _, err := store.Get("c1"); err != nil || r.Set != (fold.Set{CPUs: "12", Mems: "1"}) || len(r.Log) != 2 {
		t.Errorf("the record is %+v, %v; want CPU 12 and node 1, two entries", r, err)
	}
	testkit.Check(t, os.WriteFile(filepath.Join(dir, "exit"), []byte("7"), 0o600))
	err := call(`{"cpu":{"cpus":"13"}}`, "update", "--resources=-", "c1")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Errorf("a failing runc ends the program with %v, want its own status 7", err)
	}
	if r, _, err := store.Get("c1"); err != nil || r.CPUs != "12" || r.Next != nil {
		t.Errorf("after a failed update the record is %+v, %v; want CPU 12", r, err)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil || !strings.Contains(string(calls), `{"cpu":{"cpus":"0"}}`) ||
		!strings.Contains(string(calls), `{"cpu":{"cpus":"1"}}`) {
		t.Errorf("runc was called so:\n%s (%v)\nwant updates to CPU 0 and CPU 1", calls, err)
	}
	for _, args := range [][]string{{"update", "--cpuset-cpus=3", "c1"}, {"update", "--resources", "/file", "c1"}} {
		if err := call("", args...); err == nil {
			t.Errorf("%q was let through: its ids would reach the kernel as they are", args)
		}
	}
}

func TestOtherVerbsGoThroughUntouched(t *testing.T) {
	t.Parallel()
	program, dir := install(t)
	if out, err := exec.Command(program, "--root", "/x", "kill", "c1", "9").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil || string(calls) != "--root /x kill c1 9\n" {
		t.Errorf("runc was called with %q, %v", calls, err)
	}
}

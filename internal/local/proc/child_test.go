package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/testkit"
)

// asParent makes this test binary play a parent that is killed; its value is the folder to work in.
const asParent = "TENON_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asParent); dir != "" {
		parent(dir)
		return
	}
	os.Exit(m.Run())
}

func parent(dir string) {
	c, err := Start(context.Background(), shell(dir, "exec sleep 600", nil))
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(c.PID())), 0o600); err != nil {
		panic(err)
	}
	select {}
}

func shell(dir, script string, ready func(context.Context) error) Spec {
	if ready == nil {
		ready = func(context.Context) error { return nil }
	}
	return Spec{
		Name: "child", Path: "/bin/sh", Args: []string{"-c", script}, LogFile: filepath.Join(dir, "log"),
		Ready: ready, Ended: func(error, time.Duration) {},
	}
}

// exists is a readiness check: the child has made the file.
func exists(path string) func(context.Context) error {
	return func(context.Context) error { _, err := os.Stat(path); return err }
}

func TestAChildThatDiesIsStartedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ended := make(chan error, 1)
	spec := shell(dir, "exec sleep 600", nil)
	spec.Ended = func(how error, _ time.Duration) { ended <- how }
	c, err := Start(t.Context(), spec)
	testkit.Check(t, err)
	defer c.Stop()
	first := c.PID()
	testkit.Check(t, syscall.Kill(first, syscall.SIGKILL))
	if how := <-ended; !strings.Contains(how.Error(), "killed") {
		t.Errorf("the end is reported as %q, want killed", how)
	}
	await(t, func() bool { p := c.PID(); return p != 0 && p != first })
}

func TestAChildThatNeverStartsIsGivenUpWithItsLastWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Start(t.Context(), shell(dir, "echo the port is taken; exit 3", exists("/never")))
	if err == nil {
		t.Fatal("a child that always ends was started")
	}
	for _, part := range []string{"child does not start", "exit status 3", "the port is taken"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("text %q does not say %q", err, part)
		}
	}
}

func TestABinaryThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	spec := shell(t.TempDir(), "", nil)
	spec.Path = "/no/such/binary"
	_, err := Start(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), "/no/such/binary") {
		t.Errorf("got %v, want an error that names the binary", err)
	}
}

func TestStopAsksFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ready, done := filepath.Join(dir, "ready"), filepath.Join(dir, "done")
	script := "trap 'touch " + done + "; exit 0' TERM; touch " + ready + "; while :; do sleep 0.1; done"
	spec := shell(dir, script, exists(ready))
	spec.Ended = func(error, time.Duration) { t.Error("a stop is reported as an end") }
	c, err := Start(t.Context(), spec)
	testkit.Check(t, err)
	c.Stop()
	if _, err := os.Stat(done); err != nil {
		t.Errorf("the child could not put its things in order: %v", err)
	}
}

func TestAStartThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	ctx, cancel := context.WithCancel(t.Context())
	ready := func(context.Context) error {
		if text, err := os.ReadFile(pid); err == nil && strings.HasSuffix(string(text), "\n") {
			cancel()
		}
		return errors.New("not yet")
	}
	_, err := Start(ctx, shell(dir, "echo $$ > "+pid+"; exec sleep 600", ready))
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want canceled", err)
	}
	if alive(t, pid) {
		t.Error("the child lives on")
	}
}

func TestChildrenEndWithAParentThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asParent+"="+dir)
	testkit.Check(t, cmd.Start())
	pid := filepath.Join(dir, "pid")
	await(t, func() bool { text, err := os.ReadFile(pid); return err == nil && len(text) > 0 })
	testkit.Check(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	await(t, func() bool { return !alive(t, pid) })
}

// alive reports whether the process named in a file runs; a zombie does not.
func alive(t *testing.T, file string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.Check(t, err)
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("waited for a minute in vain")
		}
		<-time.After(20 * time.Millisecond)
	}
}

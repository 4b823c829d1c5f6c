//go:build linux

package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tenon-project/tenon/test/e2e/node/cgroupfs"
)

// base is where the folders of stages lie: in memory, and with paths short enough for unix sockets.
const base = "/run/stage"

// number counts the stages of this process.
var number atomic.Int32

// Stage is one machine's worth of processes, with a folder and a cgroup of its own. Everything of it ends with the
// test.
type Stage struct {
	t           testing.TB
	dir         string
	group       string
	hierarchies cgroupfs.Hierarchies
	processes   []*Process
}

// New returns a stage on which nothing runs yet. Main must run the tests.
func New(t testing.TB) *Stage {
	t.Helper()
	if mode := os.Getenv(stageVariable); mode != within && mode != here {
		t.Fatal("no stage: TestMain must call stage.Main")
	}
	hierarchies, err := cgroupfs.Mounted()
	must(t, err)
	n := strconv.Itoa(int(number.Add(1)))
	s := &Stage{t: t, dir: filepath.Join(base, n), group: path.Join("/", group(), n), hierarchies: hierarchies}
	must(t, os.RemoveAll(s.dir))
	for _, dir := range []string{"log", "pods", "etc"} {
		must(t, os.MkdirAll(s.Path(dir), 0o755))
	}
	must(t, hierarchies.Make(s.group))
	t.Cleanup(s.end)
	return s
}

// Dir is the stage's folder. It lies in memory.
func (s *Stage) Dir() string { return s.dir }

// Path returns a path in the stage's folder.
func (s *Stage) Path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// Group is the group that is the root of all groups of pods: what a kubelet calls its cgroupRoot.
func (s *Stage) Group() string { return s.group }

// Cgroups are the hierarchies of the machine.
func (s *Stage) Cgroups() cgroupfs.Hierarchies { return s.hierarchies }

// Tool returns the path of a foreign program, such as "containerd".
func Tool(name string) string { return filepath.Join(os.Getenv(toolsVariable), "bin", name) }

// Tools returns a path in the folder of tools.
func Tools(elem ...string) string {
	return filepath.Join(append([]string{os.Getenv(toolsVariable)}, elem...)...)
}

// Binary returns the path of a command of Tenon; Needs must have named it.
func Binary(name string) string { return filepath.Join(os.Getenv(binVariable), name) }

// Write writes a file in the stage's folder and returns its path.
func (s *Stage) Write(name, text string) string {
	s.t.Helper()
	file := s.Path(name)
	must(s.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(s.t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

// Bind mounts a file or folder over another one until the test ends.
func Bind(t testing.TB, source, target string) {
	t.Helper()
	if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
		t.Fatalf("bind %s over %s: %v", source, target, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", target, err)
		}
	})
}

// end ends everything: the processes in the order opposite to their start, then the containers with their shims.
func (s *Stage) end() {
	if s.t.Failed() {
		s.showLogs()
	}
	for _, p := range slices.Backward(s.processes) {
		p.Kill()
	}
	s.keepLogs()
	err := errors.Join(s.killShims(), s.hierarchies.Remove(s.group), s.unmount(), os.RemoveAll(s.dir), forgetAgent())
	if err != nil {
		s.t.Errorf("end the stage: %v", err)
	}
}

// killShims ends the processes that containerd left to themselves: they name the stage in their arguments.
func (s *Stage) killShims() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if strings.Contains(string(line), "containerd-shim") && strings.Contains(string(line), s.dir+"/") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return nil
}

// unmount takes away what containers had mounted below the stage's folder.
func (s *Stage) unmount() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for _, line := range slices.Backward(strings.Split(strings.TrimSpace(string(text)), "\n")) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], s.dir+"/") {
			if err := syscall.Unmount(f[4], syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
				errs = append(errs, fmt.Errorf("unmount %s: %w", f[4], err))
			}
		}
	}
	return errors.Join(errs...)
}

// shownBytes is how much of the end of each log a failed test shows.
const shownBytes = 6000

func (s *Stage) showLogs() {
	files, _ := filepath.Glob(s.Path("log", "*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if len(text) > shownBytes {
			text = append([]byte("… "), text[len(text)-shownBytes:]...)
		}
		s.t.Logf("%s:\n%s", filepath.Base(file), text)
	}
}

// keepLogs copies the logs to the folder that was asked for.
func (s *Stage) keepLogs() {
	to := os.Getenv(logsVariable)
	if to == "" {
		return
	}
	to = filepath.Join(to, strings.NewReplacer("/", "_", " ", "_").Replace(s.t.Name())+"-"+filepath.Base(s.dir))
	if err := os.RemoveAll(to); err != nil {
		s.t.Logf("keep logs: %v", err)
	}
	if err := os.CopyFS(to, os.DirFS(s.Path("log"))); err != nil && !errors.Is(err, fs.ErrExist) {
		s.t.Logf("keep logs: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

//go:build linux

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/tenon-project/tenon/test/e2e/node/cgroupfs"
)

// The environment that Main reads and hands on.
const (
	toolsVariable = "TENON_NODE_TOOLS"
	binVariable   = "TENON_NODE_BIN"
	stageVariable = "TENON_STAGE"
	logsVariable  = "TENON_STAGE_LOGS"
	groupVariable = "TENON_STAGE_GROUP"
	countVariable = "TENON_STAGE_COUNT"
)

// here is the value of TENON_STAGE under which no namespaces are made; the others are what Main sets for its children.
const (
	here   = "here"
	first  = "first"
	within = "within"
)

// Needs is what the tests of a package need.
type Needs struct {
	// Level is the rung of the ladder, for the last line; Title stands in its place where it is set. Unit is what is
	// counted, such as "cases"; without it nothing is printed about tests that pass.
	Level int
	Title string
	Unit  string
	// Tools are programs of TENON_NODE_TOOLS/bin beside containerd, its shim, ctr and runc.
	Tools []string
	// Binaries are commands of Tenon, such as "tenon-agent", and packages of others, by their paths.
	Binaries []string
	// Plane asks for a control plane, see Stage.Plane; the binary "tenon" runs it. PlaneFlags are those of its verb
	// __join, without any for one that no kubelet joins.
	Plane      bool
	PlaneFlags []string
	// Prepare, where it is set, is called with the repository's folder before the stage is entered, on which there is
	// no network.
	Prepare func(root string) error
}

func (n Needs) title() string {
	if n.Title != "" {
		return n.Title
	}
	return fmt.Sprintf("level %d", n.Level)
}

// Tests is a *testing.M.
type Tests interface{ Run() int }

// Main runs the tests of a package on a stage and returns the exit code. The last line that it prints reports how many
// cases passed: those that called Count.
func Main(m Tests, n Needs) int {
	switch os.Getenv(stageVariable) {
	case first:
		return beFirst()
	case within:
		return runTests(m, n)
	}
	code, err := enter(m, n)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", n.title(), err)
		return 1
	}
	return code
}

// enter prepares what the tests need, runs them, and looks at what they left.
func enter(m Tests, n Needs) (int, error) {
	if os.Getuid() != 0 {
		return 1, errors.New("root is needed")
	}
	hierarchies, err := cgroupfs.Mounted()
	if err != nil {
		return 1, err
	}
	if err := hierarchies.Sweep(); err != nil {
		return 1, fmt.Errorf("sweep groups of earlier runs: %w", err)
	}
	if n.Plane {
		n.Binaries = append(n.Binaries, "tenon")
	}
	if err := prepare(n); err != nil {
		return 1, err
	}
	count, err := os.CreateTemp("", "tenon-stage-count-")
	if err != nil {
		return 1, err
	}
	_ = count.Close()
	defer func() { _ = os.Remove(count.Name()) }()
	export(countVariable, count.Name())
	export(groupVariable, cgroupfs.Name(os.Getpid()))

	before := look()
	var code int
	if os.Getenv(stageVariable) == here {
		if err := raiseLoopback(); err != nil {
			return 1, err
		}
		code = runTests(m, n)
	} else if code, err = unshare(); err != nil {
		return 1, err
	}
	// Killed processes of a namespace are gone when its first process is.
	err = hierarchies.Remove(cgroupfs.Name(os.Getpid()))
	for _, difference := range before.compare(look()) {
		err = errors.Join(err, fmt.Errorf("left behind: %s", difference))
	}
	if err != nil {
		return 1, err
	}
	return code, report(n, code, count.Name())
}

// runTests is what happens on the stage.
func runTests(m Tests, n Needs) int {
	err := errors.Join(os.RemoveAll(base), os.MkdirAll(base, 0o755), forgetAgent())
	defer func() { _ = os.RemoveAll(base) }() // in memory, or in a machine that is thrown away
	if err == nil && n.Plane {
		var stop func()
		if stop, err = startPlane(n.PlaneFlags); err == nil {
			defer stop()
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", n.title(), err)
		return 1
	}
	return m.Run()
}

// report prints the last line.
func report(n Needs, code int, counted string) error {
	text, err := os.ReadFile(counted)
	if err != nil {
		return err
	}
	passed, failed := strings.Count(string(text), passedLine), strings.Count(string(text), failedLine)
	switch {
	case n.Unit == "": // the tests have a last line of their own
	case code == 0 && failed == 0:
		fmt.Printf("%s: %d %s passed\n", n.title(), passed, n.Unit)
	default:
		fmt.Printf("%s: %d %s passed, %d FAILED\n", n.title(), passed, n.Unit, failed)
	}
	return nil
}

// unshare runs this program again as the first process of new namespaces and waits for it. When this process is killed
// the kernel kills the first one, and with it everything in the namespaces.
func unshare() (int, error) {
	runtime.LockOSThread() // the kernel watches the thread that started the child
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stageVariable+"="+first)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Unshareflags: syscall.CLONE_NEWNS, // mounts are private from there on
		Pdeathsig:    syscall.SIGKILL,
	}
	return exitCode(cmd.Run())
}

func exitCode(err error) (int, error) {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.ExitCode() >= 0 {
			return exit.ExitCode(), nil
		}
		return 1, fmt.Errorf("the stage was ended: %w", err)
	}
	return 0, err
}

// beFirst is the first process of the namespaces: it makes their file systems, starts the tests and reaps.
func beFirst() int {
	if err := furnish(); err != nil {
		fmt.Fprintf(os.Stderr, "make the stage: %v\n", err)
		return 1
	}
	export(stageVariable, within)
	tests, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		fmt.Fprintf(os.Stderr, "start the tests: %v\n", err)
		return 1
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fmt.Fprintf(os.Stderr, "wait for the tests: %v\n", err)
			return 1
		case pid != tests.Pid:
		case status.Signaled():
			return 128 + int(status.Signal())
		default:
			return status.ExitStatus()
		}
	}
}

// furnish gives the namespaces what the tests may write: nothing of it reaches the host.
func furnish() error {
	for _, dir := range ownDirs() {
		if _, err := os.Stat(dir); err != nil {
			continue // nothing to write to
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range []string{"/var/log/pods", "/var/log/containers", "/run/lock"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return raiseLoopback()
}

// ownDirs are the directories that are empty on every stage.
func ownDirs() []string { return []string{"/run", "/var/lib", "/var/log"} }

// group is the name of the group below which all groups of this run lie.
func group() string {
	if name := os.Getenv(groupVariable); name != "" {
		return name
	}
	return cgroupfs.Name(os.Getpid())
}

// export hands a variable on to what this process starts.
func export(name, value string) {
	if err := os.Setenv(name, value); err != nil {
		panic(err) // names are constants, values paths
	}
}

// prepare finds tools and builds binaries, and hands on where they are.
func prepare(n Needs) error {
	root, rootErr := moduleRoot()
	tools := os.Getenv(toolsVariable)
	if tools == "" && rootErr == nil {
		tools = filepath.Join(root, ".cache", "node", "current")
	}
	tools, err := filepath.EvalSymlinks(tools)
	if err != nil {
		return fmt.Errorf("tools are missing (make node-tools): %w", err)
	}
	wanted := append([]string{"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr", "bin/runc", "images.tar"},
		n.Tools...)
	for _, name := range wanted {
		if !strings.Contains(name, "/") && name != "images.tar" {
			name = "bin/" + name
		}
		if _, err := os.Stat(filepath.Join(tools, name)); err != nil {
			return fmt.Errorf("a tool is missing (make node-tools): %w", err)
		}
	}
	export(toolsVariable, tools)
	if n.Prepare != nil {
		if err := errors.Join(rootErr, n.Prepare(root)); err != nil {
			return err
		}
	}
	if os.Getenv(binVariable) != "" || len(n.Binaries) == 0 {
		return nil
	}
	if rootErr != nil {
		return fmt.Errorf("%s is not set: %w", binVariable, rootErr)
	}
	bin := filepath.Join(root, ".cache", "node", "bin")
	export(binVariable, bin)
	return build(root, bin, n.Binaries)
}

// build builds commands of Tenon as they are shipped; the Go tool does nothing where nothing changed.
func build(root, bin string, names []string) error {
	args := []string{"hack/build.sh", bin}
	for _, name := range names {
		if !strings.Contains(name, "/") {
			name = "./cmd/" + name
		}
		args = append(args, name)
	}
	cmd := exec.CommandContext(context.Background(), "bash", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(names, ", "), err, text)
	}
	return nil
}

// moduleRoot is the folder of go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the repository was not found above the working directory")
}

// The lines of the file in which cases are counted.
const (
	passedLine = "passed\n"
	failedLine = "failed\n"
)

// Counted is the part of a *testing.T that counting needs.
type Counted interface {
	Cleanup(func())
	Failed() bool
	Skipped() bool
}

// Count counts a test for the last line when it ends.
func Count(t Counted) {
	t.Cleanup(func() {
		line := passedLine
		switch {
		case t.Failed():
			line = failedLine
		case t.Skipped():
			return
		}
		f, err := os.OpenFile(os.Getenv(countVariable), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			panic("stage: a case that cannot be counted: " + strconv.Quote(err.Error()))
		}
		defer f.Close()
		_, _ = f.WriteString(line)
	})
}

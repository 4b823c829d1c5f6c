//go:build e2e_guest

package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

// found is what the tests need of this machine.
var found struct {
	image vm.Image
	// programs are put into every guest: names there to files here.
	programs map[string]string
	tenon    string
	plane    *plane
}

// tally counts what the last line reports.
var tally struct {
	mu                     sync.Mutex
	passed, failed, guests int
}

func TestMain(m *testing.M) {
	if err := find(); err != nil {
		fmt.Printf("NOT RUN: level 5 (%v)\n", err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

// run runs the tests beside a control plane.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", fmt.Sprintf("tenon-e2e-guest-%d-plane-", os.Getpid()))
	if err != nil {
		fmt.Fprintln(os.Stderr, "level 5:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	found.plane, err = startPlane(context.Background(), found.tenon, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "level 5:", err)
		return 1
	}
	code := m.Run()
	if err := found.plane.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "level 5:", err)
		code = 1
	}
	if tally.failed > 0 || code != 0 {
		fmt.Printf("level 5: %d cases passed in %d guests, %d FAILED\n", tally.passed, tally.guests, tally.failed)
		return 1
	}
	fmt.Printf("level 5: %d cases passed in %d guests\n", tally.passed, tally.guests)
	return 0
}

// find looks for everything that the tests need and names what is missing.
func find() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	tools := os.Getenv("TENON_NODE_TOOLS")
	if tools == "" {
		tools = filepath.Join(root, ".cache", "node", "current")
	}
	if tools, err = filepath.EvalSymlinks(tools); err != nil {
		return fmt.Errorf("make test-guest builds the tools: %w", err)
	}
	found.image = vm.Image{Dir: filepath.Join(tools, "guest")}
	if err := found.image.Check(); err != nil {
		return fmt.Errorf("make test-guest builds it: %w", err)
	}
	for _, program := range []string{vm.Program, "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("Debian's packages qemu-system-x86 and qemu-utils have it: %w", err)
		}
	}
	if found.tenon = os.Getenv("TENON_BIN"); found.tenon == "" {
		found.tenon = filepath.Join(root, "bin", "tenon")
	}
	bin := os.Getenv("TENON_NODE_BIN")
	if bin == "" {
		bin = filepath.Join(root, ".cache", "node", "bin")
	}
	found.programs = map[string]string{}
	for _, name := range []string{"tenon-agent", "tenon-runtime-proxy", "cgroup.test"} {
		found.programs[name] = filepath.Join(bin, name)
	}
	var missing []error
	for _, path := range append([]string{found.tenon}, values(found.programs)...) {
		if _, err := os.Stat(path); err != nil {
			missing = append(missing, err)
		}
	}
	return errors.Join(append(missing, found.image.Sweep())...)
}

func values(m map[string]string) []string {
	var list []string
	for _, v := range m {
		list = append(list, v)
	}
	return list
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

// begin starts a guest of a shape that ends with the test.
func begin(t *testing.T, shape vm.Shape) *vm.Guest {
	t.Helper()
	begun := time.Now()
	prepare := Ready
	if shape.Systemd {
		prepare = "sed -i 's/SystemdCgroup = false/SystemdCgroup = true/' /etc/containerd/config.toml\n" + Ready
	}
	disk := ""
	if len(shape.Devices) == 0 {
		var err error
		if disk, err = found.image.Prepare(t.Context(), shape, prepare); err != nil {
			t.Fatal(err)
		}
	}
	g, err := found.image.Start(t.Context(), shape, disk, found.programs)
	testkit.Check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console of the guest:\n%s", g.Console())
		}
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
	})
	if disk == "" {
		script(t, g, prepare)
	}
	tally.mu.Lock()
	tally.guests++
	tally.mu.Unlock()
	fmt.Printf("     %s: a machine of %d CPUs on %d NUMA nodes, ready after %.1f s\n", shape.Name, shape.CPUs(),
		shape.Nodes(), time.Since(begun).Seconds())
	return g
}

// check is one case: it is counted and printed. Where later cases depend on it, the test ends with it.
func check(t *testing.T, shape vm.Shape, name string, body func(t *testing.T)) {
	t.Helper()
	begun, ran := time.Now(), false
	passed := t.Run(name, func(t *testing.T) {
		ran = true
		body(t)
	})
	if !ran { // -test.run left it out
		return
	}
	tally.mu.Lock()
	defer tally.mu.Unlock()
	word := "ok  "
	if passed {
		tally.passed++
	} else {
		tally.failed++
		word = "FAIL"
	}
	fmt.Printf("%s %s: %s (%.1f s)\n", word, shape.Name, name, time.Since(begun).Seconds())
}

// patience bounds a wait; emulated machines beside other work are slow.
const patience = 4 * time.Minute

// await asks until no error is returned.
func await(t *testing.T, what string, ask func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s: %v", patience, what, strings.TrimSpace(err.Error()))
		}
	}
}

// script runs a script in the guest.
func script(t *testing.T, g *vm.Guest, text string) string {
	t.Helper()
	out, err := g.Run(t.Context(), text)
	testkit.Check(t, err)
	return out
}

//go:build e2e_cgroup

package cgroup

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/agent/tune"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
)

// machineRoot is that of this machine.
var machineRoot = host.Root{Dir: "/"}

// steered are the CPUs of the pod that interrupts have to leave.
const steered = "1-2"

// steering is an agent with one pod on exclusive CPUs, or none.
type steering struct {
	m        *topo.Machine
	pods     []tune.Pod
	findings []tune.Finding
}

func (s *steering) Exclusive() ([]tune.Pod, bool)               { return s.pods, true }
func (s *steering) ExclusiveChanged() <-chan struct{}           { return nil }
func (s *steering) Tuned(_ context.Context, all []tune.Finding) { s.findings = all }
func (s *steering) Machine() *topo.Machine                      { return s.m }
func (s *steering) IsCRIO() bool                                { return false }
func (s *steering) Leaves() bool                                { return false }

// newSteering returns an agent whose pod asks for quiet CPUs that wake up within 10 µs.
func newSteering(t testing.TB) *steering {
	t.Helper()
	reading, err := host.Read(machineRoot, runtime.GOARCH)
	testkit.Check(t, err)
	cpus, err := cpuset.ParseIDs(steered)
	testkit.Check(t, err)
	return &steering{m: reading.Machine, pods: []tune.Pod{{UID: "p", CPUs: cpus, Quiet: true, Latency: "10"}}}
}

// look lets the agent look once, as one that begins with what is in a folder. Without wishes it only restores.
func (s *steering) look(files tune.Files, dir string, wishes bool) {
	tune.NewTuner(tune.Options{
		Root: machineRoot, Files: files, Dir: statedir.Dir(dir), Boot: "this", Enabled: wishes, Agent: s,
		Clock: clock.RealClock{},
	}).Look(context.Background())
}

// machineFiles reads the files that the agent may set, to the letter.
func machineFiles(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{
		"/proc/irq/default_smp_affinity", "/proc/irq/*/smp_affinity_list",
		"/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us",
	} {
		names, err := filepath.Glob(pattern)
		testkit.Check(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			testkit.Check(t, err)
			out[name] = string(text)
		}
	}
	return out
}

func differences(before, after map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if before[name] != after[name] {
			out = append(out, fmt.Sprintf("%s: %q, was %q", name, after[name], before[name]))
		}
	}
	return out
}

// receiving returns the interrupt by which the network card of the guest receives.
func receiving(t testing.TB) string {
	t.Helper()
	names, err := filepath.Glob("/sys/kernel/irq/*/actions")
	testkit.Check(t, err)
	for _, name := range names {
		if text, _ := os.ReadFile(name); strings.Contains(string(text), "-input.0") {
			return filepath.Base(filepath.Dir(name))
		}
	}
	t.Fatal("no interrupt of a virtio network card")
	return ""
}

// fired returns how often an interrupt has fired on each CPU.
func fired(t testing.TB, number string) (counts []int) {
	t.Helper()
	text, err := os.ReadFile("/proc/interrupts")
	testkit.Check(t, err)
	lines := strings.Split(string(text), "\n")
	cpus := len(strings.Fields(lines[0]))
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		if len(words) <= cpus || words[0] != number+":" {
			continue
		}
		for _, word := range words[1 : 1+cpus] {
			n, err := strconv.Atoi(word)
			testkit.Check(t, err)
			counts = append(counts, n)
		}
		return counts
	}
	t.Fatalf("/proc/interrupts has no interrupt %s", number)
	return nil
}

// traffic lets the network card receive: the emulator answers a connection to a port without a listener with a packet.
func traffic(packets int) {
	for range packets {
		if c, err := net.DialTimeout("tcp", "10.0.2.2:1", time.Second); err == nil {
			c.Close()
		}
	}
}

// firedOn returns how often an interrupt fires under traffic on a CPU, and on all.
func firedOn(t testing.TB, number string, cpu int) (there, all int) {
	t.Helper()
	traffic(20) // a new affinity holds from the next interrupt on
	before := fired(t, number)
	traffic(100)
	for i, n := range fired(t, number) {
		if n -= before[i]; i == cpu {
			there = n
		}
		all += n
	}
	return there, all
}

// needsOwnMachine skips a test that sets files of the machine.
func needsOwnMachine(t *testing.T) {
	t.Helper()
	if !*setFiles {
		t.Skip("NOT RUN: sets files of the machine: for guests alone")
	}
	passed(t)
}

func TestARealInterruptLeavesExclusiveCPUsAndComesBack(t *testing.T) {
	needsOwnMachine(t)
	number := receiving(t)
	file := "/proc/irq/" + number + "/smp_affinity_list"
	testkit.Check(t, os.WriteFile(file, []byte("2"), 0o600)) // what an administrator, or irqbalance, chose
	t.Cleanup(func() { _ = os.WriteFile(file, []byte("0"), 0o600) })
	before := machineFiles(t)
	there, all := firedOn(t, number, 2)
	t.Logf("interrupt %s fired %d times, %d of them on CPU 2", number, all, there)
	if there == 0 || there != all {
		t.Fatalf("interrupt %s fired %d times, %d of them on CPU 2: want all there", number, all, there)
	}

	s, dir := newSteering(t), t.TempDir()
	s.look(nil, dir, true)
	cpus, fixed := cpuset.MustParse(steered), map[string]bool{}
	for _, f := range s.findings {
		if f.Kind == tune.Failed {
			t.Errorf("%s %s: %s", f.Kind, f.File, f.Text)
		}
		fixed["/"+f.File] = f.Kind == tune.Fixed
		t.Logf("%s %s: %s", f.Kind, f.File, f.Text)
	}
	for name, text := range machineFiles(t) {
		set, err := cpuset.Parse(strings.TrimSpace(text))
		if strings.HasSuffix(name, "_list") && err == nil && set.Overlaps(&cpus) && !fixed[name] {
			t.Errorf("%s is %q and is not reported as fixed", name, text)
		}
	}
	there, all = firedOn(t, number, 2)
	t.Logf("moved: interrupt %s fired %d times, %d of them on CPU 2", number, all, there)
	if there != 0 || all == 0 {
		t.Errorf("moved: interrupt %s fired %d times, %d of them on CPU 2: want none there", number, all, there)
	}
	for _, cpu := range []string{"1", "2"} {
		name := "/sys/devices/system/cpu/cpu" + cpu + "/power/pm_qos_resume_latency_us"
		if got := machineFiles(t)[name]; got != "10\n" {
			t.Errorf("%s is %q, want 10", name, got)
		}
	}

	s.pods = nil
	s.look(nil, dir, true)
	if diff := differences(before, machineFiles(t)); len(diff) > 0 {
		t.Errorf("not as before: %q", diff)
	}
	if there, all = firedOn(t, number, 2); there == 0 || there != all {
		t.Errorf("back: interrupt %s fired %d times, %d of them on CPU 2: want all there", number, all, there)
	}
}

// dying is the files of this machine. It kills its process before or after the write that is left 0.
type dying struct {
	tune.Files
	left  int
	after bool
}

func (d *dying) Write(file, value string) error {
	d.left--
	if d.left == 0 && !d.after {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	err := d.Files.Write(file, value)
	if d.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return err
}

// killed is the environment in which this test binary is an agent that is killed: folder, write, and before or after.
const killed = "TENON_E2E_KILLED"

// TestAnAgentThatIsKilledAtAnyWrite kills agents with SIGKILL before and after each write of real files, and lets the
// next one, which has no wish, restore them.
func TestAnAgentThatIsKilledAtAnyWrite(t *testing.T) {
	if order := os.Getenv(killed); order != "" {
		words := strings.Fields(order)
		left, err := strconv.Atoi(words[1])
		testkit.Check(t, err)
		newSteering(t).look(&dying{tune.Open(machineRoot), left, words[2] == "after"}, words[0], true)
		return
	}
	needsOwnMachine(t)
	number := receiving(t)
	file := "/proc/irq/" + number + "/smp_affinity_list"
	testkit.Check(t, os.WriteFile(file, []byte("2"), 0o600))
	before, kills := machineFiles(t), 0
	for write := 1; ; write++ {
		died := false
		for _, when := range []string{"before", "after"} {
			dir := t.TempDir()
			self, err := os.Executable()
			testkit.Check(t, err)
			c := exec.CommandContext(t.Context(), self, "-test.run", "^TestAnAgentThatIsKilledAtAnyWrite$")
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", killed, dir, write, when))
			out, err := c.CombinedOutput()
			if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				died, kills = true, kills+1
			} else if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			newSteering(t).look(nil, dir, false)
			if diff := differences(before, machineFiles(t)); len(diff) > 0 {
				t.Errorf("killed %s write %d: %q", when, write, diff)
			}
		}
		if !died {
			break
		}
	}
	t.Logf("%d agents were killed", kills)
	if kills < 4 {
		t.Errorf("%d agents were killed, want two at each write", kills)
	}
}

// TestCPUsThatTheBootIsolatedAreInNoPool needs a machine that was booted with isolcpus.
func TestCPUsThatTheBootIsolatedAreInNoPool(t *testing.T) {
	text, err := os.ReadFile("/sys/devices/system/cpu/isolated")
	testkit.Check(t, err)
	isolated := strings.TrimSpace(string(text))
	if isolated == "" {
		t.Skip("NOT RUN: the boot isolated no CPU")
	}
	n := newNode(t)
	n.engine.SetFacts(ledger.Facts{
		Machine: n.m, MinSharedCPUs: -1, Isolated: n.m.Isolated(), NoTick: n.m.NoTick(),
	})
	n.engine.Prune(none)
	if got := n.m.FormatList(n.m.Isolated()); got != isolated {
		t.Errorf("the machine has the isolated CPUs %s, the kernel says %s", got, isolated)
	}
	rest := n.m.FormatList(n.m.Online().Minus(n.m.Isolated()))
	for uid, role := range map[string]qos.Role{"ls": qos.SharedPool, "be": qos.BEPool} {
		c := n.bind(uid, role, "")
		n.must(n.run(c))
		n.expect(c, rest)
	}
	lse := n.bind("lse", qos.Exclusive, isolated)
	n.must(n.run(lse))
	n.expect(lse, isolated)
}

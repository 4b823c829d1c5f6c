package tune_test

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/agent/tune"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// box is a machine of 8 CPUs on 2 NUMA nodes, its agent, and the pods on its CPUs.
type box struct {
	tune.Files
	t        *testing.T
	root     host.Root
	refuse   map[string]error
	writes   []string
	machine  *topo.Machine
	pods     []tune.Pod
	known    bool
	crio     bool
	leaves   bool
	enabled  bool
	clock    *testingclock.FakeClock
	tuner    *tune.Tuner
	findings []string
}

func newBox(t *testing.T, files ...string) *box {
	t.Helper()
	dir, err := os.MkdirTemp("", "irq") // the name of a test's own folder can be too long for a socket
	testkit.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &box{
		t: t, root: host.Root{Dir: dir}, refuse: map[string]error{}, known: true, enabled: true,
		machine: grid.Machine{Sockets: 2, Nodes: 1, Cores: 4, Threads: 1}.Build(t),
		clock:   testingclock.NewFakeClock(time.Unix(1000, 0)),
	}
	b.Files = tune.Open(b.root)
	for i := 0; i < len(files); i += 2 {
		b.put(files[i], files[i+1])
	}
	b.restart()
	return b
}

func (b *box) put(file, text string) {
	b.t.Helper()
	testkit.Check(b.t, os.MkdirAll(filepath.Dir(b.root.Path(file)), 0o755))
	testkit.Check(b.t, os.WriteFile(b.root.Path(file), []byte(text+"\n"), 0o600))
}

func (b *box) restart() {
	b.tuner = tune.NewTuner(tune.Options{
		Root: b.root, Files: b, Dir: statedir.Of(b.root), Boot: "b1", Enabled: b.enabled, Agent: b, Clock: b.clock,
	})
}

func (b *box) Tuned(_ context.Context, all []tune.Finding) {
	b.findings = nil
	for _, f := range all {
		b.findings = append(b.findings, fmt.Sprintf("%s %s: %s", f.Kind, f.File, f.Text))
	}
}

func (b *box) Write(file, value string) error {
	name := strings.TrimSuffix(strings.TrimPrefix(file, "proc/irq/"), "/smp_affinity_list")
	b.writes = append(b.writes, name+" "+value)
	if err := b.refuse[file]; err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return b.Files.Write(file, value)
}

func (b *box) ExclusiveChanged() <-chan struct{} { return nil }

func (b *box) Exclusive() ([]tune.Pod, bool) { return b.pods, b.known }
func (b *box) Machine() *topo.Machine        { return b.machine }
func (b *box) IsCRIO() bool                  { return b.crio }
func (b *box) Leaves() bool                  { return b.leaves }

// look lets the tuner look, and returns its writes.
func (b *box) look(pods ...tune.Pod) []string {
	b.pods, b.writes = pods, nil
	b.tuner.Look(b.t.Context())
	return b.writes
}

// irqs are the interrupts of the worked example: 26 is managed.
func irqs() []string {
	return []string{
		"proc/irq/default_smp_affinity", "ff",
		"proc/irq/24/smp_affinity_list", "0-7", "proc/irq/24/node", "-1",
		"proc/irq/25/smp_affinity_list", "2-3", "proc/irq/25/node", "0",
		"proc/irq/26/smp_affinity_list", "3", "proc/irq/26/node", "0",
		"proc/irq/27/smp_affinity_list", "4-7", "proc/irq/27/node", "1",
	}
}

func quiet(cpus ...int) tune.Pod { return tune.Pod{UID: "a", CPUs: cpus, Quiet: true} }

const managed = "Fixed proc/irq/26/smp_affinity_list: the kernel does not let it change: input/output error"

func TestInterruptsOfTheWorkedExample(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run  func(b *box) []string // returns the writes of the last look
		want []string
		find []string
	}{
		"interrupts leave, the default first": {
			func(b *box) []string { return b.look(quiet(2, 3)) },
			[]string{"default_smp_affinity f3", "24 0-1,4-7", "25 0-1", "26 0-1"},
			[]string{managed},
		},
		"nothing is written twice": {
			func(b *box) []string { b.look(quiet(2, 3)); return b.look(quiet(2, 3)) }, nil, []string{managed},
		},
		"they return": {
			func(b *box) []string { b.look(quiet(2, 3)); return b.look() },
			[]string{"24 0-7", "25 2-3", "default_smp_affinity ff"},
			nil,
		},
		"a second pod, whichever goes first": {
			func(b *box) []string {
				b.look(quiet(2, 3))
				b.look(quiet(2, 3), tune.Pod{UID: "b", CPUs: []int{6}, Quiet: true})
				return b.look(tune.Pod{UID: "b", CPUs: []int{6}, Quiet: true})
			},
			[]string{"default_smp_affinity bf", "24 0-5,7", "25 2-3"},
			nil,
		},
		"a pod that is resized down gives a CPU back": {
			func(b *box) []string { b.look(quiet(2, 3)); return b.look(quiet(2)) },
			[]string{"default_smp_affinity fb", "24 0-1,3-7", "25 3"},
			nil,
		},
		"a pod that is resized up": {
			func(b *box) []string { b.look(quiet(2)); return b.look(quiet(2, 3)) },
			[]string{"default_smp_affinity f3", "24 0-1,4-7", "25 0-1", "26 0-1"},
			[]string{managed},
		},
		"a pod that does not ask": {
			func(b *box) []string { return b.look(tune.Pod{UID: "a", CPUs: []int{2}}) }, nil, nil,
		},
		"all CPUs are exclusive": {
			func(b *box) []string { return b.look(quiet(0, 1, 2, 3, 4, 5, 6, 7)) }, nil,
			[]string{"Failed proc/irq: no CPU would be left for interrupts: they are not moved"},
		},
		"the agent leaves": {
			func(b *box) []string {
				b.look(quiet(2, 3))
				b.leaves = true
				return b.look(quiet(2, 3))
			},
			[]string{"24 0-7", "25 2-3", "default_smp_affinity ff"},
			nil,
		},
		"the flag is off after a restart": {
			func(b *box) []string {
				b.look(quiet(2, 3))
				b.enabled = false
				b.restart()
				return b.look(quiet(2, 3))
			},
			[]string{"24 0-7", "25 2-3", "default_smp_affinity ff"},
			nil,
		},
		"pods are not known yet after a restart": {
			func(b *box) []string {
				b.look(quiet(2, 3))
				b.restart()
				b.known = false
				b.findings = nil
				return b.look()
			},
			nil, nil,
		},
		"CRI-O keeps the default, for a pod that asks it to": {
			func(b *box) []string {
				b.crio = true
				p := quiet(2, 3)
				p.AsksCRIO = true
				return b.look(p)
			},
			[]string{"24 0-1,4-7", "25 0-1", "26 0-1"},
			[]string{managed},
		},
		"CRI-O does nothing for a pod that does not": {
			func(b *box) []string { b.crio = true; return b.look(quiet(2, 3)) },
			[]string{"default_smp_affinity f3", "24 0-1,4-7", "25 0-1", "26 0-1"},
			[]string{managed},
		},
		"a default that is not a mask": {
			func(b *box) []string {
				b.put("proc/irq/default_smp_affinity", "0-7")
				return b.look(quiet(2, 3))
			},
			[]string{"24 0-1,4-7", "25 0-1", "26 0-1"},
			[]string{
				managed,
				`Failed proc/irq/default_smp_affinity: has a value that cannot be used: CPU map word "0-7": ` +
					`want 1 to 8 hexadecimal digits`,
			},
		},
		"an affinity that is not a list": {
			func(b *box) []string {
				b.put("proc/irq/24/smp_affinity_list", "all")
				return b.look(quiet(2, 3))
			},
			[]string{"default_smp_affinity f3", "25 0-1", "26 0-1"},
			[]string{
				`Failed proc/irq/24/smp_affinity_list: has a value that cannot be used: cpu list item "all": ` +
					`want an id like 3 or a range like 0-3`,
				managed,
			},
		},
		"a machine without /proc/irq": {
			func(b *box) []string {
				testkit.Check(b.t, os.RemoveAll(b.root.Path("proc/irq")))
				return b.look(quiet(2, 3))
			},
			nil, nil,
		},
		"an interrupt of a device that came later": {
			func(b *box) []string {
				b.look(quiet(2, 3))
				b.put("proc/irq/28/smp_affinity_list", "2")
				return b.look(quiet(2, 3))
			},
			[]string{"28 0-1,4-7"},
			[]string{managed},
		},
		"irqbalance without a socket": {
			func(b *box) []string {
				b.put("proc/77/comm", "irqbalance")
				b.look(quiet(2))
				return b.look(quiet(2))
			},
			nil,
			[]string{
				"Foreign run/irqbalance: irqbalance runs without a socket: ban the CPUs of exclusive pods in its " +
					"IRQBALANCE_BANNED_CPULIST",
			},
		},
		"how deep CPUs sleep": {
			func(b *box) []string {
				b.put("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle")
				b.put("sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us", "0")
				return b.look(tune.Pod{UID: "a", CPUs: []int{2, 3}, Latency: "10"}) // cpu3 has no file
			},
			[]string{"sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us 10"},
			nil,
		},
		"how deep CPUs sleep, without a driver": {
			func(b *box) []string { return b.look(tune.Pod{UID: "a", CPUs: []int{2}, Latency: "n/a"}) }, nil,
			[]string{
				"Fixed sys/devices/system/cpu/cpuidle: no driver lets CPUs sleep deeply: a limit of the time to " +
					"wake up has no effect",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, irqs()...)
			b.refuse["proc/irq/26/smp_affinity_list"] = syscall.EIO
			if diff := cmp.Diff(c.want, c.run(b)); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.find, b.findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRestoreNamesWhatRemains leaves a node whose kernel does not take a value at first.
func TestRestoreNamesWhatRemains(t *testing.T) {
	t.Parallel()
	b := newBox(t, irqs()...)
	b.look(quiet(2, 3))
	b.refuse["proc/irq/24/smp_affinity_list"] = syscall.ENOSPC
	if diff := cmp.Diff([]string{"proc/irq/24/smp_affinity_list"}, b.tuner.Restore()); diff != "" {
		t.Errorf("what remains (-want +got):\n%s", diff)
	}
	clear(b.refuse)
	b.clock.Step(time.Minute)
	if rest := b.tuner.Restore(); rest != nil {
		t.Errorf("%v remain", rest)
	}
	for i := 0; i < len(irqs()); i += 2 {
		got, err := b.Read(irqs()[i])
		if want := irqs()[i+1]; err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", irqs()[i], got, want, err)
		}
	}
}

// balancer is an irqbalance that answers by its socket.
type balancer struct {
	answer string
	heard  chan string
	end    func() // ends it, and closes heard
}

func (b *box) balancer(pid, answer string) *balancer {
	b.t.Helper()
	i := &balancer{answer: answer, heard: make(chan string, 9)}
	b.put("proc/"+pid+"/comm", "irqbalance")
	testkit.Check(b.t, os.MkdirAll(b.root.Path("run/irqbalance"), 0o755))
	l, err := net.Listen("unix", b.root.Path("run/irqbalance/irqbalance"+pid+".sock"))
	testkit.Check(b.t, err)
	done := make(chan struct{})
	i.end = func() { _ = l.Close(); <-done }
	b.t.Cleanup(i.end)
	go func() {
		defer close(done)
		defer close(i.heard)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			text := make([]byte, 500)
			n, _ := c.Read(text)
			if said := string(text[:n]); said == "setup" {
				_, _ = c.Write([]byte(i.answer))
			} else {
				i.heard <- said
			}
			_ = c.Close()
		}
	}()
	return i
}

func TestIrqbalanceIsAskedToLeaveCPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		want   []string // what it receives
		find   []string
	}{
		"no ban before": {"SLEEP 10 BANNED 00000000", []string{"settings cpus 2-3", "settings cpus NULL"}, nil},
		"an admin's ban": {
			"SLEEP 10 IRQ 5 LOAD 0 DIFF 0 CLASS 0 BANNED 00000080",
			[]string{"settings cpus 2-3,7", "settings cpus 7"},
			nil,
		},
		"an answer without bans": {
			"SLEEP 10", nil,
			[]string{`Failed run/irqbalance: cannot be read: irqbalance answers "SLEEP 10", without BANNED`},
		},
		"an empty answer": {
			"", nil, []string{`Failed run/irqbalance: cannot be read: irqbalance answers "", without BANNED`},
		},
		"a ban that is not a mask": {
			"SLEEP 10 BANNED 0-3", nil,
			[]string{
				`Failed run/irqbalance: cannot be read: irqbalance: CPU map word "0-3": want 1 to 8 hexadecimal digits`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			testkit.Check(t, os.MkdirAll(b.root.Path("run/irqbalance"), 0o755))
			b.put("run/irqbalance/irqbalance1.sock", "") // left behind by another process
			i := b.balancer("42", c.answer)
			b.look(quiet(2, 3))
			if diff := cmp.Diff(c.find, b.findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			b.look()
			i.end()
			var heard []string
			for said := range i.heard {
				heard = append(heard, said)
			}
			if diff := cmp.Diff(c.want, heard); diff != "" {
				t.Errorf("it heard (-want +got):\n%s", diff)
			}
		})
	}
}

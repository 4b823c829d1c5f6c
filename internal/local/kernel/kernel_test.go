package kernel_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

var _ apply.Cgroup = (*kernel.Tree)(nil)

// machine has CPUs 0–7 on two NUMA nodes.
func machine(t *testing.T) *topo.Machine {
	t.Helper()
	return grid.Machine{Nodes: 2, Cores: 4, NodeBytes: 1 << 30}.Build(t)
}

// step is one call and what it answers.
type step struct {
	do   string // write, read, mkdir, rmdir, spawn, kill, online, affinity
	at   string // group
	file string
	text string // value to write, or text that must be read
	want error
}

func run(t *testing.T, k *kernel.Tree, steps []step) {
	t.Helper()
	pid := 0
	for i, s := range steps {
		var err error
		switch s.do {
		case "write":
			err = k.Write(s.at, s.file, s.text)
		case "read":
			var got string
			if got, err = k.Read(s.at, s.file); err == nil && got != s.text {
				t.Errorf("step %d: %s/%s is %q, want %q", i, s.at, s.file, got, s.text)
			}
		case "mkdir":
			err = k.Mkdir(s.at)
		case "rmdir":
			err = k.Rmdir(s.at)
		case "spawn":
			pid, err = k.Spawn(s.at)
		case "kill":
			err = k.Kill(s.at)
		case "online":
			err = k.Online(cpuset.MustParse(s.text))
		case "affinity":
			k.Affinity(pid, cpuset.MustParse(s.text))
		case "allowed":
			if got := k.Allowed(pid).String(); got != s.text {
				t.Errorf("step %d: the task may run on %q, want %q", i, got, s.text)
			}
		}
		if !errors.Is(err, s.want) {
			t.Errorf("step %d, %s %s %s %q: %v, want %v", i, s.do, s.at, s.file, s.text, err, s.want)
		}
	}
}

const (
	v1Effective = "cpuset.effective_cpus"
	v2Effective = "cpuset.cpus.effective"
)

func TestLaterProcessTakesUpGroupsAndTasks(t *testing.T) {
	t.Parallel()
	for _, d := range []desired.Dialect{desired.V1, desired.V2} {
		o := kernel.Options{Dir: testkit.Dir(t), Dialect: d, Machine: machine(t)}
		k, err := kernel.Open(o)
		testkit.Check(t, err)
		testkit.Check(t, k.MkdirAll("kubepods/burstable/pod1/c1"))
		run(t, k, []step{
			{do: "write", at: "kubepods/burstable/pod1/c1", file: desired.CPUs, text: "2,5"},
			{do: "write", at: "kubepods/burstable/pod1/c1", file: desired.Mems, text: "1"},
			{do: "spawn", at: "kubepods/burstable/pod1/c1"},
		})
		again, err := kernel.Open(o)
		testkit.Check(t, err)
		if diff := cmp.Diff(k.Snapshot(), again.Snapshot(),
			cmp.Comparer(func(a, b cpuset.Set) bool { return a == b })); diff != "" {
			t.Errorf("%v: the tree changed over a restart (-before +after):\n%s", d, diff)
		}
	}
}

func TestHandMadeEditIsAWriteUnderTheSameRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k, err := kernel.Open(kernel.Options{Dir: dir, Machine: machine(t)})
	testkit.Check(t, err)
	run(t, k, []step{{do: "mkdir", at: "g"}, {do: "write", at: "g", file: desired.CPUs, text: "0-1"}})
	edit := func(text string) {
		testkit.Check(t, os.WriteFile(filepath.Join(dir, "g", desired.CPUs), []byte(text+"\n"), 0o644))
	}
	edit("0-3")
	run(t, k, []step{{do: "read", at: "g", file: v2Effective, text: "0-3"}})
	edit("rubbish")
	run(t, k, []step{{do: "read", at: "g", file: desired.CPUs, text: "0-3"}})
	text, err := os.ReadFile(filepath.Join(dir, "g", desired.CPUs))
	if err != nil || string(text) != "0-3\n" {
		t.Errorf("the file has %q (%v), want the value that the kernel kept", text, err)
	}
}

func TestFaultsAndObserver(t *testing.T) {
	t.Parallel()
	seen := 0
	k, err := kernel.Open(kernel.Options{
		Machine: machine(t), Observe: func([]kernel.Group) { seen++ },
		Fault: func(op kernel.Op, _, _ string) error {
			if op == kernel.OpWrite {
				return syscall.EINTR
			}
			return nil
		},
	})
	testkit.Check(t, err)
	run(t, k, []step{
		{do: "mkdir", at: "g"},
		{do: "write", at: "g", file: desired.CPUs, text: "1", want: syscall.EINTR},
		{do: "read", at: "g", file: desired.CPUs},
	})
	if seen != 1 {
		t.Errorf("the observer was called %d times, want once: a refused write changes nothing", seen)
	}
}

func TestProgramsRecogniseTheTree(t *testing.T) {
	t.Parallel()
	root := host.Root{Dir: testkit.Dir(t)}
	if _, err := kernel.Open(kernel.Options{Dir: root.Cgroup(), Machine: machine(t)}); err != nil {
		t.Fatal(err)
	}
	layout, err := host.Cgroups(root)
	if err != nil || layout.Version != 2 {
		t.Errorf("the tree is recognised as %+v, %v, want cgroup v2", layout, err)
	}
}

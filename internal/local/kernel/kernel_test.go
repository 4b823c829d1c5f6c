package kernel_test

import (
	"errors"
	"io/fs"
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
)

var _ apply.Cgroup = (*kernel.Tree)(nil)

// machine has CPUs 0–7 on two NUMA nodes.
func machine(t *testing.T) *topo.Machine {
	t.Helper()
	var spec topo.Spec
	for id := range 8 {
		spec.CPUs = append(spec.CPUs, topo.CPUSpec{ID: id, Core: id, L3: -1, Die: -1, NUMA: id / 4})
	}
	for id := range 2 {
		spec.NUMA = append(spec.NUMA, topo.NUMASpec{ID: id, MemoryBytes: 1 << 30})
	}
	m, err := topo.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// step is one call and what it answers.
type step struct {
	do   string // write, read, mkdir, rmdir, spawn, kill, online, affinity, use
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
		case "use":
			k.Use(s.at, 100)
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

// TestRulesOfTheKernel has one case for each row and dialect of the table of differences between cgroup v1 and v2.
func TestRulesOfTheKernel(t *testing.T) {
	parent := []step{{do: "mkdir", at: "p"}, {do: "write", at: "p", file: desired.CPUs, text: "0-3"}, {do: "write", at: "p", file: desired.Mems, text: "0"}, {do: "mkdir", at: "p/c"}}
	tests := map[string]struct {
		dialect desired.Dialect
		steps   []step
	}{
		"v1: a new group takes no task until cpus and mems are set": {desired.V1, []step{
			{do: "read", at: "p/c", file: desired.CPUs},
			{do: "spawn", at: "p/c", want: syscall.ENOSPC},
			{do: "write", at: "p/c", file: desired.CPUs, text: "1"},
			{do: "spawn", at: "p/c", want: syscall.ENOSPC},
			{do: "write", at: "p/c", file: desired.Mems, text: "0"},
			{do: "spawn", at: "p/c"},
		}},
		"v2: a new group has the parent's effective set and takes tasks": {desired.V2, []step{
			{do: "read", at: "p/c", file: desired.CPUs},
			{do: "read", at: "p/c", file: v2Effective, text: "0-3"},
			{do: "spawn", at: "p/c"},
		}},
		"v1: cpus outside of the parent are refused": {desired.V1, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "2-5", want: syscall.EACCES},
			{do: "read", at: "p/c", file: desired.CPUs},
		}},
		"v2: cpus outside of the parent are cut": {desired.V2, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "2-5"},
			{do: "read", at: "p/c", file: desired.CPUs, text: "2-5"},
			{do: "read", at: "p/c", file: v2Effective, text: "2-3"},
		}},
		"v2: a set disjoint from the parent's falls back to all of it": {desired.V2, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "6"},
			{do: "read", at: "p/c", file: v2Effective, text: "0-3"},
		}},
		"v1: a parent cannot give up what a child has": {desired.V1, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "2-3"},
			{do: "write", at: "p", file: desired.CPUs, text: "0-2", want: syscall.EBUSY},
			{do: "write", at: "p/c", file: desired.CPUs, text: "2"},
			{do: "write", at: "p", file: desired.CPUs, text: "0-2"},
			{do: "read", at: "p", file: v1Effective, text: "0-2"},
		}},
		"v2: a parent that shrinks below a child takes its isolation without an error": {desired.V2, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "3"},
			{do: "write", at: "p", file: desired.CPUs, text: "0-1"},
			{do: "read", at: "p/c", file: v2Effective, text: "0-1"},
			{do: "write", at: "p", file: desired.CPUs, text: "0-3"},
			{do: "read", at: "p/c", file: v2Effective, text: "3"},
		}},
		"v1: unknown CPUs and memory nodes are refused": {desired.V1, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "8", want: syscall.ERANGE},
			{do: "write", at: "p/c", file: desired.Mems, text: "2", want: syscall.EINVAL},
			{do: "write", at: "p/c", file: desired.CPUs, text: "1-", want: syscall.EINVAL},
		}},
		"v2: unknown CPUs and memory nodes are refused": {desired.V2, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "8", want: syscall.ERANGE},
			{do: "write", at: "p/c", file: desired.Mems, text: "2", want: syscall.EINVAL},
		}},
		"v1: a CPU that goes offline is gone for good": {desired.V1, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "2-3"},
			{do: "online", text: "0-2,4-7"},
			{do: "read", at: "p/c", file: desired.CPUs, text: "2"},
			{do: "online", text: "0-7"},
			{do: "read", at: "p/c", file: desired.CPUs, text: "2"},
		}},
		"v1: tasks of a group whose CPUs all went offline move up": {desired.V1, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "3"},
			{do: "write", at: "p/c", file: desired.Mems, text: "0"},
			{do: "spawn", at: "p/c"},
			{do: "online", text: "0-2"},
			{do: "allowed", text: "0-2"},
		}},
		"v2: a CPU that goes offline comes back, and meanwhile the parent's set counts": {desired.V2, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "3"},
			{do: "online", text: "0-2,4-7"},
			{do: "read", at: "p/c", file: desired.CPUs, text: "3"},
			{do: "read", at: "p/c", file: v2Effective, text: "0-2"},
			{do: "online", text: "0-7"},
			{do: "read", at: "p/c", file: v2Effective, text: "3"},
		}},
		"v1: a populated group keeps its cpus when they are cleared": {desired.V1, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "3"},
			{do: "write", at: "p/c", file: desired.Mems, text: "0"},
			{do: "spawn", at: "p/c"},
			{do: "write", at: "p/c", file: desired.CPUs, text: "\n", want: syscall.ENOSPC},
			{do: "read", at: "p/c", file: desired.CPUs, text: "3"},
		}},
		"v2: a populated group keeps its cpus when they are cleared": {desired.V2, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "3"},
			{do: "spawn", at: "p/c"},
			{do: "write", at: "p/c", file: desired.CPUs, text: "\n", want: syscall.ENOSPC},
			{do: "read", at: "p/c", file: desired.CPUs, text: "3"},
		}},
		"v1: inner groups may hold tasks": {desired.V1, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "3"},
			{do: "spawn", at: "p"},
		}},
		"v2: groups that enabled controllers hold no tasks, and groups with tasks enable none": {desired.V2, []step{
			{do: "write", at: "p", file: "cgroup.subtree_control", text: "+cpuset"},
			{do: "spawn", at: "p", want: syscall.EBUSY},
			{do: "spawn", at: "p/c"},
			{do: "write", at: "p/c", file: "cgroup.subtree_control", text: "+cpuset", want: syscall.EBUSY},
		}},
		"a task that pinned itself gets its wish back when the group is wide again": {desired.V2, []step{
			{do: "spawn", at: "p/c"},
			{do: "affinity", text: "1,7"},
			{do: "allowed", text: "1"},
			{do: "write", at: "p/c", file: desired.CPUs, text: "2-3"},
			{do: "allowed", text: "2-3"},
			{do: "write", at: "p/c", file: desired.CPUs, text: "0-3"},
			{do: "allowed", text: "1"},
		}},
		"v1: a quota above the parent's is refused, both ways": {desired.V1, []step{
			{do: "write", at: "p", file: desired.QuotaV1, text: "50000"},
			{do: "write", at: "p/c", file: desired.QuotaV1, text: "60000", want: syscall.EINVAL},
			{do: "write", at: "p/c", file: desired.QuotaV1, text: "40000"},
			{do: "write", at: "p", file: desired.QuotaV1, text: "30000", want: syscall.EINVAL},
			{do: "write", at: "p/c", file: desired.QuotaV1, text: "-1"},
			{do: "write", at: "p", file: desired.QuotaV1, text: "30000"},
		}},
		"v2: a quota above the parent's is accepted": {desired.V2, []step{
			{do: "write", at: "p", file: desired.QuotaV2, text: "50000 100000"},
			{do: "write", at: "p/c", file: desired.QuotaV2, text: "60000"},
			{do: "read", at: "p/c", file: desired.QuotaV2, text: "60000 100000"},
			{do: "write", at: "p/c", file: desired.QuotaV2, text: "max"},
			{do: "read", at: "p/c", file: desired.QuotaV2, text: "max 100000"},
		}},
		"v1: a memory limit below the usage is refused": {desired.V1, []step{
			{do: "use", at: "p/c"},
			{do: "write", at: "p/c", file: "memory.limit_in_bytes", text: "50", want: syscall.EBUSY},
			{do: "write", at: "p/c", file: "memory.limit_in_bytes", text: "200"},
			{do: "read", at: "p/c", file: "memory.limit_in_bytes", text: "200"},
		}},
		"v2: a memory limit below the usage kills inside the group": {desired.V2, []step{
			{do: "spawn", at: "p/c"},
			{do: "use", at: "p/c"},
			{do: "write", at: "p/c", file: "memory.max", text: "50"},
			{do: "read", at: "p/c", file: "cgroup.events", text: "populated 0\nfrozen 0"},
			{do: "read", at: "p/c", file: "memory.events", text: "oom_kill 1"},
		}},
		"v1: cpu.idle leaves shares of 3": {desired.V1, []step{
			{do: "write", at: "p/c", file: "cpu.idle", text: "1"},
			{do: "read", at: "p/c", file: "cpu.shares", text: "3"},
		}},
		"v2: cpu.idle leaves a weight of 1 that cannot be written": {desired.V2, []step{
			{do: "write", at: "p/c", file: "cpu.idle", text: "1"},
			{do: "read", at: "p/c", file: "cpu.weight", text: "1"},
			{do: "write", at: "p/c", file: "cpu.weight", text: "50", want: syscall.EINVAL},
		}},
		"v1: a group is empty when it has no process": {desired.V1, []step{
			{do: "write", at: "p/c", file: desired.CPUs, text: "3"},
			{do: "write", at: "p/c", file: desired.Mems, text: "0"},
			{do: "spawn", at: "p/c"},
			{do: "read", at: "p/c", file: "cgroup.procs", text: "1000"},
			{do: "rmdir", at: "p/c", want: syscall.EBUSY},
			{do: "kill", at: "p"},
			{do: "read", at: "p/c", file: "cgroup.procs"},
			{do: "rmdir", at: "p/c"},
		}},
		"v2: populated counts the whole subtree, and cgroup.kill ends it": {desired.V2, []step{
			{do: "spawn", at: "p/c"},
			{do: "read", at: "p", file: "cgroup.events", text: "populated 1\nfrozen 0"},
			{do: "write", at: "p", file: "cgroup.kill", text: "1"},
			{do: "read", at: "p", file: "cgroup.events", text: "populated 0\nfrozen 0"},
		}},
		"a file or group that does not exist says so": {desired.V2, []step{
			{do: "read", at: "p/x", file: desired.CPUs, want: fs.ErrNotExist},
			{do: "write", at: "p/x", file: desired.CPUs, text: "1", want: fs.ErrNotExist},
			{do: "read", at: "p", file: "cpuset.unknown", want: fs.ErrNotExist},
			{do: "mkdir", at: "x/y", want: fs.ErrNotExist},
			{do: "mkdir", at: "p/c", want: fs.ErrExist},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := kernel.Open(kernel.Options{Dir: testkit.Dir(t), Dialect: tt.dialect, Machine: machine(t)})
			if err != nil {
				t.Fatal(err)
			}
			run(t, k, parent)
			run(t, k, tt.steps)
		})
	}
}

func TestLaterProcessTakesUpGroupsAndTasks(t *testing.T) {
	t.Parallel()
	for _, d := range []desired.Dialect{desired.V1, desired.V2} {
		o := kernel.Options{Dir: testkit.Dir(t), Dialect: d, Machine: machine(t)}
		k, err := kernel.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.MkdirAll("kubepods/burstable/pod1/c1"); err != nil {
			t.Fatal(err)
		}
		run(t, k, []step{
			{do: "write", at: "kubepods/burstable/pod1/c1", file: desired.CPUs, text: "2,5"},
			{do: "write", at: "kubepods/burstable/pod1/c1", file: desired.Mems, text: "1"},
			{do: "spawn", at: "kubepods/burstable/pod1/c1"},
		})
		again, err := kernel.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(dump(k), dump(again), cmp.Comparer(func(a, b cpuset.Set) bool { return a == b })); diff != "" {
			t.Errorf("%v: the tree changed over a restart (-before +after):\n%s", d, diff)
		}
	}
}

func dump(k *kernel.Tree) []kernel.Group {
	var all []kernel.Group
	k.Snapshot(func(s kernel.State) {
		for g := range s.Groups() {
			all = append(all, g)
		}
	})
	return all
}

func TestHandMadeEditIsAWriteUnderTheSameRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k, err := kernel.Open(kernel.Options{Dir: dir, Machine: machine(t)})
	if err != nil {
		t.Fatal(err)
	}
	run(t, k, []step{{do: "mkdir", at: "g"}, {do: "write", at: "g", file: desired.CPUs, text: "0-1"}})
	edit := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "g", desired.CPUs), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
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
		Machine: machine(t), Observe: func(kernel.State) { seen++ },
		Fault: func(op kernel.Op, _, _ string) error {
			if op == kernel.OpWrite {
				return syscall.EINTR
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
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

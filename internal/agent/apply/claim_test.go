package apply_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/local/kernel"
)

// runAll starts exclusive pods, by UID, and a shared one beside them.
func (r *rig) runAll(pods map[string]string) map[string]apply.Container {
	r.t.Helper()
	r.complete()
	out := map[string]apply.Container{"shared": r.bind("shared", qos.SharedPool, "")}
	r.must(r.run(out["shared"]))
	for uid, cpus := range pods {
		out[uid] = r.bind(uid, qos.Exclusive, cpus)
		r.must(r.run(out[uid]))
	}
	return out
}

// told returns the records of one kind.
func (r *rig) told(k apply.Kind) (out []apply.Record) {
	for _, x := range r.records {
		if x.Kind == k {
			out = append(out, x)
		}
	}
	return out
}

func TestPodsWhoseCPUsWereSwappedByHandGetThemBack(t *testing.T) {
	t.Parallel()
	for name, pods := range map[string]map[string]string{
		"pods of several CPUs":                      {"a": "0-1", "b": "2-3"},
		"pods of one CPU, over the shared pool":     {"a": "0", "b": "2"},
		"a pod of one CPU and one of three":         {"a": "0", "b": "2-4"},
		"pods of one CPU beside a pool of two":      {"a": "0", "b": "2", "c": "1,3-9"},
		"pods of all CPUs but for those of a pool":  {"a": "0-4", "b": "5-9"},
		"pods of several CPUs beside a pool of one": {"a": "0-1", "b": "2-3", "c": "4-10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := r.runAll(pods)
			r.must(r.engine.Verify())
			shared := r.cpus(c["shared"])
			r.must(r.wire.Tree.Write(c["a"].Group, desired.CPUs, pods["b"]))
			r.must(r.wire.Tree.Write(c["b"].Group, desired.CPUs, pods["a"]))
			r.watch = true
			r.must(r.engine.Verify())
			if len(r.overlap) > 0 {
				t.Errorf("on the way back: %s", r.overlap[0])
			}
			for uid, want := range pods {
				if got := r.cpus(c[uid]); got != want {
					t.Errorf("pod %s has %s, want %s back", uid, got, want)
				}
			}
			if got := r.cpus(c["shared"]); got != shared {
				t.Errorf("the shared pod has %s after the repair, want %s", got, shared)
			}
			if n := len(r.told(apply.DriftRepaired)); n != 2 {
				t.Errorf("%d repairs were told, want 2", n)
			}
		})
	}
}

func TestRotatedPodsGetTheirCPUsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.runAll(map[string]string{"a": "0", "b": "1", "c": "2"})
	r.must(r.engine.Verify())
	for uid, foreign := range map[string]string{"a": "1", "b": "2", "c": "0"} {
		r.must(r.wire.Tree.Write(c[uid].Group, desired.CPUs, foreign))
	}
	r.must(r.engine.Verify())
	got := []string{r.cpus(c["a"]), r.cpus(c["b"]), r.cpus(c["c"])}
	if diff := cmp.Diff([]string{"0", "1", "2"}, got); diff != "" {
		t.Errorf("cpusets after the repair (-want +got):\n%s", diff)
	}
}

func TestKnotWithoutAFreeCPUIsToldOnceAndSolvedLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	// No shared CPU is left but one, and a pod of the pool runs on it.
	pods := map[string]string{"a": "0", "b": "2", "c": "1,3-10"}
	containers := map[string]apply.Container{}
	for uid, cpus := range pods {
		containers[uid] = r.bind(uid, qos.Exclusive, cpus)
		r.must(r.run(containers[uid]))
	}
	shared := r.bind("shared", qos.SharedPool, "")
	r.must(r.run(shared))
	r.must(r.engine.Verify())
	r.must(r.wire.Tree.Write(containers["a"].Group, desired.CPUs, "2"))
	r.must(r.wire.Tree.Write(containers["b"].Group, desired.CPUs, "0"))
	for range 3 {
		r.must(r.engine.Verify())
	}
	if a, b, s := r.cpus(containers["a"]), r.cpus(containers["b"]), r.cpus(shared); a != "2" || b != "0" || s != "11" {
		t.Errorf("cpusets are %s, %s and %s: nobody may move while no CPU is free", a, b, s)
	}
	failed := r.told(apply.EnforcementFailed)
	if len(failed) != 2 || !strings.Contains(failed[0].Err.Error(), "no CPU is free for a detour") {
		t.Errorf("told %v, want each pod's failure once", failed)
	}
	r.must(r.wire.Kill(shared.Group))
	r.engine.Stop(shared)
	r.must(r.wire.Rmdir(shared.Group))
	r.engine.Remove(shared)
	r.must(r.engine.Verify())
	if a, b := r.cpus(containers["a"]), r.cpus(containers["b"]); a != "0" || b != "2" {
		t.Errorf("cpusets are %s and %s after a CPU became free, want 0 and 2", a, b)
	}
}

// TestExclusivePodNeverGrowsOntoACPUThatSomebodyHas: the row says more, the tree is not there yet.
func TestExclusivePodNeverGrowsOntoACPUThatSomebodyHas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.runAll(map[string]string{"a": "0-1"})
	r.must(r.engine.Verify())
	r.wire.before = func(op kernel.Op, group, _ string) error {
		if op == kernel.OpWrite && group == c["shared"].Group {
			return syscall.EBUSY
		}
		return nil
	}
	r.reallocate("a", "0-3")
	_ = r.engine.Verify() // the shared pod cannot be told to leave
	if got := r.cpus(c["a"]); got != "0-1" {
		t.Errorf("cpuset = %s while the shared pod still runs on 2-3, want 0-1", got)
	}
	r.wire.before = nil
	r.engine = r.reboot(t, c)
	r.must(r.engine.Verify())
	if got := r.cpus(c["a"]); got != "0-3" {
		t.Errorf("cpuset = %s after the shared pod left, want 0-3", got)
	}
}

// reboot returns a new engine without back-off for the pods a, at 0-3, and shared.
func (r *rig) reboot(t *testing.T, c map[string]apply.Container) *apply.Engine {
	t.Helper()
	e := apply.New(apply.Options{Cgroup: r.wire})
	e.SetFacts(ledger.Facts{Machine: smallMachine(t), MinSharedCPUs: -1})
	e.Update(desired.Pod{Entry: ledger.Entry{UID: "a", Role: qos.Exclusive, CPUList: "0-3"}})
	e.Update(desired.Pod{Entry: ledger.Entry{UID: "shared", Role: qos.SharedPool}})
	e.Prune(func(yield func(string) bool) { _ = yield("a") && yield("shared") })
	return e
}

func (r *rig) reallocate(uid, cpus string) {
	r.engine.Update(desired.Pod{Entry: ledger.Entry{UID: uid, Namespace: "ns", Name: uid, Role: qos.Exclusive, CPUList: cpus}})
}

func TestAllocationThatChangesWhileItsPodRuns(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		to     string // of pod a, which has 0-1; pod b has 4-5
		want   string
		refuse string
	}{
		"to free CPUs is followed":                    {to: "2-3", want: "2-3"},
		"to more CPUs is followed":                    {to: "0-3", want: "0-3"},
		"to fewer CPUs is followed":                   {to: "1", want: "1"},
		"to CPUs of another pod is refused":           {to: "4-5", want: "0-1", refuse: "CPUs 4-5 are those of pod ns/b"},
		"to one CPU of another pod is refused whole":  {to: "1,4", want: "0-1", refuse: "CPUs 4 are those of pod ns/b"},
		"to CPUs that the machine lacks is refused":   {to: "40-41", want: "0-1", refuse: "names no CPU of this machine"},
		"to nothing is refused":                       {to: "", want: "0-1", refuse: "names no CPU of this machine"},
		"to CPUs of which one is unknown follows all": {to: "2,77", want: "2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := r.runAll(map[string]string{"a": "0-1", "b": "4-5"})
			r.must(r.engine.Verify())
			r.reallocate("a", tt.to)
			for range 3 {
				r.must(r.engine.Verify())
			}
			if a, b := r.cpus(c["a"]), r.cpus(c["b"]); a != tt.want || b != "4-5" {
				t.Errorf("a has %s and b %s, want %s and 4-5", a, b, tt.want)
			}
			view := r.engine.View()
			if has := smallMachine(t).FormatList(view.CPUsOf("a")); has != tt.want {
				t.Errorf("the account says %s, want %s", has, tt.want)
			}
			if pool := r.cpus(c["shared"]); pool != smallMachine(t).FormatList(view.SharedPool()) {
				t.Errorf("the shared pod has %s beside the pool %v", pool, view.SharedPool())
			}
			refused := r.told(apply.AllocationRefused)
			if tt.refuse == "" && len(refused) > 0 || tt.refuse != "" && (len(refused) != 1 || !strings.Contains(refused[0].Detail, tt.refuse)) {
				t.Errorf("refusals %+v, want one that says %q", refused, tt.refuse)
			}
		})
	}
}

func TestRefusedAllocationIsFollowedOnceItsCPUsAreFree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.runAll(map[string]string{"a": "0-1", "b": "4-5"})
	r.must(r.engine.Verify())
	r.reallocate("a", "4-5")
	r.must(r.engine.Verify())
	late := r.bind("late", qos.Exclusive, "0-1") // the scheduler believes the annotation
	if err := r.run(late); !errors.Is(err, apply.ErrHandOverPending) {
		t.Errorf("Start on the CPUs that are still in use answers %v, want %v", err, apply.ErrHandOverPending)
	}
	r.engine.Delete("b")
	r.must(r.engine.Verify())
	if got := r.cpus(c["a"]); got != "0-1" {
		t.Errorf("cpuset = %s while b's processes live, want 0-1", got)
	}
	r.must(r.wire.Kill(c["b"].Group))
	r.must(r.engine.Verify())
	if got := r.cpus(c["a"]); got != "4-5" {
		t.Errorf("cpuset = %s after b's death, want 4-5", got)
	}
	r.must(r.run(late))
}

func TestChangeIsJudgedByWhatOthersRunOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.runAll(map[string]string{"a": "0-1", "b": "4-5", "c": "8-9"})
	r.must(r.engine.Verify())
	r.reallocate("a", "4-5") // which b would leave
	r.reallocate("b", "8-9") // if c had not these
	r.must(r.engine.Verify())
	for uid, want := range map[string]string{"a": "0-1", "b": "4-5", "c": "8-9"} {
		if got := r.cpus(c[uid]); got != want {
			t.Errorf("%s has %s, want %s", uid, got, want)
		}
	}
	if problems := r.engine.View().Problems(); len(problems) > 0 {
		t.Errorf("the account contradicts itself: %+v", problems)
	}
}

func TestPodsMayExchangeTheirAllocations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.runAll(map[string]string{"a": "0-1", "b": "4-5"})
	r.must(r.engine.Verify())
	r.reallocate("a", "4-5")
	r.must(r.engine.Verify()) // b is still there: refused
	r.watch = true
	r.reallocate("b", "0-1")
	r.must(r.engine.Verify())
	if a, b := r.cpus(c["a"]), r.cpus(c["b"]); a != "4-5" || b != "0-1" || len(r.overlap) > 0 {
		t.Errorf("cpusets are %s and %s, overlaps %q; want 4-5 and 0-1 without any", a, b, r.overlap)
	}
}

func TestRefusalHoldsOverARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := apply.File(filepath.Join(t.TempDir(), "grants.json"))
	boot := func(a string) {
		r.engine = apply.New(apply.Options{Cgroup: r.wire, Checkpoint: file, Report: func(x apply.Record) { r.records = append(r.records, x) }})
		r.engine.SetFacts(ledger.Facts{Machine: smallMachine(t), MinSharedCPUs: -1})
		r.reallocate("a", a)
		r.reallocate("b", "4-5")
		r.engine.Prune(func(yield func(string) bool) { _ = yield("a") && yield("b") })
	}
	boot("0-1")
	a, b := r.bind("a", qos.Exclusive, "0-1"), r.bind("b", qos.Exclusive, "4-5")
	r.must(r.run(a))
	r.must(r.run(b))
	boot("1,4")
	r.must(r.engine.Verify())
	if got := r.cpus(a); got != "0-1" || len(r.told(apply.AllocationRefused)) != 1 {
		t.Errorf("cpuset = %s and refusals %+v, want 0-1 and one", got, r.told(apply.AllocationRefused))
	}
}

func TestOrphanKeepsItsExclusiveCPUsFromANewPod(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := apply.File(filepath.Join(t.TempDir(), "grants.json"))
	boot := func() {
		r.engine = apply.New(apply.Options{Cgroup: r.wire, Checkpoint: file})
		r.engine.SetFacts(ledger.Facts{Machine: smallMachine(t), MinSharedCPUs: -1})
		r.complete()
	}
	boot()
	old := r.bind("old", qos.Exclusive, "0-3")
	r.must(r.run(old))
	boot() // the pod was deleted by force meanwhile
	r.must(r.engine.Verify())
	next := r.bind("next", qos.Exclusive, "2-3")
	if err := r.run(next); !errors.Is(err, apply.ErrHandOverPending) {
		t.Errorf("Start answers %v, want %v", err, apply.ErrHandOverPending)
	}
	r.must(r.engine.Verify())
	if got := r.cpus(old); got != "0-3" {
		t.Errorf("the orphan has %s, want its 0-3 until it is dead", got)
	}
	r.must(r.wire.Kill(old.Group))
	r.must(r.engine.Verify())
	r.must(r.run(next))
}

func TestDetourWaitsForThoseWhoHaveToLeave(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.runAll(map[string]string{"a": "0", "b": "2"})
	r.must(r.engine.Verify())
	r.must(r.wire.Tree.Write(c["a"].Group, desired.CPUs, "2"))
	r.must(r.wire.Tree.Write(c["b"].Group, desired.CPUs, "0"))
	r.watch = true
	r.wire.before = func(op kernel.Op, group, _ string) error {
		if op == kernel.OpWrite && group == c["shared"].Group {
			return syscall.EBUSY
		}
		return nil
	}
	_ = r.engine.Verify()
	if a, b := r.cpus(c["a"]), r.cpus(c["b"]); a != "2" || b != "0" || len(r.overlap) > 0 {
		t.Errorf("cpusets are %s and %s, overlaps %q: nobody may go where the shared pod stays", a, b, r.overlap)
	}
}

func TestOrphanNeverGainsCPUs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	orphan := r.bind("orphan", qos.SharedPool, "")
	r.must(r.wire.Tree.Write(orphan.Group, desired.CPUs, "4"))
	_, err := r.wire.Spawn(orphan.Group)
	r.must(err)
	e := apply.New(apply.Options{Cgroup: r.wire, Checkpoint: &memo{held: map[string]apply.Grant{}}})
	e.SetFacts(ledger.Facts{Machine: smallMachine(t), MinSharedCPUs: -1})
	e.Prune(func(func(string) bool) {})
	r.must(e.Verify())
	if got := r.cpus(orphan); got != "4" {
		t.Errorf("a group that nobody knows got %s, want what it had", got)
	}
}

// TestEmptyGroupSaysNothingOfAnOrphan: an old answer of Create in a second container made an LSE pod look like LSR.
func TestEmptyGroupSaysNothingOfAnOrphan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	orphan, be := r.bind("orphan", qos.Exclusive, "0"), r.bind("be", qos.BEPool, "")
	r.must(r.wire.Tree.Write(orphan.Group, desired.CPUs, "0"))
	r.must(r.wire.Tree.Write(be.Group, desired.CPUs, "1-11"))
	for _, c := range []apply.Container{orphan, be} {
		_, err := r.wire.Spawn(c.Group)
		r.must(err)
	}
	r.must(r.wire.MkdirAll(orphan.PodGroup + "/late"))
	r.must(r.wire.Tree.Write(orphan.PodGroup+"/late", desired.CPUs, "1"))
	e := apply.New(apply.Options{Cgroup: r.wire})
	e.SetFacts(ledger.Facts{Machine: smallMachine(t), MinSharedCPUs: -1})
	e.Update(desired.Pod{Entry: ledger.Entry{UID: "be", Role: qos.BEPool}})
	e.Prune(func(yield func(string) bool) { yield("be") })
	r.must(e.Verify())
	if got := r.cpus(be); got != "1-11" {
		t.Errorf("BE has %s beside an LSE pod that lives on 0, want 1-11", got)
	}
}

// The shared pod must leave all it has, and what it gets is what the moving pod still runs on.
func TestAChangedAllocationAndTheSharedPoolTradePlaces(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.runAll(map[string]string{"a": "0-1"})
	r.must(r.engine.Verify())
	r.watch = true
	r.reallocate("a", "2-3")
	r.reallocate("waits", "4-11") // bound, and not started
	r.must(r.engine.Verify())
	if a, shared := r.cpus(c["a"]), r.cpus(c["shared"]); a != "2-3" || shared != "0-1" || len(r.overlap) > 0 {
		t.Errorf("cpusets are %s and %s, overlaps %q; want 2-3 and 0-1 without any", a, shared, r.overlap)
	}
}

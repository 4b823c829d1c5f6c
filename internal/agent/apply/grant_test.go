package apply_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
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

// reported returns the records of one kind.
func (r *rig) reported(k apply.Kind) (out []apply.Record) {
	for _, x := range r.records {
		if x.Kind == k {
			out = append(out, x)
		}
	}
	return out
}

// Each of them is alone on the CPUs that it has, and keeps them: neither can move first.
func TestPodsWhoseCPUsWereSwappedByHandKeepThemAndAreReported(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.runAll(map[string]string{"a": "0-1", "b": "2-3"})
	r.must(r.engine.Verify())
	r.must(r.wire.Tree.Write(c["a"].Group, desired.CPUs, "2-3"))
	r.must(r.wire.Tree.Write(c["b"].Group, desired.CPUs, "0-1"))
	r.watch = true
	for range 3 {
		r.must(r.engine.Verify())
	}
	if a, b := r.cpus(c["a"]), r.cpus(c["b"]); a != "2-3" || b != "0-1" || len(r.overlap) > 0 {
		t.Errorf("cpusets are %s and %s, overlaps %q; want 2-3 and 0-1 without any", a, b, r.overlap)
	}
	failed := r.reported(apply.EnforcementFailed)
	if len(failed) != 2 || !strings.Contains(failed[0].Err.Error(), "still has CPUs 0-1") {
		t.Errorf("reported %v, want each pod's failure once", failed)
	}
	late := r.bind("late", qos.Exclusive, "0") // the scheduler cannot know
	if err := r.run(late); !errors.Is(err, apply.ErrHandOverPending) {
		t.Errorf("Start on the CPUs of a pod that is elsewhere answers %v, want %v", err, apply.ErrHandOverPending)
	}
	r.engine.Delete("b")
	r.must(r.wire.Kill(c["b"].Group))
	r.must(r.engine.Verify())
	if a := r.cpus(c["a"]); a != "0-1" {
		t.Errorf("cpuset = %s after the other pod has ended, want 0-1", a)
	}
}

func (r *rig) reallocate(uid, cpus string) {
	r.engine.Update(desired.Pod{Entry: ledger.Entry{
		UID: uid, Namespace: "ns", Name: uid, Role: qos.Exclusive,
		CPUList: cpus,
	}})
}

func TestAPodWhoseAllocationChangesKeepsItsCPUsUntilItEnds(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]string{
		"free CPUs": "2-3", "more CPUs": "0-3", "fewer CPUs": "1", "CPUs of another pod": "4-5",
		"CPUs that the machine does not have": "40-41", "no CPU": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := r.runAll(map[string]string{"a": "0-1", "b": "4-5"})
			r.must(r.engine.Verify())
			r.watch = true
			r.reallocate("a", to)
			for range 3 {
				r.must(r.engine.Verify())
			}
			if a, b := r.cpus(c["a"]), r.cpus(c["b"]); a != "0-1" || b != "4-5" || len(r.overlap) > 0 {
				t.Errorf("a has %s and b %s, overlaps %q, want 0-1 and 4-5 without any", a, b, r.overlap)
			}
			view := r.engine.View()
			if has := smallMachine(t).FormatList(view.CPUsOf("a")); has != "0-1" {
				t.Errorf("the account says %s, want 0-1", has)
			}
			if refused := r.reported(apply.AllocationRefused); len(refused) != 1 || refused[0].Want != to ||
				refused[0].Got != "0-1" {
				t.Errorf("reported %+v, want one refusal", refused)
			}
			late := r.bind("late", qos.Exclusive, "0-1") // the scheduler believes the annotation
			if err := r.run(late); !errors.Is(err, apply.ErrHandOverPending) {
				t.Errorf("Start on the CPUs that are still in use answers %v, want %v", err, apply.ErrHandOverPending)
			}
			r.engine.Delete("a")
			r.must(r.wire.Kill(c["a"].Group))
			r.must(r.wire.Rmdir(c["a"].Group))
			r.must(r.run(late))
		})
	}
}

// What a pod has while a CPU is offline is not what it was granted.
func TestCPUsThatComeBackOnlineAreTheirPodsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.runAll(map[string]string{"a": "0-1"})
	r.must(r.engine.Verify())
	for _, step := range []struct {
		machine *topo.Machine
		want    string
	}{{smallMachine(t, 1), "0"}, {smallMachine(t), "0-1"}} {
		r.must(r.wire.Online(step.machine.Online()))
		r.engine.SetFacts(ledger.Facts{Machine: step.machine, MinSharedCPUs: -1})
		r.must(r.engine.Verify())
		if got := r.cpus(c["a"]); got != step.want {
			t.Errorf("cpuset = %s with CPUs %v online, want %s", got, step.machine.Online(), step.want)
		}
	}
	if refused := r.reported(apply.AllocationRefused); len(refused) > 0 {
		t.Errorf("reported %+v, want nothing: the allocation did not change", refused)
	}
}

func TestRefusalHoldsOverARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := apply.File(filepath.Join(t.TempDir(), "grants.json"))
	boot := func(a string) {
		r.engine = apply.New(apply.Options{
			Cgroup: r.wire, Checkpoint: file,
			Reports: r,
		})
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
	if got := r.cpus(a); got != "0-1" || len(r.reported(apply.AllocationRefused)) != 1 {
		t.Errorf("cpuset = %s and refusals %+v, want 0-1 and one", got, r.reported(apply.AllocationRefused))
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
		t.Errorf("a group of an unknown pod got %s, want what it had", got)
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

// TestExclusivePodsAreThoseThatRunOnTheirCPUs: neither a pod that is about to start, nor one that another pod keeps off
// its CPUs, until the last process of a deleted pod has ended.
func TestExclusivePodsAreThoseThatRunOnTheirCPUs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := func(when, want string) {
		t.Helper()
		pods, known := r.engine.Exclusive()
		text := "unknown"
		if known {
			text = ""
			for _, p := range pods {
				text += p.UID + " " + p.Class.String() + " " + p.CPUs + " " + p.Asks.Latency + ";"
			}
		}
		if text != want {
			t.Errorf("%s: %q, want %q", when, text, want)
		}
	}
	want("before the list of pods is complete", "unknown")
	r.complete()
	r.must(r.engine.Verify())
	want("without pods", "")
	a := r.bind("a", qos.Exclusive, "0-1")
	r.must(r.engine.Reconcile())
	want("before it starts", "")
	r.engine.Update(desired.Pod{
		Entry: ledger.Entry{UID: "a", Namespace: "ns", Name: "a", Role: qos.Exclusive, CPUList: "0-1"},
		Asks:  annotation.Tuning{Latency: "10"},
	})
	r.must(r.run(a))
	want("while it runs", "a LSE 0-1 10;")
	b := r.bind("b", qos.ExclusiveWithBE, "2-3")
	r.must(r.run(b))
	want("beside another one", "a LSE 0-1 10;b LSR 2-3 ;")
	r.engine.Delete("a")
	r.must(r.engine.Verify())
	want("deleted, with a process", "a LSE 0-1 10;b LSR 2-3 ;")
	r.must(r.wire.Kill(a.Group))
	r.must(r.engine.Verify())
	want("ended", "b LSR 2-3 ;")
}

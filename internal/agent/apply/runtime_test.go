package apply_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/local/kernel"
)

// sets are those that the engine gave to groups.
type sets map[string]string

func (s sets) SetsChanged(_ uint64, changed map[string]string) { maps.Copy(s, changed) }

// newRigIn is a rig whose engine looks for pods below roots and keeps what it moved.
func newRigIn(t *testing.T, roots ...string) (*rig, map[string]string) {
	t.Helper()
	m := smallMachine(t)
	r, moved := &rig{t: t}, sets{}
	tree, err := kernel.Open(kernel.Options{Machine: m, Observe: r.observe})
	r.must(err)
	r.wire = &wire{Tree: tree}
	r.engine = apply.New(apply.Options{Cgroup: r.wire, Roots: roots})
	r.engine.Attach(moved)
	r.engine.SetFacts(ledger.Facts{Machine: m, MinSharedCPUs: -1})
	r.complete()
	return r, moved
}

func entryOf(uid string, role qos.Role, cpus string) desired.Pod {
	return desired.Pod{Entry: ledger.Entry{UID: uid, Namespace: "ns", Name: uid, Role: role, CPUList: cpus}}
}

// spawnIn makes a group with a process, as an earlier agent and its runtime left it.
func (r *rig) spawnIn(group, cpus string) {
	r.t.Helper()
	r.must(r.wire.MkdirAll(group))
	r.must(r.wire.Tree.Write(group, desired.CPUs, cpus))
	_, err := r.wire.Spawn(group)
	r.must(err)
}

func TestPodsAreFoundInTheGroupsOfBothDrivers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ root, group, uid string }{
		"cgroupfs":              {"kubepods", "kubepods/burstable/pod1-2/c", "1-2"},
		"cgroupfs below a root": {"a/kubepods", "a/kubepods/pod1-2/c", "1-2"},
		"a slice":               {"kubepods.slice", "kubepods.slice/kubepods-pod1_2.slice/crio-c.scope", "1-2"},
		"a slice of a class": {
			"kubepods.slice",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-c.scope", "1-2",
		},
		"a slice below one with pods": {
			"a.slice/a-pods.slice/a-pods-kubepods.slice",
			"a.slice/a-pods.slice/a-pods-kubepods.slice/a-pods-kubepods-pod1.slice/c.scope", "1",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, moved := newRigIn(t, tt.root)
			r.engine.Update(entryOf(tt.uid, qos.Exclusive, "2-3"))
			r.spawnIn(tt.group, "0-11")
			r.must(r.engine.Verify())
			if diff := cmp.Diff(map[string]string{tt.group: "2-3"}, moved); diff != "" {
				t.Errorf("moved (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPodOutsideOfTheRootsIsKeptWhereTheRuntimeSaysThatItIs(t *testing.T) {
	t.Parallel()
	r, _ := newRigIn(t, "kubepods")
	r.engine.Introduce(entryOf("a", qos.Exclusive, "2-3"))
	c := apply.Container{PodUID: "a", Name: "c", PodGroup: "elsewhere/poda", Group: "elsewhere/poda/c"}
	r.must(r.wire.MkdirAll(c.Group))
	r.must(r.run(c))
	r.must(r.engine.Verify())
	r.must(r.wire.Tree.Write(c.Group, desired.CPUs, "0-11"))
	r.must(r.engine.Verify())
	if got := r.cpus(c); got != "2-3" {
		t.Errorf("cpuset = %q after another program's write, want 2-3", got)
	}
}

func TestTheAPITakesPrecedenceOverTheRuntime(t *testing.T) {
	t.Parallel()
	has := func(r *rig, uid, want string) {
		t.Helper()
		if got, want := r.engine.View().CPUsOf(uid), cpuset.MustParse(want); got != want {
			t.Errorf("the account has %v for %s, want %v", got, uid, want)
		}
	}
	r, _ := newRigIn(t)
	r.engine.Introduce(entryOf("a", qos.Exclusive, "2-3"))
	has(r, "a", "2-3")
	r.engine.Update(entryOf("a", qos.Exclusive, "4"))
	r.engine.Introduce(entryOf("a", qos.Exclusive, "2-3"))
	has(r, "a", "4")
	r.engine.Withdraw("a") // the runtime has no say in what the API knows
	r.must(r.engine.Verify())
	has(r, "a", "4")
	r.engine.Delete("a")
	r.must(r.engine.Verify())
	has(r, "a", "")

	r.engine.Introduce(entryOf("b", qos.Exclusive, "5"))
	r.complete() // the API does not have it, and may never
	r.must(r.engine.Verify())
	has(r, "b", "5")
	r.engine.Withdraw("b")
	r.engine.Introduce(entryOf("b", qos.Exclusive, "5")) // a second sandbox
	r.must(r.engine.Verify())
	has(r, "b", "5")
	r.engine.Withdraw("b")
	r.must(r.engine.Verify())
	has(r, "b", "")
}

func TestANewSandboxIsLookedAtWithoutALookAtTheWholeTree(t *testing.T) {
	t.Parallel()
	for name, inAPI := range map[string]bool{"the API has its pod": true, "the runtime alone has it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, moved := newRigIn(t)
			r.must(r.engine.Verify())
			pod := entryOf("a", qos.SharedPool, "")
			if inAPI {
				r.engine.Update(pod)
			}
			pod.Cgroup = "kubepods/poda"
			r.engine.Introduce(pod)
			r.engine.Update(entryOf("x", qos.Exclusive, "0-1"))
			r.spawnIn("kubepods/poda/sandbox", "0-11")
			lists := 0
			r.wire.before = func(op kernel.Op, _, _ string) error {
				if op == kernel.OpList {
					lists++
				}
				return nil
			}
			r.engine.Visit("a")
			r.must(r.engine.Reconcile())
			if got := moved["kubepods/poda/sandbox"]; got != "2-11" || lists != 1 {
				t.Errorf("the sandbox has %q after %d lists, want 2-11 after one", got, lists)
			}
		})
	}
}

func TestAContainerThatTheRuntimeHadBeforeKeepsItsCPUs(t *testing.T) {
	t.Parallel()
	r, _ := newRigIn(t)
	r.engine.Introduce(entryOf("a", qos.Exclusive, "2-3"))
	r.must(r.wire.MkdirAll("kubepods/poda/c"))
	r.must(r.wire.Tree.Write("kubepods/poda/c", desired.CPUs, "2-3"))
	had := apply.Container{PodUID: "a", Name: "c", PodGroup: "kubepods/poda", Group: "kubepods/poda/c"}
	r.engine.AddStarted(had, false)
	if err := r.run(r.bind("b", qos.Exclusive, "3-4")); !errors.Is(err, apply.ErrHandOverPending) {
		t.Errorf("err = %v, want a hand-over that waits: a process may be born there", err)
	}
	r.engine.AddStarted(had, true)
	r.engine.Delete("a")
	r.engine.Withdraw("a")
	r.must(r.wire.Rmdir("kubepods/poda/c"))
	r.must(r.run(r.bind("c", qos.Exclusive, "2")))
}

func TestAMalformedAllocationStartsNothing(t *testing.T) {
	t.Parallel()
	r, _ := newRigIn(t)
	p := entryOf("a", qos.SharedPool, "")
	p.Malformed = "it is not JSON"
	r.engine.Update(p)
	c := apply.Container{PodUID: "a", Name: "c", PodGroup: "kubepods/poda", Group: "kubepods/poda/c"}
	_, err := r.engine.Create(c)
	if !errors.Is(err, apply.ErrMalformed) {
		t.Errorf("create: err = %v, want ErrMalformed", err)
	}
	if err := r.engine.Start(t.Context(), c); !errors.Is(err, apply.ErrMalformed) {
		t.Errorf("start: err = %v, want ErrMalformed", err)
	}
}

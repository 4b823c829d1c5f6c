package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// TestHooksAndPassesSideBySide lets several runtimes start and stop containers while the engine runs. Three of them
// alternate on the same exclusive CPUs; the kernel is watched at every change.
func TestHooksAndPassesSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var overlap atomic.Pointer[string]
		m := smallMachine(t)
		tree, err := kernel.Open(kernel.Options{Machine: m, Observe: func(s []kernel.Group) {
			owner := map[int]string{}
			for _, g := range s {
				if g.Tasks == 0 || !strings.Contains(g.Path, "podx") {
					continue
				}
				for c := range g.Effective.All() {
					owner[c] = g.Path
				}
			}
			for _, g := range s {
				for c := range g.Effective.All() {
					if other := owner[c]; g.Tasks > 0 && other != "" && other != g.Path {
						text := fmt.Sprintf("CPU %d is in %s and in %s", c, g.Path, other)
						overlap.Store(&text)
					}
				}
			}
		}})
		testkit.Check(t, err)
		e := apply.New(apply.Options{Cgroup: tree})
		e.SetFacts(ledger.Facts{Machine: m, MinSharedCPUs: -1})
		e.Prune(func(func(string) bool) {})
		ctx, cancel := context.WithCancel(t.Context())
		var wg, loop sync.WaitGroup
		loop.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		var ran atomic.Int32
		for worker := range 6 {
			wg.Go(func() {
				for turn := range 20 {
					uid, entry := "s"+strconv.Itoa(worker)+"-"+strconv.Itoa(turn), ledger.Entry{Role: qos.SharedPool}
					if worker < 3 {
						uid = "x" + uid
						entry = ledger.Entry{Class: qos.LSE, Role: qos.Exclusive, CPUList: "1-3"}
					}
					entry.UID, entry.Name = uid, uid
					e.Update(desired.Pod{Entry: entry})
					if live(ctx, e, tree, uid) {
						ran.Add(1)
					}
					e.Delete(uid)
				}
			})
		}
		wg.Wait()
		synctest.Wait() // the pass that the last Delete asked for
		cancel()
		loop.Wait()
		if text := overlap.Load(); text != nil {
			t.Error(*text)
		}
		if got := ran.Load(); got != 120 {
			t.Errorf("%d containers ran, want 120", got)
		}
		if got, all := e.View().SharedPool(), m.Online(); got != all {
			t.Errorf("the shared pool is %v in the end, want %v", got, all)
		}
	})
}

// A pod that is bound between the pass and the verdict moves the pool: the container starts on what is left of it, and
// is not refused for a set that was right a moment ago.
func TestAPoolThatMovesWhileAContainerStartsRefusesNothing(t *testing.T) {
	t.Parallel()
	m := smallMachine(t)
	var e *apply.Engine
	var bound sync.Once
	tree, err := kernel.Open(kernel.Options{Machine: m, Observe: func(s []kernel.Group) {
		for _, g := range s {
			if g.Path == "kubepods/podls/c" && !g.Effective.IsEmpty() && e != nil {
				bound.Do(func() {
					e.Update(desired.Pod{Entry: ledger.Entry{
						UID: "x", Name: "x", Class: qos.LSE, Role: qos.Exclusive, CPUList: "1-3",
					}})
				})
			}
		}
	}})
	testkit.Check(t, err)
	engine := apply.New(apply.Options{Cgroup: tree})
	engine.SetFacts(ledger.Facts{Machine: m, MinSharedCPUs: -1})
	engine.Prune(func(func(string) bool) {})
	engine.Update(desired.Pod{Entry: ledger.Entry{UID: "ls", Name: "ls", Role: qos.SharedPool}})
	c := apply.Container{PodUID: "ls", PodGroup: "kubepods/podls", Group: "kubepods/podls/c"}
	if _, err := engine.Create(c); err != nil {
		t.Fatal(err)
	}
	testkit.Check(t, tree.MkdirAll(c.Group))
	if err := tree.Write(c.Group, desired.CPUs, "0-2"); err != nil { // the pass of Start writes another set
		t.Fatal(err)
	}
	e = engine
	if err := engine.Start(t.Context(), c); err != nil {
		t.Error(err)
	}
	if got, err := tree.Read(c.Group, desired.CPUs); got != "0,4-11" || err != nil {
		t.Errorf("the container is on CPUs %q, %v; want 0,4-11", got, err)
	}
}

// live runs one container through its life, as a kubelet does that tries again while the hand-over is pending.
func live(ctx context.Context, e *apply.Engine, tree *kernel.Tree, uid string) bool {
	c := apply.Container{PodUID: uid, PodGroup: "kubepods/pod" + uid, Group: "kubepods/pod" + uid + "/c"}
	for range 10_000 {
		rows, err := e.Create(c)
		if err != nil || tree.MkdirAll(c.Group) != nil {
			return false
		}
		for _, row := range rows {
			if tree.Write(row.Path, row.File, row.Value) != nil {
				return false
			}
		}
		err = e.Start(ctx, c)
		if err == nil {
			_, err = tree.Spawn(c.Group)
			time.Sleep(time.Millisecond) //nolint:forbidigo // a life of some length, under the race detector
			_ = tree.Kill(c.Group)
		}
		e.Stop(c)
		_ = tree.Rmdir(c.Group)
		e.Remove(c)
		if !errors.Is(err, apply.ErrHandOverPending) {
			return err == nil
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // a life of some length, under the race detector
	}
	return false
}

// TestWhoAsksWhatIsWantedDoesNotDisturbAPass: also where the kubelet has pinned pods, so that what is wanted of a group
// depends on what was read of it.
func TestWhoAsksWhatIsWantedDoesNotDisturbAPass(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.engine.SetFacts(ledger.Facts{
		Machine: smallMachine(t), MinSharedCPUs: -1,
		Model: kubelet.Facts{Config: kubelet.Config{CPU: kubelet.CPU{Static: true}}},
		Given: []tenancy.Grant{{UID: "pinned", CPUs: cpuset.MustParse("1")}},
	})
	r.complete()
	r.engine.Update(desired.Pod{Entry: ledger.Entry{UID: "pinned", Namespace: "ns", Name: "pinned"}, Pinnable: true})
	r.spawnIn("kubepods/podpinned/pause", "0-11")
	r.spawnIn("kubepods/podpinned/c", "1")
	r.engine.AddStarted(apply.Container{PodUID: "pinned", Name: "c", Group: "kubepods/podpinned/c"}, false)
	var passes sync.WaitGroup
	var ended atomic.Bool
	passes.Go(func() {
		defer ended.Store(true)
		for range 200 {
			if err := r.engine.Verify(); err != nil {
				t.Error(err)
			}
		}
	})
	for !ended.Load() {
		r.engine.Table()
		if _, err := r.engine.Inspect("pinned"); err != nil {
			t.Error(err)
		}
	}
	passes.Wait()
	want := []string{"kubepods/podpinned/pause=0,2-11"}
	var got []string
	for _, row := range r.engine.Table().Rows {
		got = append(got, row.Path+"="+row.Value)
	}
	if !slices.Equal(got, want) {
		t.Errorf("table = %q, want %q", got, want)
	}
}

// TestAnInterruptedLookIsTakenAgainSoon: what asked for it does not have to ask twice.
func TestAnInterruptedLookIsTakenAgainSoon(t *testing.T) {
	t.Parallel()
	asks := map[string]func(*rig){
		"the whole tree":          func(r *rig) { r.engine.Recheck() },
		"the groups of a sandbox": func(r *rig) { r.engine.Visit("a") },
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.complete()
				r.must(r.run(r.bind("x", qos.Exclusive, "2-3")))
				r.must(r.run(r.bind("a", qos.SharedPool, "")))
				ctx, cancel := context.WithCancel(t.Context())
				var loop sync.WaitGroup
				loop.Go(func() { _ = r.engine.Run(ctx) })
				synctest.Wait()
				r.spawnIn("kubepods/poda/pause", "0-11")
				failed := false
				r.wire.before = func(op kernel.Op, _, _ string) error {
					if op != kernel.OpList || failed {
						return nil
					}
					failed = true
					return syscall.EMFILE
				}
				ask(r)
				time.Sleep(time.Second) //nolint:forbidigo // the clock is the bubble's
				synctest.Wait()
				if got := r.cpus(apply.Container{Group: "kubepods/poda/pause"}); got != "0-1,4-11" || !failed {
					t.Errorf("the sandbox has %q, want 0-1,4-11", got)
				}
				cancel()
				loop.Wait()
			})
		})
	}
}

// TestAMachineThatChangesWithinAStart: sets that were read are in the numbers of the old one.
func TestAMachineThatChangesWithinAStart(t *testing.T) {
	t.Parallel()
	spec := grid.Machine{Cores: 8, NodeBytes: 1 << 30}.Spec()
	for i := range spec.CPUs { // CPUs 4-11: what is the fifth CPU of one is the first of the other
		spec.CPUs[i].ID += 4
	}
	other := grid.Build(t, spec)
	for name, at := range map[string]int{"while it is looked at": 1, "while it is read back": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.complete()
			c := r.bind("x", qos.Exclusive, "4-5")
			reads := 0
			r.wire.before = func(op kernel.Op, group, file string) error {
				if op != kernel.OpRead || group != c.Group || file != "cpuset.cpus.effective" {
					return nil
				}
				if reads++; reads == at {
					r.engine.SetFacts(ledger.Facts{Machine: other, MinSharedCPUs: -1})
				}
				return nil
			}
			if err := r.engine.Start(t.Context(), c); !errors.Is(err, apply.ErrNotReady) {
				t.Errorf("start = %v, want %v", err, apply.ErrNotReady)
			}
			r.must(r.engine.Start(t.Context(), c))
			if got := r.cpus(c); got != "4-5" {
				t.Errorf("cpuset = %q, want 4-5", got)
			}
		})
	}
}

// TestACancelledStartStartsNothing: its caller has refused the container by then.
func TestACancelledStartStartsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	c := r.bind("x", qos.Exclusive, "2-3")
	ctx, giveUp := context.WithCancel(t.Context())
	r.wire.before = func(op kernel.Op, group, file string) error {
		if op == kernel.OpWrite && group == c.Group && file == desired.CPUs {
			giveUp() // the write takes too long
		}
		return nil
	}
	if err := r.engine.Start(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("start = %v, want %v", err, context.Canceled)
	}
	r.engine.Delete("x") // and its runtime leaves an empty group behind
	r.must(r.engine.Verify())
	if got := r.engine.View().CPUsOf("x"); !got.IsEmpty() {
		t.Errorf("the pod that is gone still holds %v", got)
	}
}

// TestAKubeletThatIsRestartedBesideACreate: its memory manager may become known while a container is created.
func TestAKubeletThatIsRestartedBesideACreate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	p := entryOf("a", qos.Exclusive, "2-3")
	p.MemoryNUMAIDs = []int{0}
	r.engine.Update(p)
	c := apply.Container{PodUID: "a", Name: "c", PodGroup: "kubepods/poda", Group: "kubepods/poda/c"}
	mems := func() int {
		rows, err := r.engine.Create(c)
		r.must(err)
		return len(slices.DeleteFunc(rows, func(x desired.Row) bool { return x.File != desired.Mems }))
	}
	var kubelet sync.WaitGroup
	var ended atomic.Bool
	kubelet.Go(func() {
		defer ended.Store(true)
		for turn := range 200 {
			r.engine.KubeletKeepsMemory(turn%2 == 0)
		}
	})
	for !ended.Load() {
		mems()
	}
	kubelet.Wait()
	r.engine.KubeletKeepsMemory(true)
	if n := mems(); n != 0 {
		t.Errorf("%d sets of memory nodes beside a kubelet that keeps them, want none", n)
	}
	r.engine.KubeletKeepsMemory(false)
	if n := mems(); n != 1 {
		t.Errorf("%d sets of memory nodes, want one", n)
	}
}

// A read of the tree that hangs, as of a group that is being frozen, must not keep everybody who gave up.
func TestStartsThatGaveUpDoNotPileUpBehindAHungRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	c := r.bind("a", qos.SharedPool, "")
	hung, release := make(chan struct{}), make(chan struct{})
	r.wire.before = func(op kernel.Op, _, _ string) error {
		r.wire.before = nil
		close(hung)
		<-release
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- r.engine.Verify() }()
	<-hung
	ctx, cancel := context.WithCancel(t.Context())
	const many = 100
	gaveUp := make(chan error, many)
	for range many {
		go func() { gaveUp <- r.engine.Start(ctx, c) }()
	}
	cancel()
	for range many {
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("Start answers %v, want that it was cancelled", err)
		}
	}
	close(release)
	r.must(<-done)
}

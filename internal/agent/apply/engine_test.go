package apply_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an engine over a simulated kernel, with what it reported.
type rig struct {
	t       *testing.T
	wire    *wire
	engine  *apply.Engine
	records []apply.Record
	// watch makes overlap collect the instants at which two groups had a CPU in common.
	watch   bool
	overlap []string
}

// observe sees no overlap only where at most one pod is a shared one.
func (r *rig) observe(s []kernel.Group) {
	if !r.watch {
		return
	}
	groups := s
	for i, a := range groups {
		for _, b := range groups[i+1:] {
			if a.Tasks > 0 && b.Tasks > 0 && a.Effective.Overlaps(&b.Effective) {
				r.overlap = append(r.overlap, fmt.Sprintf("%s has %v while %s has %v", a.Path, a.Effective, b.Path,
					b.Effective))
			}
		}
	}
}

func (r *rig) Record(x apply.Record) { r.records = append(r.records, x) }
func (r *rig) Timed(time.Duration)   {}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, desired.V2)
}

func newRigOf(t *testing.T, dialect desired.Dialect) *rig {
	t.Helper()
	m := smallMachine(t)
	r := &rig{t: t}
	tree, err := kernel.Open(kernel.Options{Machine: m, Dialect: dialect, Observe: r.observe})
	testkit.Check(t, err)
	r.wire = &wire{Tree: tree}
	r.engine = apply.New(apply.Options{
		Cgroup:  r.wire,
		Reports: r,
	})
	r.engine.SetFacts(ledger.Facts{Machine: m, MinSharedCPUs: -1})
	return r
}

func (r *rig) complete() { r.engine.Prune(func(func(string) bool) {}) }

func (r *rig) bind(uid string, role qos.Role, cpus string) apply.Container {
	r.t.Helper()
	r.engine.Update(desired.Pod{Entry: ledger.Entry{UID: uid, Namespace: "ns", Name: uid, Role: role, CPUList: cpus}})
	c := apply.Container{PodUID: uid, Name: "c", PodGroup: "kubepods/pod" + uid, Group: "kubepods/pod" + uid + "/c"}
	if err := r.wire.MkdirAll(c.Group); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// run does what a runtime does to start a container.
func (r *rig) run(c apply.Container) error {
	r.t.Helper()
	rows, err := r.engine.Create(c)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := r.wire.Tree.Write(row.Path, row.File, row.Value); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.engine.Start(r.t.Context(), c); err != nil {
		return err
	}
	_, err = r.wire.Spawn(c.Group)
	return err
}

func (r *rig) cpus(c apply.Container) string {
	r.t.Helper()
	got, err := r.wire.Tree.Read(c.Group, desired.CPUs)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) kinds() []apply.Kind {
	var out []apply.Kind
	for _, x := range r.records {
		out = append(out, x.Kind)
	}
	return out
}

func TestNothingIsWrittenBeforeThePodListIsComplete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.bind("a", qos.SharedPool, "")
	if err := r.run(c); !errors.Is(err, apply.ErrNotReady) {
		t.Errorf("Start answers %v, want ErrNotReady", err)
	}
	if err := r.engine.Verify(); !errors.Is(err, apply.ErrNotReady) || len(r.wire.writes) > 0 {
		t.Errorf("Verify answers %v after the writes %v", err, r.wire.writes)
	}
}

// Law: pods that the API sends while the list of pods is made are not taken for deleted ones. A plain pod among them
// would start without CPUs of its pool, on those of others.
func TestPodsThatArriveWhileTheListIsMadeStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	gone, changed := r.bind("gone", qos.SharedPool, ""), r.bind("changed", qos.SharedPool, "")
	known := desired.Pod{Entry: ledger.Entry{UID: "met", Namespace: "ns", Name: "met", Role: qos.SharedPool}}
	r.engine.Introduce(known)
	var fresh, met apply.Container
	r.engine.Prune(func(func(string) bool) {
		fresh, met = r.bind("fresh", qos.SharedPool, ""), r.bind("met", qos.SharedPool, "")
		changed = r.bind("changed", qos.Exclusive, "1-2")
	})
	for _, c := range []apply.Container{fresh, met, changed} {
		if err := r.run(c); err != nil {
			t.Errorf("pod %s: %v", c.PodUID, err)
		}
	}
	if err := r.run(gone); !errors.Is(err, apply.ErrUnknownPod) {
		t.Errorf("a pod that the list does not have starts with %v, want ErrUnknownPod", err)
	}
}

func TestStartIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.engine.Prune(func(func(string) bool) {})
	first := r.bind("first", qos.Exclusive, "1-2")
	r.must(r.run(first))
	r.engine.Delete("first") // by force: its process lives on
	for name, tt := range map[string]struct {
		c    apply.Container
		want error
	}{
		"CPUs that a dying pod still has":        {r.bind("second", qos.Exclusive, "2-3"), apply.ErrHandOverPending},
		"an exclusive pod without an allocation": {r.bind("foreign", qos.Exclusive, ""), apply.ErrUnallocated},
		"an unknown pod": {apply.Container{
			PodUID: "x", PodGroup: "kubepods/podx",
			Group: "kubepods/podx/c",
		}, apply.ErrUnknownPod},
	} {
		err := r.run(tt.c)
		var blocked *apply.Blocked
		if !errors.Is(err, tt.want) || !errors.As(err, &blocked) {
			t.Errorf("%s: %v, want a *Blocked for %v", name, err, tt.want)
		}
	}
	if got := r.cpus(first); got != "1-2" {
		t.Errorf("the dying pod's set became %q", got)
	}
	r.must(r.wire.Kill(first.Group))
	r.engine.Stop(first)
	r.must(r.run(r.bind("third", qos.Exclusive, "1-2")))
}

func TestPoolGrowsOnlyAfterDeath(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	shared, bound := r.bind("s", qos.SharedPool, ""), r.bind("x", qos.Exclusive, "0-3")
	r.must(r.run(shared))
	r.must(r.run(bound))
	steps := []struct {
		what string
		do   func()
		want string
	}{
		{"the exclusive pod runs", func() {}, "4-11"},
		{"it is gone from the API, its process is not", func() { r.engine.Delete("x") }, "4-11"},
		{"its process has ended", func() { r.must(r.wire.Kill(bound.Group)) }, "0-11"},
	}
	for _, s := range steps {
		s.do()
		r.must(r.engine.Reconcile())
		if got := r.cpus(shared); got != s.want {
			t.Errorf("%s: the shared pod has %q, want %q", s.what, got, s.want)
		}
	}
}

// An agent in a pod is the root of its cgroup namespace: a kernel with nsdelegate refuses the set of that group alone.
func TestTheAgentsOwnGroupMakesRoomWhereTheKernelRefusesItsSet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	own := r.bind("agent", qos.SharedPool, "")
	_, err := r.wire.Spawn(own.Group) // it started without an agent
	r.must(err)
	r.wire.before = func(op kernel.Op, group, file string) error {
		if op == kernel.OpWrite && group == own.Group && file == desired.CPUs {
			return syscall.EPERM
		}
		return nil
	}
	for name, test := range map[string]struct{ cpus, want string }{
		"x": {"0-3", "4-11"}, "y": {"4-7", "0-3,8-11"}, // each leaves the pool before the next one comes
	} {
		bound := r.bind(name, qos.Exclusive, test.cpus)
		r.must(r.run(bound))
		for _, want := range []string{test.want, "0-11"} {
			r.must(r.engine.Verify())
			if got, err := r.wire.Tree.Read(own.Group, "cpuset.cpus.effective"); err != nil || got != want {
				t.Errorf("pod %s on %s: the agent runs on %q (%v), want %q", name, test.cpus, got, err, want)
			}
			r.engine.Delete(name)
			r.must(r.engine.Reconcile())
			r.must(r.wire.Kill(bound.Group))
		}
	}
	if len(r.records) > 0 {
		t.Errorf("records: %v", r.records)
	}
}

func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	r.must(r.run(r.bind("s", qos.SharedPool, "")))
	r.must(r.run(r.bind("x", qos.Exclusive, "0-3")))
	r.must(r.run(r.bind("b", qos.BEPool, "")))
	r.must(r.engine.Verify())
	r.wire.writes = nil
	r.must(r.engine.Verify())
	r.must(r.engine.Reconcile())
	if len(r.wire.writes) > 0 {
		t.Errorf("written: %v", r.wire.writes)
	}
}

func TestDriftIsRepairedAndReported(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	shared, bound := r.bind("s", qos.SharedPool, ""), r.bind("x", qos.ExclusiveWithBE, "0-3")
	r.must(r.run(shared))
	r.must(r.run(bound))
	r.must(r.engine.Verify())
	r.must(r.wire.Tree.Write(shared.Group, desired.CPUs, "0-11"))
	r.must(r.wire.Tree.Write(bound.Group, desired.QuotaV2, "1000 100000"))
	r.must(r.engine.Verify())
	if got := r.cpus(shared); got != "4-11" {
		t.Errorf("cpuset is %q, want 4-11", got)
	}
	if got, _ := r.wire.Tree.Read(bound.Group, desired.QuotaV2); got != "max 100000" {
		t.Errorf("quota is %q, want none", got)
	}
	want := map[apply.Kind]int{apply.Drifted: 2, apply.DriftRepaired: 2}
	got := map[apply.Kind]int{}
	for _, k := range r.kinds() {
		got[k]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if x := r.records[0]; x.Namespace != "ns" || x.Name == "" || x.Want == x.Got {
		t.Errorf("the record does not say what happened: %+v", x)
	}
}

func TestRefusedWriteIsReportedOnceAndTriedAgainLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.complete()
		shared := r.bind("s", qos.SharedPool, "")
		r.must(r.run(shared))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.engine.Run(ctx) }()
		synctest.Wait()
		refusals := 0
		r.wire.before = func(op kernel.Op, group, _ string) error {
			if op == kernel.OpWrite && group == shared.Group && refusals < 4 {
				refusals++
				return syscall.EBUSY
			}
			return nil
		}
		bound := r.bind("x", qos.Exclusive, "0-3")
		time.Sleep(time.Hour) //nolint:forbidigo // the clock is the bubble's
		synctest.Wait()
		if got := r.cpus(shared); got != "4-11" {
			t.Errorf("the shared pod has %q after an hour, want 4-11", got)
		}
		if diff := cmp.Diff([]apply.Kind{apply.EnforcementFailed}, r.kinds()); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
		r.must(r.run(bound))
		cancel()
		r.must(<-done)
	})
}

func TestRestartHoldsTheCPUsOfAPodThatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := apply.File(filepath.Join(t.TempDir(), "agent", "grants.json"))
	boot := func() {
		r.engine = apply.New(apply.Options{
			Cgroup: r.wire, Checkpoint: file,
			Reports: r,
		})
		r.engine.SetFacts(ledger.Facts{Machine: smallMachine(t), MinSharedCPUs: -1})
	}
	boot()
	r.complete()
	bound := r.bind("x", qos.ExclusiveWithBE, "0-3")
	r.must(r.run(bound))
	boot()
	shared, be := r.bind("s", qos.SharedPool, ""), r.bind("b", qos.BEPool, "")
	r.engine.Prune(maps.Keys(map[string]bool{"s": true, "b": true}))
	r.must(r.engine.Verify())
	r.must(r.run(shared))
	r.must(r.run(be))
	if s, b := r.cpus(shared), r.cpus(be); s != "4-11" || b != "0-11" {
		t.Errorf("LS has %q, BE %q; want 4-11 and 0-11 beside an LSR pod that still lives", s, b)
	}
	r.must(r.wire.Kill(bound.Group))
	r.must(r.engine.Verify())
	if got := r.cpus(shared); got != "0-11" {
		t.Errorf("LS has %q after the pod's death, want 0-11", got)
	}
	text, err := os.ReadFile(string(file))
	if err != nil || strings.Contains(string(text), `"x"`) {
		t.Errorf("the checkpoint still has the dead pod: %s (%v)", text, err)
	}
}

func TestCheckpointThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON":            "{",
		"another version":    `{"version":2}`,
		"an unknown class":   `{"version":1,"grants":{"u":{"class":"BE","cpuset":"1"}}}`,
		"a malformed cpuset": `{"version":1,"grants":{"u":{"class":"LSE","cpuset":"1-"}}}`,
	} {
		file := filepath.Join(t.TempDir(), "grants.json")
		testkit.Check(t, os.WriteFile(file, []byte(text), 0o600))
		if got, err := apply.File(file).Load(); err == nil {
			t.Errorf("%s was read as %v", name, got)
		}
	}
}

func TestMountedTreeWritesOneValueOnce(t *testing.T) {
	t.Parallel()
	for dialect, path := range map[desired.Dialect]string{desired.V2: "g", desired.V1: "cpuset/g"} {
		dir := t.TempDir()
		testkit.Check(t, os.MkdirAll(filepath.Join(dir, path, "child"), 0o755))
		file := filepath.Join(dir, path, desired.CPUs)
		testkit.Check(t, os.WriteFile(file, []byte("0-3\n"), 0o644))
		tree := apply.Mounted(dir, dialect)
		if got, err := tree.Read("g", desired.CPUs); err != nil || got != "0-3" {
			t.Errorf("%v: read %q (%v), want 0-3", dialect, got, err)
		}
		if got, err := tree.Children("g"); err != nil || len(got) != 1 || got[0] != "child" {
			t.Errorf("%v: children %v (%v), want child", dialect, got, err)
		}
		if err := tree.Write("g", desired.CPUs, "7-9"); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), "7-9") {
			t.Errorf("%v: the file has %q (%v)", dialect, b, err)
		}
		if err := tree.Write("missing", desired.CPUs, "1"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: a missing group answers %v", dialect, err)
		}
	}
}

// BenchmarkReconcile is one pass over a node on which nothing changed: at most 2 ms for 200 containers.
func BenchmarkReconcile(b *testing.B) {
	for _, containers := range []int{20, 200} {
		b.Run("containers="+strconv.Itoa(containers), func(b *testing.B) {
			m := smallMachine(b)
			tree, err := kernel.Open(kernel.Options{Machine: m})
			if err != nil {
				b.Fatal(err)
			}
			w := &wire{Tree: tree}
			e := apply.New(apply.Options{Cgroup: w})
			e.SetFacts(ledger.Facts{Machine: m, MinSharedCPUs: -1})
			e.Prune(func(func(string) bool) {})
			for i := range containers {
				uid := strconv.Itoa(i)
				p := desired.Pod{Entry: ledger.Entry{UID: uid, Namespace: "ns", Name: uid, Role: qos.SharedPool}}
				if i < 4 {
					p.Entry.Role, p.Entry.CPUList = qos.Exclusive, uid
				}
				e.Update(p)
				c := apply.Container{PodUID: uid, PodGroup: "kubepods/pod" + uid, Group: "kubepods/pod" + uid + "/c"}
				if err := tree.MkdirAll(c.Group); err != nil {
					b.Fatal(err)
				}
				if err := e.Start(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
			w.writes = nil
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Reconcile(); err != nil {
					b.Fatal(err)
				}
			}
			if len(w.writes) > 0 {
				b.Fatalf("nothing changed, and yet: %v", w.writes)
			}
		})
	}
}

// A kubelet gives the sandbox of a pod that it pins no CPUs: it can run on all of them, those of later pods among them.
func TestSandboxesOfPinnedPodsMakeRoom(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reports bool // a runtime reports containers
		want    map[string]string
		err     error
	}{
		"where a runtime reports containers, unpinned groups are on the shared pool": {
			reports: true,
			want:    map[string]string{"app": "2,8", "sandbox": "0-1,3,6-7,9-11", "sidecar": "0-1,3,6-7,9-11"},
		},
		"without one, no pod gets the CPUs that they can run on": {
			want: map[string]string{"app": "2,8", "sandbox": "0-11", "sidecar": "0-11"}, err: apply.ErrHandOverPending,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.engine.SetFacts(ledger.Facts{
				Machine: smallMachine(t), MinSharedCPUs: -1,
				Model: kubelet.Facts{Config: kubelet.Config{CPU: kubelet.CPU{Static: true}}},
				Given: []tenancy.Grant{{UID: "pinned", CPUs: cpuset.MustParse("2,8")}},
			})
			r.engine.Update(desired.Pod{
				Pinnable: true,
				Entry:    ledger.Entry{UID: "pinned", Namespace: "ns", Name: "pinned", Role: qos.SharedPool},
			})
			groups := map[string]apply.Container{}
			for leaf, cpus := range map[string]string{"app": "2,8", "sandbox": "0-11", "sidecar": "0-11"} {
				c := apply.Container{
					PodUID: "pinned", Name: leaf, PodGroup: "kubepods/podpinned",
					Group: "kubepods/podpinned/" + leaf,
				}
				groups[leaf] = c
				r.must(r.wire.MkdirAll(c.Group))
				r.must(r.wire.Tree.Write(c.Group, desired.Mems, "0"))
				r.must(r.wire.Tree.Write(c.Group, desired.CPUs, cpus))
				_, err := r.wire.Spawn(c.Group)
				r.must(err)
				if tt.reports && leaf != "sandbox" {
					r.engine.AddStarted(c, false)
				}
			}
			r.complete()
			r.must(r.engine.Verify())
			if err := r.run(r.bind("x", qos.Exclusive, "4-5")); !errors.Is(err, tt.err) {
				t.Errorf("the exclusive pod starts with %v, want %v", err, tt.err)
			}
			for leaf, want := range tt.want {
				if got := r.cpus(groups[leaf]); got != want {
					t.Errorf("%s has %q, want %q", leaf, got, want)
				}
			}
		})
	}
}

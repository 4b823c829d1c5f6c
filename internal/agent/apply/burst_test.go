package apply_test

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/view"
)

// bursty is a rig with one LS pod of one container, c, whose quotas are the kubelet's.
type bursty struct {
	*rig
	c   apply.Container
	dir statedir.Dir
}

func newBursty(t *testing.T, dialect desired.Dialect) *bursty {
	t.Helper()
	b := &bursty{rig: newRigOf(t, dialect), dir: statedir.Dir(t.TempDir())}
	b.boot()
	b.c = b.bind("p", qos.SharedPool, "")
	for _, group := range []string{"kubepods", b.c.PodGroup, b.c.Group} { // as kubelet and runtime do in v1
		b.must(b.wire.Tree.Write(group, desired.CPUs, "0-11"))
		b.must(b.wire.Tree.Write(group, desired.Mems, "0-1"))
	}
	b.update(500, "", nil)
	b.quota(500)
	b.must(b.rig.run(b.c))
	return b
}

// boot starts an agent anew.
func (b *bursty) boot() {
	b.engine = apply.New(apply.Options{Cgroup: b.wire, Reports: b.rig, Dir: b.dir})
	b.engine.SetFacts(ledger.Facts{Machine: smallMachine(b.t), MinSharedCPUs: -1})
	b.engine.Burst(slo.CPUBurstConfig{})
	if b.c.Group != "" {
		b.engine.AddStarted(b.c, false)
	}
	b.complete()
}

// update is what the API says of the pod.
func (b *bursty) update(milli int64, policy slo.CPUBurstPolicy, percent *int64) {
	b.engine.Update(desired.Pod{
		Entry: ledger.Entry{UID: "p", Namespace: "ns", Name: "p", Role: qos.SharedPool}, Cgroup: b.c.PodGroup,
		Limits: map[string]int64{"c": milli}, Limit: milli,
		Burst: slo.CPUBurstConfig{Policy: policy, CPUBurstPercent: percent},
	})
}

// quota is the kubelet, which sets both quotas: those of the containers first where they become less.
func (b *bursty) quota(milli int64) error {
	file, _ := b.wire.Dialect().Quota()
	value := strconv.FormatInt(milli*100, 10)
	groups := []string{b.c.PodGroup, b.c.Group}
	if err := b.wire.Tree.Write(groups[0], file, value); err != nil {
		if err := b.wire.Tree.Write(groups[1], file, value); err != nil {
			return err
		}
		return b.wire.Tree.Write(groups[0], file, value)
	}
	return b.wire.Tree.Write(groups[1], file, value)
}

// bursts returns the bursts of the pod and of its container.
func (b *bursty) bursts() string {
	b.t.Helper()
	var out []string
	for _, group := range []string{b.c.PodGroup, b.c.Group} {
		text, err := b.wire.Tree.Read(group, b.wire.Dialect().Burst())
		b.must(err)
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (b *bursty) want(when, bursts string) {
	b.t.Helper()
	if got := b.bursts(); got != bursts {
		b.t.Errorf("%s: bursts of pod and container are %s, want %s", when, got, bursts)
	}
}

func TestABurstIsWrittenAndEnded(t *testing.T) {
	t.Parallel()
	for _, dialect := range []desired.Dialect{desired.V1, desired.V2} {
		end := map[string]func(b *bursty){
			"the annotation is removed":           func(b *bursty) { b.update(500, "", nil) },
			"the policy becomes none":             func(b *bursty) { b.update(500, slo.CPUBurstNone, nil) },
			"the node is left":                    func(b *bursty) { b.engine.ReturnGroups(&desired.Kubelet{}) },
			"the agent is killed, and asked less": func(b *bursty) { b.boot(); b.update(500, "", nil) },
			"the limit is removed": func(b *bursty) {
				b.update(0, slo.CPUBurstOnly, nil)
				b.must(b.wire.Tree.Write(b.c.Group, quotaFile(dialect), unlimited(dialect)))
				b.must(b.wire.Tree.Write(b.c.PodGroup, quotaFile(dialect), unlimited(dialect)))
			},
		}
		for name, take := range end {
			b := newBursty(t, dialect)
			b.must(b.engine.Verify())
			b.want("before", "0 0")
			b.update(500, slo.CPUBurstOnly, nil)
			b.must(b.engine.Verify())
			b.want("asked", "50000 50000")
			take(b)
			b.must(b.engine.Verify())
			b.want(name, "0 0")
			b.wire.writes = nil
			b.must(b.engine.Verify())
			if len(b.wire.writes) > 0 || len(b.wire.refused) > 0 || len(b.records) > 0 {
				t.Errorf("%v, %s: writes %v, refused %v, reported %v", dialect, name, b.wire.writes, b.wire.refused,
					b.records)
			}
			if text, err := b.dir.Read("bursts.json"); text != "" || err != nil {
				t.Errorf("%v, %s: the record is %s, %v, want none", dialect, name, text, err)
			}
		}
	}
}

// TestAnAgentKilledAtAnyWriteLeavesNoBurst: whichever write an agent does not come to, the next one, which is asked for
// nothing, sets all bursts to 0.
func TestAnAgentKilledAtAnyWriteLeavesNoBurst(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} { // of the write
		for n := range 4 { // two writes of the burst, and two that take it back
			b := newBursty(t, desired.V2)
			writes := 0
			b.wire.before = func(op kernel.Op, group, file string) error {
				if op != kernel.OpWrite || file != desired.BurstV2 {
					return nil
				}
				if writes++; writes == n+1 {
					if value := "50000"; after && n < 2 {
						b.must(b.wire.Tree.Write(group, file, value))
					}
					panic("killed")
				}
				return nil
			}
			func() {
				defer func() { _ = recover() }()
				b.update(500, slo.CPUBurstOnly, nil)
				b.must(b.engine.Verify())
				b.update(500, slo.CPUBurstNone, nil)
				b.must(b.engine.Verify())
			}()
			if writes != n+1 {
				t.Fatalf("%d writes, want %d", writes, n+1)
			}
			b.wire.before = nil
			b.boot()
			b.update(500, "", nil)
			b.must(b.engine.Verify())
			b.want("after the crash", "0 0")
			if text, _ := b.dir.Read("bursts.json"); text != "" {
				t.Errorf("killed at write %d: the record is %s", n, text)
			}
		}
	}
}

func quotaFile(d desired.Dialect) string { file, _ := d.Quota(); return file }
func unlimited(d desired.Dialect) string { _, value := d.Quota(); return value }

func TestTheNodesStrategyLetsPodsBurst(t *testing.T) {
	t.Parallel()
	b := newBursty(t, desired.V2)
	b.engine.Burst(slo.CPUBurstConfig{Policy: slo.CPUBurstOnly, CPUBurstPercent: new(int64(20))})
	b.must(b.engine.Reconcile())
	b.want("asked", "10000 10000")
	b.engine.Burst(slo.CPUBurstConfig{})
	b.must(b.engine.Reconcile())
	b.want("without a strategy", "0 0")
}

// A kernel refuses a quota below the burst. Once the API says that a limit becomes less, the kubelet's next attempt
// succeeds.
func TestAKubeletLowersTheLimitOfAPodThatBursts(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 5))
	for _, dialect := range []desired.Dialect{desired.V1, desired.V2} {
		b := newBursty(t, dialect)
		now, refused := int64(500), 0
		for range 100 {
			next := 100 + 100*random.Int64N(10)
			b.update(now, slo.CPUBurstOnly, nil)
			b.must(b.engine.Reconcile())
			if next < now && b.quota(next) != nil {
				refused++
			}
			b.update(min(now, next), slo.CPUBurstOnly, nil)
			b.must(b.engine.Reconcile())
			if err := b.quota(next); err != nil {
				t.Fatalf("%v: from %d to %d: %v", dialect, now, next, err)
			}
			now = next
			b.update(now, slo.CPUBurstOnly, nil)
			b.must(b.engine.Reconcile())
			value := strconv.FormatInt(now*100, 10)
			b.want("resized", value+" "+value)
		}
		if len(b.wire.refused) > 0 || refused == 0 {
			t.Errorf("%v: the kernel refused the agent %v, and the kubelet %d times", dialect, b.wire.refused, refused)
		}
	}
}

func TestABurstKeepsWithinTheQuotaThatTheGroupHas(t *testing.T) {
	t.Parallel()
	b := newBursty(t, desired.V2)
	for _, group := range []string{b.c.Group, b.c.PodGroup} { // a kubelet with a period of 10 ms
		b.must(b.wire.Tree.Write(group, "cpu.max", "5000 10000"))
	}
	b.update(500, slo.CPUBurstOnly, nil)
	b.must(b.engine.Verify())
	b.want("another period", "5000 5000")
	cgroups, err := b.engine.Inspect("p")
	b.must(err)
	for _, g := range cgroups {
		for _, v := range g.Values {
			if v.File == "cpu.max.burst" && (v.Want != "5000" || v.State != view.Matches) {
				t.Errorf("%s is shown as %+v, want 5000 that matches", g.Path, v)
			}
		}
	}
	for _, group := range []string{b.c.Group, b.c.PodGroup} {
		b.must(b.wire.Tree.Write(group, "cpu.max", "max"))
	}
	b.must(b.engine.Verify())
	b.want("no quota", "0 0")
}

func TestFaultsOfBursts(t *testing.T) {
	t.Parallel()
	t.Run("a record that cannot be saved", func(t *testing.T) {
		t.Parallel()
		b := newBursty(t, desired.V2)
		file := filepath.Join(string(b.dir), "bursts.json.new")
		b.must(os.MkdirAll(file, 0o755))
		b.update(500, slo.CPUBurstOnly, nil)
		b.must(b.engine.Verify())
		if len(b.records) == 0 || b.records[0].Kind != apply.EnforcementFailed {
			t.Errorf("reported %v", b.records)
		}
		b.want("without a record", "0 0")
		b.must(os.Remove(file))
		b.must(b.engine.Verify())
		b.want("once it is saved", "50000 50000")
	})
	t.Run("a record that cannot be read", func(t *testing.T) {
		t.Parallel()
		b := newBursty(t, desired.V2)
		b.must(b.dir.Write("bursts.json", "{"))
		b.boot()
		b.update(500, slo.CPUBurstOnly, nil)
		b.must(b.engine.Verify())
		b.want("asked", "50000 50000")
	})
	t.Run("a kernel without the files", func(t *testing.T) {
		t.Parallel()
		b := newBursty(t, desired.V2)
		b.wire.before = func(_ kernel.Op, _, file string) error {
			if file == "cpu.max.burst" {
				return fs.ErrNotExist
			}
			return nil
		}
		b.update(500, slo.CPUBurstOnly, nil)
		b.must(b.engine.Verify())
		cgroups, err := b.engine.Inspect("p")
		b.must(err)
		if !b.engine.LacksBurst() || len(cgroups) != 1 || cgroups[0].Gone {
			t.Errorf("LacksBurst %v, groups %+v", b.engine.LacksBurst(), cgroups)
		}
	})
	t.Run("a kernel that refuses to end it", func(t *testing.T) {
		t.Parallel()
		b := newBursty(t, desired.V2)
		b.update(500, slo.CPUBurstOnly, nil)
		b.must(b.engine.Verify())
		b.wire.before = func(op kernel.Op, _, file string) error {
			if op == kernel.OpWrite && file == "cpu.max.burst" {
				return syscall.EIO
			}
			return nil
		}
		b.update(500, "", nil)
		if err := b.engine.Verify(); err == nil {
			t.Error("no error")
		}
		b.wire.before = nil
		b.boot()
		b.update(500, "", nil)
		b.must(b.engine.Verify())
		b.want("by the next agent", "0 0")
	})
	t.Run("another program's value is repaired, and its own is left alone without a wish", func(t *testing.T) {
		t.Parallel()
		b := newBursty(t, desired.V2)
		b.must(b.wire.Tree.Write(b.c.Group, "cpu.max.burst", "700"))
		b.must(b.engine.Verify())
		b.want("no wish", "0 700")
		b.update(500, slo.CPUBurstOnly, nil)
		b.must(b.engine.Verify())
		b.must(b.wire.Tree.Write(b.c.Group, "cpu.max.burst", "7"))
		b.must(b.engine.Verify())
		b.want("a wish", "50000 50000")
	})
	t.Run("a pod that ended is dropped", func(t *testing.T) {
		t.Parallel()
		b := newBursty(t, desired.V2)
		b.update(500, slo.CPUBurstOnly, nil)
		b.must(b.engine.Verify())
		b.engine.Delete("p")
		for _, group := range []string{b.c.Group, b.c.PodGroup} {
			b.must(b.wire.Kill(group))
			b.must(b.wire.Rmdir(group))
		}
		b.must(b.engine.Verify())
		if text, _ := b.dir.Read("bursts.json"); text != "" {
			t.Errorf("the record is %s", text)
		}
	})
}

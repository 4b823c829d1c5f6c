package apply_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// batchPod is a BE pod of one container, c, with batch resources.
func batchPod(uid string, b convert.Batch) desired.Pod {
	return desired.Pod{
		Entry: ledger.Entry{UID: uid, Namespace: "ns", Name: uid, Role: qos.BEPool},
		Batch: map[string]convert.Batch{"c": b}, WholeBatch: b,
	}
}

func TestBatchLimitsAreKeptInTheKernelsOwnTerms(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.complete()
	c := r.bind("b", qos.BEPool, "")
	r.engine.Update(batchPod("b", convert.Batch{
		CPU: true, Memory: true, MilliCPU: 1000, LimitMilliCPU: 1500, LimitBytes: 10_000_000,
	}))
	r.must(r.run(c))
	r.must(r.engine.Verify())
	for _, group := range []string{c.Group, c.PodGroup} {
		for file, want := range map[string]string{
			"cpu.weight": "39", "cpu.max": "150000 100000", "memory.max": "9998336",
		} {
			if got, err := r.wire.Tree.Read(group, file); err != nil || got != want {
				t.Errorf("%s of %s is %q (%v), want %q", file, group, got, err, want)
			}
		}
	}
	r.wire.writes = nil
	r.must(r.engine.Verify())
	if len(r.wire.writes) > 0 || len(r.records) > 0 {
		t.Errorf("a limit that ends inside a page was written again: %v, reported %v", r.wire.writes, r.records)
	}
	r.must(r.wire.Tree.Write(c.Group, "memory.max", "4096"))
	r.must(r.engine.Verify())
	if got, _ := r.wire.Tree.Read(c.Group, "memory.max"); got != "9998336" || len(r.records) != 2 {
		t.Errorf("after another program: %q with the records %v, want 9998336 and two", got, r.records)
	}
}

// A v1 kernel refuses a group a larger quota than the group above it, whichever of the two is written.
func TestQuotasOfAPodAndItsContainerChangeInAnyOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 7))
	for _, dialect := range []desired.Dialect{desired.V1, desired.V2} {
		r := newRigOf(t, dialect)
		r.complete()
		c := r.bind("b", qos.BEPool, "")
		for _, group := range []string{"kubepods", c.PodGroup, c.Group} { // as kubelet and runtime do in v1
			r.must(r.wire.Tree.Write(group, desired.CPUs, "0-11"))
			r.must(r.wire.Tree.Write(group, desired.Mems, "0-1"))
		}
		r.must(r.run(c))
		for range 200 {
			b := convert.Batch{CPU: true, MilliCPU: 100, LimitMilliCPU: random.Int64N(4) * 1000}
			r.engine.Update(batchPod("b", b))
			r.must(r.engine.Reconcile())
			file, want := dialect.Quota()
			if b.LimitMilliCPU > 0 {
				want = strconv.FormatInt(b.LimitMilliCPU*100, 10)
			}
			if dialect == desired.V2 {
				want += " 100000"
			}
			for _, group := range []string{c.Group, c.PodGroup} {
				if got, err := r.wire.Tree.Read(group, file); err != nil || got != want {
					t.Fatalf("%v: %s of %s is %q (%v), want %q", dialect, file, group, got, err, want)
				}
			}
			if len(r.wire.refused) > 0 {
				t.Fatalf("%v: the kernel refused %v", dialect, r.wire.refused)
			}
		}
	}
}

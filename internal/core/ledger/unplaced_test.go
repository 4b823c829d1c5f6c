package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// use is milli-CPUs and bytes on the two NUMA nodes of a machine.
type use [2]struct{ milli, bytes int64 }

func (u use) plus(o use, sign int64) use {
	for n := range u {
		u[n].milli, u[n].bytes = u[n].milli+sign*o[n].milli, u[n].bytes+sign*o[n].bytes
	}
	return u
}

func (u use) sum() (s [2]int64) { return [2]int64{u[0].milli + u[1].milli, u[0].bytes + u[1].bytes} }

const zoneBytes = 64 << 20

// exportedFacts are those of a node of 2 NUMA nodes with 8 CPUs and 64 MiB each, of which an exporter reports a use.
func exportedFacts(tb interface {
	Helper()
	Fatalf(string, ...any)
}, reported use,
) ledger.Facts {
	tb.Helper()
	f := ledger.Facts{Machine: grid.Machine{Nodes: 2, Cores: 8}.Build(tb)}
	for n, u := range reported {
		f.Amounts = append(f.Amounts, align.Amount{NUMAID: n, Resource: why.Memory, N: zoneBytes})
		f.Used = append(f.Used, align.Amount{NUMAID: n, Resource: why.CPU, N: u.milli},
			align.Amount{NUMAID: n, Resource: why.Memory, N: u.bytes})
	}
	return f
}

// unplacedPod is a Guaranteed pod that no placement says anything about.
func unplacedPod(uid string, cpus int, bytes int64) ledger.Entry {
	e := entryOf(guaranteed(uid, cpus, bytes, 0), 1, nil)
	e.Role = qos.SharedPool
	return e
}

// pinnedPod has exclusive CPUs and memory of one NUMA node.
func pinnedPod(uid string, numa int, bytes int64, cpus ...int) ledger.Entry {
	e := entryOf(guaranteed(uid, len(cpus), bytes, 0), 1, nil)
	e.Class, e.Role, e.CPUList = qos.LSR, qos.ExclusiveWithBE, cpuset.FormatIDs(cpus)
	e.Amounts = []align.Amount{{NUMAID: numa, Resource: why.Memory, N: bytes}}
	return e
}

// confinedPod is promised CPU and memory of one NUMA node.
func confinedPod(uid string, numa int, milli, bytes int64) ledger.Entry {
	e := entryOf(guaranteed(uid, 0, bytes, 0), 1, nil)
	e.Class, e.Role, e.NUMAIDs, e.MilliCPU = qos.LS, qos.SharedPool, []int{numa}, milli
	e.Amounts = []align.Amount{{NUMAID: numa, Resource: why.Memory, N: bytes}}
	return e
}

// at sets when a pod was created.
func at(created int64, e ledger.Entry) ledger.Entry {
	guest := *e.Guest
	guest.Created, e.Guest = created, &guest
	return e
}

// taken is what the view does not have free.
func taken(v *ledger.View) (u use) {
	s := v.Summary()
	for n := range u {
		u[n].milli, u[n].bytes = 8000-s.Nodes[n].PoolMilli, zoneBytes-s.Rows[0].Free[n]
	}
	return u
}

func TestPodsWithoutPlacementAreWhereAnotherExporterReportsThem(t *testing.T) {
	t.Parallel()
	const b = 1 << 20
	on := func(n int, milli, bytes int64) (u use) {
		u[n].milli, u[n].bytes = milli, bytes
		return u
	}
	both := on(0, 3000, 8*b).plus(on(1, 5000, 8*b), 1)
	kept := pinnedPod("kept", 1, 4*b, 8, 9)
	kept.Reserves = true
	given := exportedFacts(t, on(1, 2000, 0))
	given.Given = []tenancy.Grant{{UID: "a", CPUs: cpuset.Of(8, 9)}}
	for name, c := range map[string]struct {
		facts   ledger.Facts
		entries []ledger.Entry
		want    use
	}{
		"on the second NUMA node": {
			exportedFacts(t, on(1, 4000, 4*b)), []ledger.Entry{unplacedPod("a", 4, 4*b)}, on(1, 4000, 4*b),
		},
		"of two that suffice, the one with less": {
			exportedFacts(t, both), []ledger.Entry{unplacedPod("a", 3, 0)}, on(0, 3000, 0),
		},
		"on both where none suffices": {
			exportedFacts(t, both), []ledger.Entry{unplacedPod("a", 8, 16*b)}, both,
		},
		"no more than is reported": {
			exportedFacts(t, on(1, 1000, b)), []ledger.Entry{unplacedPod("a", 4, 4*b)}, on(1, 1000, b),
		},
		"pods with a placement count once": {
			exportedFacts(t, on(1, 6000, 12*b)), []ledger.Entry{
				pinnedPod("a", 1, 4*b, 8, 9), confinedPod("b", 1, 1000, 2*b), unplacedPod("c", 3, 6*b),
			}, on(1, 6000, 12*b),
		},
		"a newer pod than the report does not belong to it": {
			exportedFacts(t, on(1, 2000, 4*b)), []ledger.Entry{
				at(2, pinnedPod("b", 1, 4*b, 8, 9)), unplacedPod("a", 2, 4*b),
			}, on(1, 4000, 8*b),
		},
		"the newest is the one that is not": {
			exportedFacts(t, both), []ledger.Entry{
				at(3, confinedPod("c", 0, 3000, 8*b)), at(2, pinnedPod("b", 0, 8*b, 0, 1, 2)), unplacedPod("a", 5, 8*b),
			}, both.plus(on(0, 3000, 8*b), 1),
		},
		"a Reservation is in no report": {
			exportedFacts(t, on(1, 2000, 4*b)), []ledger.Entry{kept, unplacedPod("b", 2, 4*b)}, on(1, 4000, 8*b),
		},
		"a pod whose CPUs the node reports counts once": {
			given, []ledger.Entry{unplacedPod("a", 2, 0)}, on(1, 2000, 0),
		},
		"what no pod here can have is free": {exportedFacts(t, both), nil, use{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := taken(ledger.New(c.facts, c.entries...).View()); got != c.want {
				t.Errorf("taken %v, want %v", got, c.want)
			}
		})
	}
}

// TestTheMemoryOfInitContainersIsNotUsed: init containers have ended, and their memory is not added up.
func TestTheMemoryOfInitContainersIsNotUsed(t *testing.T) {
	t.Parallel()
	e := unplacedPod("a", 1, 8)
	first := e.Guest.Pod.Containers[0]
	first.Role = kubelet.Init
	e.Guest.Pod.Containers = append(e.Guest.Pod.Containers[:0:0], first, e.Guest.Pod.Containers[0],
		e.Guest.Pod.Containers[0])
	var reported use
	reported[1].bytes = 100
	if got := taken(ledger.New(exportedFacts(t, reported), e).View()); got[1].bytes != 16 {
		t.Errorf("taken %v, want 16 bytes of the second NUMA node", got)
	}
}

// TestWhatAnotherExporterReportsCountsOnce: pods with and without a placement on a node, and a report of the older
// ones. What is taken of each NUMA node is what the pods have, also of pods that the report does not have yet; a pod
// that leaves frees as much as it had; and the order of the pods does not matter.
func TestWhatAnotherExporterReportsCountsOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var entries []ledger.Entry
		var truth, report use
		had := map[string]use{}
		next := [2]int{0, 8} // the next exclusive CPU of each NUMA node
		older := rapid.IntRange(0, 5).Draw(t, "pods in the report")
		for i := range older + rapid.IntRange(0, 2).Draw(t, "newer pods") {
			n, cpus := rapid.IntRange(0, 1).Draw(t, "NUMA node"), rapid.IntRange(1, 3).Draw(t, "CPUs")
			bytes := int64(rapid.IntRange(1, 8).Draw(t, "MiB")) << 20
			uid := fmt.Sprint("pod-", i)
			var u use
			u[n].milli, u[n].bytes = 1000*int64(cpus), bytes
			if truth[n].milli+u[n].milli > 8000 {
				continue
			}
			kind := rapid.SampledFrom([]string{"unplaced", "pinned", "confined"}).Draw(t, "kind")
			if i >= older && kind == "unplaced" {
				kind = "pinned"
			}
			switch kind {
			case "unplaced":
				entries = append(entries, at(int64(i+1), unplacedPod(uid, cpus, bytes)))
			case "pinned":
				var ids []int
				for range cpus {
					ids, next[n] = append(ids, next[n]), next[n]+1
				}
				entries = append(entries, at(int64(i+1), pinnedPod(uid, n, bytes, ids...)))
			case "confined":
				entries = append(entries, at(int64(i+1), confinedPod(uid, n, u[n].milli, bytes)))
			}
			truth, had[uid] = truth.plus(u, 1), u
			if i < older {
				report = report.plus(u, 1)
			}
		}
		v := ledger.New(exportedFacts(t, report), entries...).View()
		got := taken(v)
		if got != truth {
			t.Fatalf("taken %v, want %v, reported %v: %+v", got, truth, report, entries)
		}
		slices.Reverse(entries)
		l := ledger.New(exportedFacts(t, report))
		for _, e := range entries {
			l.Put(e)
		}
		if again := taken(l.View()); again != got {
			t.Fatalf("pod by pod taken %v, at once %v", again, got)
		}
		if len(entries) > 0 && truth == report {
			leaves := rapid.SampledFrom(entries).Draw(t, "leaves").UID
			left := taken(v.Without(leaves)).sum()
			if want := truth.plus(had[leaves], -1).sum(); left != want {
				t.Fatalf("without %s taken %v, want %v", leaves, left, want)
			}
		}
	})
}

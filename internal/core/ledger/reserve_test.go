package ledger_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// flat replaces each reservation by what the pods within it leave of its CPUs, counted one by one.
func flat(entries map[string]ledger.Entry) (out []ledger.Entry) {
	for uid, e := range entries {
		if e.Reserves {
			left, _ := cpuset.ParseIDs(e.CPUList)
			for _, user := range entries {
				if user.Within == uid {
					ids, _ := cpuset.ParseIDs(user.CPUList)
					left = slices.DeleteFunc(left, func(id int) bool { return e.Once || slices.Contains(ids, id) })
					if len(user.NUMAIDs) > 0 {
						e.MilliCPU = max(e.MilliCPU-user.MilliCPU, 0)
					}
					if e.Once || e.MilliCPU == 0 {
						e.NUMAIDs = nil
					}
				}
			}
			e.CPUList = cpuset.FormatIDs(left)
		}
		e.Within, e.Reserves, e.Once, e.Amounts = "", false, false, nil
		out = append(out, e)
	}
	return out
}

// TestNodeUseIsThatOfPodsAndOfWhatTheyLeaveOfReservations: after each event the account with reservations has free what
// an account has in which each pod stands beside the rest of its reservation, and it equals a rebuilt one.
func TestNodeUseIsThatOfPodsAndOfWhatTheyLeaveOfReservations(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		facts := drawFacts(t, drawMachine(t))
		facts.Mode, facts.Given = ledger.Own, nil
		l, entries := ledger.New(facts), map[string]ledger.Entry{}
		var offers []ledger.Offer
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			e := drawEntry(t)
			e.Guest, e.Amounts = nil, nil
			switch rapid.IntRange(0, 2).Draw(t, "relation") {
			case 0:
				e.Reserves, e.Once = true, rapid.Bool().Draw(t, "once")
			case 1:
				e.Within = rapid.SampledFrom(uids).Draw(t, "within")
			}
			if e.Within == e.UID {
				e.Within = ""
			}
			switch rapid.SampledFrom([]string{"put", "put", "remove", "commit", "revert"}).Draw(t, "event") {
			case "put":
				l.Put(e)
				entries[e.UID] = e
			case "remove":
				l.Remove(e.UID)
				delete(entries, e.UID)
			case "commit":
				o := offerOf(l, e)
				if l.Commit(o) == nil {
					entries[e.UID] = e
					offers = append(offers, o)
				}
			case "revert":
				if len(offers) > 0 {
					o := offers[len(offers)-1]
					offers = offers[:len(offers)-1]
					before := l.View()
					if l.Revert(o); l.View() != before {
						delete(entries, o.Entry.UID)
					}
				}
			}
			v := l.View()
			if rebuilt := ledger.New(facts, slices.Collect(maps.Values(entries))...).View(); !rebuilt.Equal(v) {
				t.Fatalf("the account differs from a rebuilt one: %+v", entries)
			}
			want := ledger.New(facts, flat(entries)...).View()
			if v.Allocatable() != want.Allocatable() || v.SharedPool() != want.SharedPool() ||
				v.Summary().PoolMilli != want.Summary().PoolMilli {
				t.Fatalf("allocatable %v, pool %v, %d; want %v, %v, %d: %+v", v.Allocatable(), v.SharedPool(),
					v.Summary().PoolMilli, want.Allocatable(), want.SharedPool(), want.Summary().PoolMilli, entries)
			}
		}
	})
}

func reserve(e ledger.Entry, once bool) ledger.Entry {
	e.Reserves, e.Once = true, once
	return e
}

func within(e ledger.Entry, uid string) ledger.Entry {
	e.Within = uid
	return e
}

func TestAReservationGivesItsCPUsToThePodsWithinIt(t *testing.T) {
	t.Parallel()
	facts := ledger.Facts{Machine: grid.Machine{Cores: 4, Threads: 2}.Build(t)} // CPUs 0-7, siblings 4 apart
	free := func(l *ledger.Ledger) string { return facts.Machine.FormatList(l.View().Allocatable()) }
	l := ledger.New(facts, reserve(lsr("r", "0-3"), false))
	if err := l.Commit(offerOf(l, lsr("foreign", "0"))); !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("a CPU of a reservation is given to another pod: %v", err)
	}
	first := offerOf(l, within(lsr("first", "0-1"), "r"))
	if err := l.Commit(first); err != nil || free(l) != "4-7" {
		t.Fatalf("two CPUs of a reservation: %v, free %s, want 4-7", err, free(l))
	}
	// More than is left comes from the node.
	if err := l.Commit(offerOf(l, within(lsr("second", "2-4"), "r"))); err != nil || free(l) != "5-7" {
		t.Errorf("CPUs of a reservation and of the node: %v, free %s, want 5-7", err, free(l))
	}
	if l.Revert(first); free(l) != "5-7" {
		t.Errorf("CPUs that go back to a reservation are free: %s, want 5-7", free(l))
	}
	if l.Remove("r"); free(l) != "0-1,5-7" {
		t.Errorf("free without the reservation: %s, want what its pods do not have, 0-1,5-7", free(l))
	}
}

func TestAReservationForOnePodHasOne(t *testing.T) {
	t.Parallel()
	facts := ledger.Facts{Machine: grid.Machine{Cores: 4, Threads: 2}.Build(t)}
	l := ledger.New(facts, reserve(lsr("r", "0-3"), true))
	one, other := offerOf(l, within(lsr("one", "0-1"), "r")), offerOf(l, within(lsr("other", "2-3"), "r"))
	testkit.Check(t, l.Commit(one))
	if err := l.Commit(other); !errors.Is(err, ledger.ErrExpired) {
		t.Errorf("a second pod that was placed before: %v, want ErrExpired", err)
	}
	other.Version = l.View().Version()
	if err := l.Commit(other); !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("a second pod: %v, want ErrTaken", err)
	}
	if got := facts.Machine.FormatList(l.View().Allocatable()); got != "2-7" {
		t.Errorf("free beside the pod: %s, want 2-7", got)
	}
	if l.Revert(one); facts.Machine.FormatList(l.View().Allocatable()) != "4-7" {
		t.Error("the reservation has not got back what its pod had")
	}
}

func TestAReservationGivesItsDevicesToThePodsWithinIt(t *testing.T) {
	t.Parallel()
	m := grid.Machine{Cores: 2}.Build(t)
	l := ledger.New(ledger.Facts{Machine: m, Devices: gpus(t, m, "a", "b")}, reserve(percent("r", "a", 100), false))
	free := func() (out []string) {
		for d := range l.View().Devices().Devices() {
			out = append(out, fmt.Sprint(d.ID, d.Free[device.Cores]))
		}
		return out
	}
	for _, step := range []struct {
		entry ledger.Entry
		taken bool
		free  string
	}{
		{percent("foreign", "a", 10), false, "[a0 b100]"},
		{within(percent("p", "a", 60), "r"), true, "[a0 b100]"},
		{within(percent("q", "a", 50), "r"), false, "[a0 b100]"},
		{within(percent("q", "a", 40), "r"), true, "[a0 b100]"},
		{percent("foreign", "b", 30), true, "[a0 b70]"},
	} {
		err := l.Commit(ledger.Offer{Entry: step.entry, Version: l.View().Version()})
		if (err == nil) != step.taken || fmt.Sprint(free()) != step.free {
			t.Errorf("%+v: %v, free %v, want %v, %s", step.entry, err, free(), step.taken, step.free)
		}
	}
	l.Remove("p")
	inside := l.View().Inside("r")
	for d := range inside.Devices().Devices() {
		if want := map[string]int64{"a": 60}[d.ID]; d.Free[device.Cores] != want {
			t.Errorf("inside the reservation %d of %s are free, want %d", d.Free[device.Cores], d.ID, want)
		}
	}
}

func TestInsideAReservationOnlyItsCPUsAreFree(t *testing.T) {
	t.Parallel()
	m := grid.Machine{Cores: 4, Threads: 2}.Build(t)
	v := ledger.New(ledger.Facts{Machine: m, MinSharedCPUs: 4}, reserve(lsr("r", "0-3"), true)).View()
	inside := v.Inside("r")
	if got := m.FormatList(inside.Allocatable()); got != "0-3" || inside.Floor() != 0 || inside.Version() != 0 {
		t.Errorf("free %s, floor %d, version %d, want 0-3, 0, 0", got, inside.Floor(), inside.Version())
	}
	if v.Floor() != 4 {
		t.Errorf("the account itself has floor %d afterwards, want 4", v.Floor())
	}
	if other := v.Inside("other"); other != v {
		t.Error("a reservation that is not there changes the view")
	}
}

// TestInsideAReservationOnlyItsMemoryIsFree: of a resource of which it holds nothing all remains free.
func TestInsideAReservationOnlyItsMemoryIsFree(t *testing.T) {
	t.Parallel()
	m := grid.Machine{Nodes: 2, Cores: 2}.Build(t)
	amounts := func(numa int, memory, pages int64) []align.Amount {
		return []align.Amount{
			{NUMAID: numa, Resource: "memory", N: memory}, {NUMAID: numa, Resource: "hugepages-1Ki", N: pages},
		}
	}
	facts := ledger.Facts{Machine: m, Amounts: slices.Concat(amounts(0, 8, 4<<10), amounts(1, 8, 4<<10))}
	r, full := reserve(lsr("r", "0"), false), lsr("full", "2")
	r.Amounts, full.Amounts = amounts(0, 3, 0), amounts(1, 8, 1<<10)
	got := map[why.Resource][]int64{}
	for _, row := range ledger.New(facts, r, full).View().Inside("r").Summary().Rows {
		got[row.Resource] = row.Free
	}
	want := map[why.Resource][]int64{"memory": {3, 0}, "hugepages-1Ki": {4 << 10, 3 << 10}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("free inside the reservation (-want +got):\n%s", diff)
	}
}

// TestWhichAccountsAreComparedWithNone: one pod or report whose effect the text does not show is enough.
func TestWhichAccountsAreComparedWithNone(t *testing.T) {
	t.Parallel()
	m := grid.Machine{Cores: 4, Threads: 2}.Build(t)
	facts := ledger.Facts{Machine: m, Devices: gpus(t, m, "a", "b")}
	given := facts
	given.Given = []tenancy.Grant{{UID: "p", CPUs: cpuset.Of(1)}}
	for name, c := range map[string]struct {
		facts    ledger.Facts
		entries  []ledger.Entry
		compared bool
	}{
		"no pods":                         {facts, nil, true},
		"a pod with devices":              {facts, []ledger.Entry{percent("p", "a", 50)}, true},
		"a pod whose devices are unknown": {facts, []ledger.Entry{{UID: "p", Unallocated: true}}, false},
		"a pod that the node reports":     {given, nil, false},
		"a kubelet whose answers decide":  {follows(t, m, hint.None), nil, false},
		"a Reservation":                   {facts, []ledger.Entry{{UID: "r", Reserves: true}}, false},
		"a pod that is in a Reservation":  {facts, []ledger.Entry{within(percent("p", "a", 50), "r")}, false},
	} {
		if got := ledger.New(c.facts, c.entries...).View().Likeness(); (got != "") != c.compared {
			t.Errorf("%s: the text is %q, want one: %t", name, got, c.compared)
		}
	}
}

// TestAlikeAccountsDifferInNamesAlone: other UIDs, and with them another order of the pods, change no text, and each
// other difference that an account shows does.
func TestAlikeAccountsDifferInNamesAlone(t *testing.T) {
	t.Parallel()
	alike, different := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		facts := drawFacts(t, drawMachine(t))
		facts.Given = nil
		var entries, renamed []ledger.Entry
		for i, uid := range uids[:rapid.IntRange(0, len(uids)).Draw(t, "pods")] {
			e := drawEntry(t)
			e.UID, e.Within, e.Reserves = uid, "", false
			entries = append(entries, e)
			e.UID, e.Namespace, e.Name = fmt.Sprint(len(uids)-i), "other", e.Name+"x"
			renamed = append(renamed, e)
		}
		v, other := ledger.New(facts, entries...).View(), ledger.New(facts, renamed...).View()
		if v.Likeness() != other.Likeness() {
			t.Fatalf("renamed pods change\n%s\nto\n%s", v.Likeness(), other.Likeness())
		}
		if v.Likeness() == "" {
			return
		}
		alike++
		changed := v.With(drawEntry(t))
		differs := changed.Allocatable() != v.Allocatable() || changed.BEPool() != v.BEPool()
		if differs && changed.Likeness() == v.Likeness() {
			t.Fatalf("other CPUs are free, and the text is the same: %s", v.Likeness())
		}
		if differs {
			different++
		}
		reserved := v.With(ledger.Entry{UID: "r", Reserves: true})
		if reserved.Likeness() != "" {
			t.Fatalf("an account with a Reservation is compared with others: %s", reserved.Likeness())
		}
	})
	if alike == 0 || different == 0 {
		t.Errorf("%d accounts had a text, %d were changed: the test proves little", alike, different)
	}
}

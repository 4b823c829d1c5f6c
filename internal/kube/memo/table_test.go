package memo_test

import (
	"sync"
	"testing"

	"github.com/tenon-project/tenon/internal/kube/memo"
)

func TestATableRemembersTheLastValues(t *testing.T) {
	t.Parallel()
	for name, slots := range map[string]int{"no more slots than probes": 4, "more slots than probes": 64} {
		m := memo.New[int, int](slots)
		if slots == 4 {
			m = new(memo.Table[int, int])
		}
		const hash = 61 // of all keys: they share their slots, whose numbers go around the end of the table
		if _, ok := m.Recall(1, hash); ok {
			t.Errorf("%s: an empty table remembers", name)
		}
		for i := range 100 {
			m.Keep(i, hash, 10*i)
			if v, ok := m.Recall(i, hash); !ok || v != 10*i {
				t.Fatalf("%s: value %d, %v of %d right after it was kept", name, v, ok, i)
			}
		}
		kept := 0
		for i := range 100 {
			if v, ok := m.Recall(i, hash); ok {
				kept++
				if v != 10*i {
					t.Errorf("%s: %d has the value %d of another key", name, i, v)
				}
			}
		}
		if want := min(slots, 8); kept != want {
			t.Errorf("%s: %d values are kept, want %d", name, kept, want)
		}
	}
}

func TestAskedYieldsWhatWasAskedForAndNotWhatWasPreparedInVain(t *testing.T) {
	t.Parallel()
	m := memo.New[string, int](64)
	m.Keep("kept", 1, 1)
	m.Prepare("prepared", 2, 2)
	m.Prepare("recalled", 3, 3)
	if v, ok := m.Recall("recalled", 3); !ok || v != 3 {
		t.Fatalf("a prepared value is %d, %v", v, ok)
	}
	got := map[string]bool{}
	for key := range m.Asked {
		got[key] = true
	}
	if len(got) != 2 || !got["kept"] || !got["recalled"] {
		t.Errorf("asked for are %v, want kept and recalled", got)
	}
}

// TestATableMayBeUsedByManyAtOnce shows its worth under -race.
func TestATableMayBeUsedByManyAtOnce(t *testing.T) {
	t.Parallel()
	var m memo.Table[int, int]
	var users sync.WaitGroup
	for g := range 4 {
		users.Go(func() {
			for i := range 1000 {
				n := (g + i) % 9
				if v, ok := m.Recall(n, uint64(n)); ok && v != 10*n {
					t.Errorf("%d has the value %d of another key", n, v)
				}
				m.Keep(n, uint64(n), 10*n)
				for range m.Asked {
				}
			}
		})
	}
	users.Wait()
}

func TestRecallAllocatesNothing(t *testing.T) {
	m := memo.New[[40]int16, int64](64)
	key := [40]int16{1, 2, 3}
	m.Keep(key, 5, 7)
	if n := testing.AllocsPerRun(100, func() {
		if v, ok := m.Recall(key, 5); !ok || v != 7 {
			t.Fatalf("value %d, %v", v, ok)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package fold_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

func TestListsAreFolded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ list, cpus, mems string }{
		"nothing is nothing":         {"", "", ""},
		"even and odd ids":           {"1-2,17-18", "0-1", "0"},
		"even ids alone":             {"2,4,30", "0", "0"},
		"one odd id":                 {"31", "1", "0"},
		"a line of the kernel's":     {"0-31\n", "0-1", "0"},
		"twice the same, not sorted": {"9,3,3-5,9", "0-1", "0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cpus, err := fold.CPUs(tt.list, 2)
			if err != nil || cpus != tt.cpus {
				t.Errorf("CPUs(%q, 2) = %q, %v; want %q", tt.list, cpus, err, tt.cpus)
			}
			mems, err := fold.Mems(tt.list)
			if err != nil || mems != tt.mems {
				t.Errorf("Mems(%q) = %q, %v; want %q", tt.list, mems, err, tt.mems)
			}
		})
	}
}

func TestListsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"a", "-1", "1-", "3-1", "1,,2", "1 2", "0-4294967295", "+1", "1-2-3"} {
		if got, err := fold.CPUs(list, 2); err == nil {
			t.Errorf("CPUs(%q) = %q, want an error", list, got)
		}
	}
}

func FuzzFoldingKeepsTheIds(f *testing.F) {
	for _, seed := range []string{"", "0", "0-3,8", "5-2", "1,,", "9999999999", "0-65536"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		ids, err := fold.Parse(list)
		if err != nil {
			return
		}
		text := fold.Format(ids)
		again, err := fold.Parse(text)
		if err != nil || !cmp.Equal(ids, again) {
			t.Fatalf("%q is %v, written %q, read back %v, %v", list, ids, text, again, err)
		}
		folded, err := fold.CPUs(list, 2)
		testkit.Check(t, err)
		for _, bit := range []int{0, 1} {
			has := false
			for _, id := range ids {
				has = has || id%2 == bit
			}
			if got := strings.ContainsAny(folded, "01") &&
				(folded == "0-1" || folded == string(rune('0'+bit))); got != has {
				t.Fatalf("CPUs(%q, 2) = %q: has CPU %d = %v, want %v", list, folded, bit, got, has)
			}
		}
	})
}

func TestFailedChangeLeavesTheOldSetInForce(t *testing.T) {
	t.Parallel()
	s := fold.Store{Dir: t.TempDir()}
	set := func(cpus string) func(fold.Set) fold.Set {
		return func(old fold.Set) fold.Set { old.CPUs = cpus; return old }
	}
	if _, known, err := s.Get("c1"); known || err != nil {
		t.Fatalf("Get of an unknown container = %v, %v; want false, nil", known, err)
	}
	testkit.Check(t, s.Change("c1", "test", set("2-3"), func(fold.Set) error { return nil }))
	broken := errors.New("EBUSY")
	err := s.Change("c1", "test", set("4-5"), func(want fold.Set) error {
		r, _, err := s.Get("c1")
		if err != nil || r.CPUs != "2-3" || r.Next == nil || r.Next.CPUs != "4-5" || want != *r.Next {
			t.Errorf("while 4-5 is written the record is %+v, %v; want 2-3 with 4-5 next", r, err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("Change = %v, want the writer's error", err)
	}
	want := fold.Record{Set: fold.Set{CPUs: "2-3"}, Log: []fold.Entry{{By: "test", Set: fold.Set{CPUs: "2-3"}}}}
	if r, _, err := s.Get("c1"); err != nil || !cmp.Equal(want, r) {
		t.Errorf("after the failure the record is %+v, %v; want %+v", r, err, want)
	}
	for _, id := range []string{"", "..", "a/b", ".hidden"} {
		if err := s.Change(id, "test", set("1"), func(fold.Set) error { return nil }); err == nil {
			t.Errorf("Change of container %q succeeded, want an error", id)
		}
	}
}

func TestChangesOfOneContainerExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := fold.Store{Dir: t.TempDir()}
	var wg sync.WaitGroup
	inside := 0
	for range 20 {
		wg.Go(func() {
			err := s.Change("c1", "test", func(old fold.Set) fold.Set { old.CPUs += "1"; return old },
				func(fold.Set) error {
					inside++ // the race detector sees a second writer
					return nil
				})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if r, _, err := s.Get("c1"); err != nil || len(r.CPUs) != 20 || len(r.Log) != 20 || inside != 20 {
		t.Errorf("after 20 changes: %d of them, %d in the log, %d writes, %v; want 20 of each", len(r.CPUs), len(r.Log),
			inside, err)
	}
}

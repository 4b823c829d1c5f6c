package ledger_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
)

func TestMemoRemembersTheLastVerdicts(t *testing.T) {
	t.Parallel()
	var m ledger.Memo
	key := func(i int) ledger.MemoKey { return ledger.NewMemoKey(fmt.Sprint("n", i)) }
	if _, ok := m.Recall(key(1)); ok {
		t.Error("an empty memo remembers")
	}
	for i := range 100 {
		m.Keep(key(i), why.Reason{Asked: int64(i)})
		if r, ok := m.Recall(key(i)); !ok || r.Asked != int64(i) {
			t.Fatalf("got %+v, %v right after it was kept", r, ok)
		}
	}
	kept := 0
	for i := range 100 {
		if r, ok := m.Recall(key(i)); ok {
			kept++
			if r.Asked != int64(i) {
				t.Errorf("request %d gets the verdict of %d", i, r.Asked)
			}
		}
	}
	if kept != 4 {
		t.Errorf("%d verdicts are kept, want 4", kept)
	}
	m.Keep(ledger.MemoKey{}, why.Reason{Asked: 1})
	if r, ok := m.Recall(ledger.MemoKey{}); ok {
		t.Errorf("the zero key is remembered: %+v", r)
	}
}

// TestAMemoMayBeUsedByManyAtOnce shows its worth under -race.
func TestAMemoMayBeUsedByManyAtOnce(t *testing.T) {
	t.Parallel()
	v := ledger.New(ledger.Facts{Machine: worked(t)}).View()
	var users sync.WaitGroup
	for g := range 4 {
		users.Go(func() {
			for i := range 1000 {
				n := (g + i) % 9
				key := ledger.NewMemoKey(fmt.Sprint("n", n))
				if r, ok := v.Memo().Recall(key); ok && r.Asked != int64(n) {
					t.Errorf("request %d gets the verdict of %d", n, r.Asked)
				}
				v.Memo().Keep(key, why.Reason{Asked: int64(n)})
			}
		})
	}
	users.Wait()
}

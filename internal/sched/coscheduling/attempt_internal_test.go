package coscheduling

import "testing"

// TestAMemberThatCouldNotBeReservedOnceMoreIsLeft: rollback goes on, and the attempt counts as broken.
func TestAMemberThatCouldNotBeReservedOnceMoreIsLeft(t *testing.T) {
	t.Parallel()
	a := &attempt{placed: map[string]*placed{}}
	a.undo = []func(){func() { a.unreserve("p") }, func() { a.broken = true }}
	if a.rollback(0); !a.broken || len(a.undo) != 0 {
		t.Errorf("broken: %t, with %d steps left", a.broken, len(a.undo))
	}
}

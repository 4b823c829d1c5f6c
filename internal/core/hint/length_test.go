package hint_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLengthsAreThoseOfTheListsThatProvidersMake(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t, 8)
		q := m.drawRequest(t)
		var want []uint64
		for _, a := range q.Asks {
			if a.Amount > 0 {
				want = append(want, uint64(len(m.units(a))))
			}
		}
		for _, l := range m.bytes(q) {
			if len(l) > 0 { // without any, the memory manager imposes nothing
				want = append(want, uint64(len(l)))
			}
		}
		if got := slices.Collect(m.summary().Lengths(q)); !slices.Equal(got, want) {
			t.Fatalf("%+v asked %+v: lists of %v hints, want %v", m, q, got, want)
		}
	})
}

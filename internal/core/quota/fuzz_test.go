package quota_test

import (
	"math/rand/v2"
	"testing"
)

// FuzzForest draws a shape, a world and an order of events from bytes, and compares the forest with the definition.
// The seeds are the worlds of a few random sources: of every rounding, scale and depth.
func FuzzForest(f *testing.F) {
	for seed := range uint64(24) {
		d := &dice{random: rand.New(rand.NewPCG(seed, 0))}
		d.world(d.shape()).detour(d)
		f.Add(d.tape)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &dice{bytes: data}
		w := d.world(d.shape())
		live := w.detour(d)
		if diff := w.differences(live); len(diff) > 0 {
			t.Errorf("%+v\n%v\n%v\n%v", w.config, w.list(), w.nodes, diff)
		}
		if live.Hash() != w.forest().Hash() {
			t.Errorf("live and rebuilt state differ")
		}
	})
}

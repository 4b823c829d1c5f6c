package apply_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// TestGroupsAreRevertedAndManagedAgain: whatever runs, one pass makes all groups what the kubelet made them, also
// after a restart of the agent, the next one writes nothing, and taken back each pod has its own CPUs alone.
func TestGroupsAreRevertedAndManagedAgain(t *testing.T) {
	t.Parallel()
	m := smallMachine(t)
	rapid.Check(t, func(rt *rapid.T) {
		dialect := rapid.SampledFrom([]desired.Dialect{desired.V1, desired.V2}).Draw(rt, "dialect")
		w := newWorld(rt, m, dialect, &memo{})
		for range rapid.IntRange(1, 6).Draw(rt, "pods") {
			p := w.bind(rapid.SampledFrom([]qos.Role{
				qos.Exclusive, qos.ExclusiveWithBE, qos.SharedPool, qos.BEPool,
			}).Draw(rt, "role"))
			if p == nil {
				continue
			}
			if p.Entry.Role.Binds() {
				p.MilliCPU, p.MilliCPUs = 4000, map[string]int64{"c": 3000}
			}
			w.engine.Update(p.Pod)
			l := w.mkdir(p)
			var err error
			l.answer, err = w.engine.Create(l.Container)
			w.must(err)
			w.applyAnswer(l)
			w.must(w.engine.Start(t.Context(), l.Container))
			_, err = w.tree.Spawn(l.Group)
			w.must(err)
		}
		if rapid.Bool().Draw(rt, "restart") {
			w.boot()
			for _, l := range w.leaves {
				w.engine.AddStarted(l.Container, false)
			}
		}
		w.check(rt)
		w.engine.ReturnGroups(&desired.Kubelet{})
		w.must(w.engine.Verify())
		w.wire.writes = nil
		w.must(w.engine.Verify())
		if len(w.wire.writes) > 0 {
			rt.Fatalf("a second pass writes %v", w.wire.writes)
		}
		file, _ := dialect.Quota()
		read := func(group, file string) string {
			text, err := w.tree.Read(group, file)
			w.must(err)
			value, _, _ := strings.Cut(text, " ")
			return value
		}
		for _, l := range w.leaves {
			if got := read(l.Group, desired.CPUs); got != "0-11" {
				rt.Fatalf("%s has CPUs %s, want all", l.Group, got)
			}
			if c, p := read(l.Group, file), read(l.PodGroup, file); l.pod.Entry.Role.Binds() && (c != "300000" ||
				p != "400000") {
				rt.Fatalf("%s has the quota %s, its pod %s; want 300000 and 400000", l.Group, c, p)
			}
		}
		w.engine.ReturnGroups(nil)
		w.must(w.engine.Verify())
		for _, l := range w.leaves {
			own := l.pod.Entry.CPUList
			if got := read(l.Group, desired.CPUs); own != "" && got != own {
				rt.Fatalf("%s has CPUs %s once it is taken back, want %s", l.Group, got, own)
			}
		}
		w.broken = "" // of the time in between
		for _, l := range w.leaves {
			w.must(w.engine.Start(t.Context(), l.Container))
		}
		w.check(rt)
	})
}

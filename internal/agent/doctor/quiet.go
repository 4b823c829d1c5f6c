package doctor

import (
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/view"
)

// isolation reports what is lacking on isolated CPUs, or on all CPUs of a machine that isolates none, in the order of
// worth. Only a machine that isolates CPUs is to be warned of.
func isolation(where string, m *topo.Machine, f *quiet.Facts) (found []Finding) {
	cpus, level := f.Isolated.Intersect(m.Online()), Warn
	if cpus.IsEmpty() {
		cpus, level = m.Online(), OK
	}
	for _, q := range view.QuietOf(m, f, cpus) {
		if !q.Holds {
			found = append(found, ok(where, "%s", q.Text).Because(level, q.Effect, q.Remedy))
		}
	}
	if len(found) == 0 {
		found = append(found, ok(where, "undisturbed: %s", view.CPUs(m.FormatList(cpus))))
	}
	return found
}

package quota

import (
	"maps"
	"slices"
)

// Problems lists what the forest replaced in the specs that it has, by quota.
func (f *Forest) Problems() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.quotas)) {
		out = append(out, f.quotas[name].Problems()...)
	}
	return out
}

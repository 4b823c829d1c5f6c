package quota

import (
	"fmt"
	"hash/fnv"
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

// ForgetStarts lets the next member of each gang be asked about as if none had been admitted.
func (a *Account) ForgetStarts() { clear(a.starts) }

// Starting returns how many pods were admitted with their gangs and have yet to be reserved.
func (a *Account) Starting() (n int) {
	for _, s := range a.starts {
		n += len(s.uids)
	}
	return n
}

// Hash identifies the state: what all reports say. Forests with equal quotas, nodes and sums have equal hashes,
// whatever the order in which they came.
func (f *Forest) Hash() uint64 {
	h := fnv.New64a()
	for _, r := range f.Reports() {
		fmt.Fprintf(h, "%+v\n", r) // maps are printed by ascending key
	}
	return h.Sum64()
}

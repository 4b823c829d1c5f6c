package align

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Chooser hands out the units that a resource has on one NUMA node. It has no state: equal arguments get equal answers.
// It must be comparable.
type Chooser interface {
	// Room is the most that one more pod can have of the units beside what pods hold of them.
	Room(units, held []Amount) int64
	// Choose takes n of the units, which is at most their Room.
	Choose(units, held []Amount, n int64) []Amount
}

// Kind is how a resource is counted and handed out.
type Kind struct {
	Resource why.Resource
	// Page is what the resource is handed out in: the size of a hugepage in bytes, 1 for ordinary memory. Every need is
	// a multiple.
	Page int64
	// Unit is what amounts count, Short the refusal where there is too little.
	Unit  why.Unit
	Short why.Code
	// Chooser is nil where pods hold a part of the sum and no certain units.
	Chooser Chooser
}

// Table lists the kinds of resources besides memory. It must not be changed; nil is the empty one.
type Table []Kind

// Kind returns how a resource is handed out; false for one that has no rows.
func (t *Table) Kind(resource why.Resource) (Kind, bool) {
	if resource == why.Memory || strings.HasPrefix(string(resource), hugepages) {
		return Kind{
			Resource: resource, Page: pageSize(resource), Unit: why.Bytes, Short: why.InsufficientMemory,
		}, true
	}
	if t != nil {
		if i := slices.IndexFunc(*t, func(k Kind) bool { return k.Resource == resource }); i >= 0 {
			return (*t)[i], true
		}
	}
	return Kind{}, false
}

// Has reports whether a resource has rows.
func (t *Table) Has(resource why.Resource) bool {
	_, ok := t.Kind(resource)
	return ok
}

// hugepages begins the names of huge pages.
const hugepages = "hugepages-"

// pageSize reads the size in bytes of a hugepage out of a resource's name; 1 for ordinary memory and for names that
// cannot be read.
func pageSize(resource why.Resource) int64 {
	text, ok := strings.CutPrefix(string(resource), hugepages)
	if !ok {
		return 1
	}
	shift := 0
	for i, suffix := range [...]string{"Ki", "Mi", "Gi", "Ti"} {
		if number, found := strings.CutSuffix(text, suffix); found {
			text, shift = number, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(text, 10, 20)
	if err != nil || n == 0 {
		return 1
	}
	return int64(n) << shift
}

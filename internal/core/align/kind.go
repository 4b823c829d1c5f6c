package align

import (
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/why"
)

// PageSize returns what a resource is handed out in: the size of a hugepage in bytes, 1 for ordinary memory. It returns
// false for a resource that has no rows.
func PageSize(resource why.Resource) (int64, bool) {
	if !HasRows(resource) {
		return 0, false
	}
	return pageSize(resource), true
}

// HasRows reports whether a resource has rows: ordinary memory, and hugepages of each size.
func HasRows(resource why.Resource) bool {
	return resource == why.Memory || strings.HasPrefix(string(resource), hugepages)
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

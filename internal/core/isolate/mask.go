package isolate

import (
	"fmt"
	"strings"
)

// FormatMask writes sorted CPUs in the kernel's bitmap format: hexadecimal groups of 32 bits, the highest first, such
// as "ff,ffffffff" for the CPUs 0 to 39.
func FormatMask(ids []int) string {
	const bits = 32
	if len(ids) == 0 {
		return "0"
	}
	groups := make([]uint32, ids[len(ids)-1]/bits+1)
	for _, id := range ids {
		groups[len(groups)-1-id/bits] |= 1 << (id % bits)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%x", groups[0])
	for _, group := range groups[1:] {
		fmt.Fprintf(&text, ",%08x", group)
	}
	return text.String()
}

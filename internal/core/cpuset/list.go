package cpuset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxID bounds the ids that ParseIDs accepts: far above every kernel's NR_CPUS, low enough that "0-4294967295" is
// refused instead of filling the memory.
const MaxID = 1 << 16

// ParseIDs reads ids in the kernel's list format: ids and closed ranges, separated by commas. Spaces, a trailing
// newline or NUL, any order and repetition are accepted; the answer is sorted and without repetition. An empty text is
// no ids. Negative numbers, a range whose end is below its start, an empty item, any other character and an id of
// MaxID or more are refused with a text that quotes the item.
func ParseIDs(list string) ([]int, error) {
	list = strings.Trim(list, " \t\r\n\x00")
	if list == "" {
		return nil, nil
	}
	var ids []int
	for item := range strings.SplitSeq(list, ",") {
		first, last, err := parseItem(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
		if len(ids) > 4*MaxID {
			return nil, fmt.Errorf("cpu list names more than %d ids", 4*MaxID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// parseItem reads one ID or one range of a list.
func parseItem(item string) (first, last int, err error) {
	lo, hi, isRange := strings.Cut(item, "-")
	if first, err = parseID(lo, item); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return first, first, nil
	}
	if last, err = parseID(hi, item); err != nil {
		return 0, 0, err
	}
	if last < first {
		return 0, 0, fmt.Errorf("cpu list item %q: the end is below the start", item)
	}
	return first, last, nil
}

// parseID reads an ID, which must be below MaxID. item is the text for errors.
func parseID(text, item string) (int, error) {
	text = strings.TrimSpace(text)
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("cpu list item %q: want an id like 3 or a range like 0-3", item)
	}
	id, err := strconv.Atoi(text)
	if err != nil || id >= MaxID {
		return 0, fmt.Errorf("cpu list item %q: ids must be below %d", item, MaxID)
	}
	return id, nil
}

// FormatIDs writes sorted, distinct ids in the kernel's list format, ranges merged; "" for none.
func FormatIDs(ids []int) string {
	var buf [128]byte
	b := buf[:0]
	for i, id := range ids {
		follows := i > 0 && ids[i-1] == id-1
		switch {
		case follows && i+1 < len(ids) && ids[i+1] == id+1:
			continue // inside a range
		case follows:
			b = append(b, '-')
		case i > 0:
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return string(b)
}

// Parse reads a Set in list format. Ids of MaxCPUs or more are refused.
func Parse(list string) (Set, error) {
	ids, err := ParseIDs(list)
	if err != nil {
		return Set{}, err
	}
	var s Set
	for _, id := range ids {
		if id >= MaxCPUs {
			return Set{}, fmt.Errorf("cpu list: id %d is above the largest supported id %d", id, MaxCPUs-1)
		}
		s.Add(id)
	}
	return s, nil
}

// MustParse is Parse for constants in tests and tables; it panics on an error.
func MustParse(list string) Set {
	s, err := Parse(list)
	if err != nil {
		panic(err)
	}
	return s
}

// String returns s in list format, sorted, ranges merged: "0-3,8,10-11"; "" when empty.
func (s Set) String() string { return FormatIDs(s.Slice()) }

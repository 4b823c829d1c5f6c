package fold

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxID bounds ids, so that a list such as 0-4294967295 is refused instead of being spelled out.
const maxID = 1 << 16

// Parse reads a list of ids as the kernel writes it, such as 0-3,8; "" is the empty list. The ids come ascending and
// once.
func Parse(list string) ([]int, error) {
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	var ids []int
	for item := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(item, "-")
		from, err := parseID(first)
		if err != nil {
			return nil, fmt.Errorf("list %q: %w", list, err)
		}
		to := from
		if isRange {
			if to, err = parseID(last); err != nil {
				return nil, fmt.Errorf("list %q: %w", list, err)
			}
		}
		if to < from {
			return nil, fmt.Errorf("list %q: %s runs backwards", list, item)
		}
		for id := from; id <= to; id++ {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func parseID(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not an id", text)
	}
	id, err := strconv.Atoi(text)
	if err != nil || id > maxID {
		return 0, fmt.Errorf("%q is not an id from 0 to %d", text, maxID)
	}
	return id, nil
}

// Format writes ids that are ascending and unique as the kernel does.
func Format(ids []int) string {
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return b.String()
}

// CPUs returns the list of real CPUs for a list of virtual ones, on a machine with so many real CPUs, numbered from 0.
// "" stays "": it means that nothing is asked for.
func CPUs(list string, count int) (string, error) {
	ids, err := Parse(list)
	if err != nil {
		return "", err
	}
	for i := range ids {
		ids[i] %= count
	}
	slices.Sort(ids)
	return Format(slices.Compact(ids)), nil
}

// Mems returns the list of real NUMA nodes for a list of virtual ones.
func Mems(list string) (string, error) { return CPUs(list, 1) }

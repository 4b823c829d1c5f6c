package host

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// trim cuts white space and NULs from both ends.
func trim(s string) string { return strings.Trim(s, " \t\r\n\x00") }

func parseNumber(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("want one integer, got %s", quote(s))
	}
	return n, nil
}

// ParseMap reads a CPU map: hexadecimal words of 32 bits, the highest first, separated by commas. The first word may be
// shorter.
func ParseMap(s string) ([]int, error) {
	var ids []int
	words := strings.Split(s, ",")
	if len(words)*32 > cpuset.MaxID {
		return nil, fmt.Errorf("CPU map has %d words, at most %d are supported", len(words), cpuset.MaxID/32)
	}
	for i, word := range words {
		if len(word) == 0 || len(word) > 8 {
			return nil, fmt.Errorf("CPU map word %s: want 1 to 8 hexadecimal digits", quote(word))
		}
		bits, err := strconv.ParseUint(word, 16, 32)
		if err != nil {
			return nil, fmt.Errorf("CPU map word %s: want 1 to 8 hexadecimal digits", quote(word))
		}
		base := 32 * (len(words) - 1 - i)
		for b := range 32 {
			if bits&(1<<b) != 0 {
				ids = append(ids, base+b)
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// parseMemTotal finds the line "[Node N ]MemTotal: X kB" of a meminfo file and returns bytes.
func parseMemTotal(meminfo string) (int64, error) {
	for line := range strings.Lines(meminfo) {
		_, rest, ok := strings.Cut(line, "MemTotal:")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			return 0, fmt.Errorf("MemTotal is %s, want a number of kB", quote(trim(rest)))
		}
		kib, err := parseNumber(fields[0])
		if err != nil {
			return 0, err
		}
		if kib < 0 || kib > 1<<53 {
			return 0, fmt.Errorf("MemTotal %d kB is out of range", kib)
		}
		return kib << 10, nil
	}
	return 0, errors.New("has no line MemTotal")
}

// parseDistances reads the row of a distance file.
func parseDistances(s string) ([]int, error) {
	var row []int
	for field := range strings.FieldsSeq(s) {
		d, err := strconv.Atoi(field)
		if err != nil || d < 1 || d > 255 {
			return nil, fmt.Errorf("distance %s: want 1 to 255", quote(field))
		}
		row = append(row, d)
	}
	return row, nil
}

// parseHugepageSize reads the name of a hugepages folder, "hugepages-2048kB", and returns bytes.
func parseHugepageSize(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, "hugepages-")
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, "kB")
	if !ok {
		return 0, false
	}
	kib, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || kib <= 0 || kib > 1<<40 {
		return 0, false
	}
	return kib << 10, true
}

// parseArch recognises the architecture in /proc/cpuinfo and returns its GOARCH name, "" when it does not know.
func parseArch(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case key == "vendor_id" && strings.HasPrefix(value, "IBM/S390"):
			return "s390x"
		case key == "vendor_id" || key == "cpu family":
			return "amd64"
		case key == "CPU implementer" || key == "CPU architecture":
			return "arm64"
		case key == "cpu" && strings.HasPrefix(value, "POWER"):
			return "ppc64le"
		case key == "isa" && strings.HasPrefix(value, "rv64"):
			return "riscv64"
		case key == "CPU Family" && strings.HasPrefix(value, "Loongson"):
			return "loong64"
		}
	}
	return ""
}

// numbersAfter returns the numbers of the names that are a prefix and a decimal number, ascending.
func numbersAfter(prefix string, names []string) []int {
	var out []int
	for _, name := range names {
		digits, ok := strings.CutPrefix(name, prefix)
		if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
			continue
		}
		if n, err := strconv.Atoi(digits); err == nil && n < cpuset.MaxID {
			out = append(out, n)
		}
	}
	return ascending(out)
}

// quote shortens a value that came from a corrupt file.
func quote(s string) string {
	if len(s) > 40 {
		return strconv.Quote(s[:40]) + "…"
	}
	return strconv.Quote(s)
}

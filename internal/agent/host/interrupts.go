package host

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/quiet"
)

// Interrupts reads how often interrupts have fired on some CPUs, by the kernel's ids. Lines that cannot be read are
// left out; without the file there are no CPUs.
func Interrupts(root Root, cpus []int) (counts quiet.Counts, err error) {
	err = within(root, func(t *tree) { counts = parseInterrupts(t.text("proc/interrupts"), cpus) })
	return counts, err
}

// parseInterrupts reads the text of /proc/interrupts: a column for each online CPU.
func parseInterrupts(text string, cpus []int) quiet.Counts {
	out := quiet.Counts{Sources: map[string]quiet.Source{}}
	head, rest, _ := strings.Cut(text, "\n")
	var columns []int // of the text: the index in out.CPUs, -1 for none
	for word := range strings.FieldsSeq(head) {
		cpu, err := strconv.Atoi(strings.TrimPrefix(word, "CPU"))
		if err != nil {
			return quiet.Counts{}
		}
		at := -1
		if slices.Contains(cpus, cpu) {
			at = len(out.CPUs)
			out.CPUs = append(out.CPUs, cpu)
		}
		columns = append(columns, at)
	}
	for line := range strings.Lines(rest) {
		name, fields, _ := strings.Cut(line, ":")
		s, i := quiet.Source{Fired: make([]uint64, len(out.CPUs))}, 0
		for word := range strings.FieldsSeq(fields) {
			if i == len(columns) {
				s.Handler = word // the last word of the line counts
				continue
			}
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				break
			}
			if at := columns[i]; at >= 0 {
				s.Fired[at] = n
			}
			i++
		}
		if i == len(columns) { // sums, such as ERR, have one number
			out.Sources[strings.TrimSpace(name)] = s
		}
	}
	return out
}

package tune

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// counts are how often each interrupt has fired on some CPUs since the boot.
type counts struct {
	at      time.Time
	cpus    map[int]bool // those that were read
	sources map[string]source
}

// source is a line of /proc/interrupts: a device's, whose name is its number, or one that the kernel makes itself, such
// as LOC for timers.
type source struct {
	text  string // its handlers, for people
	byCPU map[int]uint64
}

// readCounts reads the text of /proc/interrupts, of the CPUs that are wanted. Lines that cannot be read are left out.
func readCounts(text []byte, at time.Time, wanted map[int]bool) counts {
	out := counts{at: at, cpus: wanted, sources: map[string]source{}}
	head, rest, _ := bytes.Cut(text, []byte("\n"))
	var columns []int
	for _, word := range strings.Fields(string(head)) {
		cpu, err := strconv.Atoi(strings.TrimPrefix(word, "CPU"))
		if err != nil {
			return out
		}
		columns = append(columns, cpu)
	}
	for line := range bytes.Lines(rest) {
		name, fields, found := bytes.Cut(line, []byte(":"))
		words := strings.Fields(string(fields))
		if !found || len(words) < len(columns) {
			continue // a sum, such as ERR
		}
		s := source{byCPU: map[int]uint64{}}
		ok := true
		for i, cpu := range columns {
			n, err := strconv.ParseUint(words[i], 10, 64)
			ok = ok && err == nil
			if wanted[cpu] {
				s.byCPU[cpu] = n
			}
		}
		if s.text = strings.Join(words[len(columns):], " "); ok {
			out.sources[string(bytes.TrimSpace(name))] = s
		}
	}
	return out
}

// Rates is how often interrupts fire on the CPUs of a pod.
type Rates struct {
	// DeviceMilli are those of devices, KernelMilli those that the kernel makes itself, as timers, in 1/1000 a second.
	DeviceMilli, KernelMilli int64
	// Sources are the devices that fire there, the most frequent first.
	Sources []Source
}

// Source is one interrupt that fires on the CPUs of a pod.
type Source struct {
	Number, Text string
	Milli        int64 // 1/1000 a second
}

// since returns how often interrupts fired on some CPUs between two readings; false without an earlier reading of them.
// A counter that went back, as of a CPU that was offline, counts from zero.
func (c *counts) since(before counts, cpus []int) (r Rates, known bool) {
	span := c.at.Sub(before.at)
	unread := func(cpu int) bool { return !before.cpus[cpu] }
	if span <= 0 || slices.ContainsFunc(cpus, unread) {
		return r, false
	}
	for name, s := range c.sources {
		var fired uint64
		for _, cpu := range cpus {
			now, old := s.byCPU[cpu], before.sources[name].byCPU[cpu]
			if now < old {
				old = 0
			}
			fired += now - old
		}
		milli := int64(float64(fired) / span.Seconds() * 1000)
		if _, err := strconv.Atoi(name); err != nil {
			r.KernelMilli += milli
			continue
		}
		if r.DeviceMilli += milli; fired > 0 {
			r.Sources = append(r.Sources, Source{name, s.text, milli})
		}
	}
	slices.SortFunc(r.Sources, func(a, b Source) int {
		return cmp.Or(cmp.Compare(b.Milli, a.Milli), cmp.Compare(a.Number, b.Number))
	})
	return r, true
}

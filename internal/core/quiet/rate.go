package quiet

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Counts are how often interrupts have fired on some CPUs since the boot.
type Counts struct {
	// CPUs are the kernel's ids of those that were read. CPUs that are offline are not among them.
	CPUs []int
	// Sources are the interrupts, by number or by a word of the kernel such as LOC for timers.
	Sources map[string]Source
}

// Source is one interrupt.
type Source struct {
	// Handler is the name that its driver gave it.
	Handler string
	// Fired is how often it has fired on each of Counts.CPUs.
	Fired []uint64
}

// Rate is how often interrupts fire on the CPUs of a pod in a second: the average between two Counts, rounded up.
type Rate struct {
	// Devices are interrupts of devices, Kernel those that the kernel makes itself, such as timers and calls between
	// CPUs.
	Devices int64 `json:"devices"`
	Kernel  int64 `json:"kernel"`
	// Busiest is the device that fires most, such as "24 (eth0-TxRx-3)"; "" where none does.
	Busiest string `json:"busiest,omitempty"`
}

// Since returns how often interrupts fired on some CPUs since Counts that are older by a time; false where none of the
// CPUs is online now, or one is that was not before. On a CPU that is offline nothing fires. A counter that went back,
// as at 2³², and one that is new, count from zero.
func (c *Counts) Since(before *Counts, span time.Duration, cpus []int) (r Rate, known bool) {
	var now, old []int // the indexes of the CPUs
	for _, cpu := range cpus {
		i, j := slices.Index(c.CPUs, cpu), slices.Index(before.CPUs, cpu)
		if i < 0 {
			continue
		}
		if j < 0 {
			return r, false
		}
		now, old = append(now, i), append(old, j)
	}
	if span <= 0 || len(now) == 0 {
		return r, false
	}
	var devices, kernel, most uint64
	busiest := ""
	for name, s := range c.Sources {
		earlier, isOld := before.Sources[name]
		fired := uint64(0)
		for k, i := range now {
			n := s.Fired[i]
			if isOld && earlier.Fired[old[k]] <= n {
				n -= earlier.Fired[old[k]]
			}
			fired += n
		}
		if !s.isDevices(name) {
			kernel += fired
			continue
		}
		devices += fired
		if fired > most || fired == most && fired > 0 && isLower(name, busiest) {
			most, busiest = fired, name
		}
	}
	perSecond := func(n uint64) int64 { return int64(math.Ceil(float64(n) / span.Seconds())) }
	r.Devices, r.Kernel, r.Busiest = perSecond(devices), perSecond(kernel), busiest
	if handler := c.Sources[busiest].Handler; handler != "" {
		r.Busiest += " (" + handler + ")"
	}
	return r, true
}

// isDevices reports whether an interrupt is that of a device: it has a number. The timer of Arm has one as well.
func (s *Source) isDevices(name string) bool {
	return strings.Trim(name, "0123456789") == "" && s.Handler != "arch_timer"
}

// isLower compares numbers of interrupts.
func isLower(a, b string) bool { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0 }

package view

import (
	"fmt"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Quiet is a measure that keeps CPUs undisturbed: what holds of it, and what to do where it does not.
type Quiet struct {
	Measure string
	Holds   bool
	// Text says what holds, or what does not and where.
	Text string
	// Effect is what follows where the measure does not hold, Remedy the command that adds it. A CPUS in it stands for
	// the CPUs to isolate, where none is yet.
	Effect, Remedy string
}

// QuietOf returns all measures for some CPUs of a machine, in the order of worth.
func QuietOf(m *topo.Machine, f *quiet.Facts, cpus cpuset.Set) []Quiet {
	list := "CPUS"
	if !f.Isolated.IsEmpty() {
		list = m.FormatList(f.Isolated)
	}
	boot := func(option string) string { return "grubby --update-kernel=ALL --args=" + option + list }
	var out []Quiet
	for _, r := range quiet.Examine(m, f, cpus) {
		lacking := CPUs(m.FormatList(r.Lacking))
		q := Quiet{Measure: r.Measure.String(), Holds: r.Holds()}
		var holds, lacks string
		switch r.Measure {
		case quiet.Isolation:
			holds, lacks = "isolated (isolcpus)", "not isolated (isolcpus): "+lacking
			q.Effect, q.Remedy = "the kernel moves other threads there", boot("isolcpus=domain,managed_irq,")
		case quiet.Tick:
			holds, lacks = "no tick (nohz_full)", "tick (no nohz_full): "+lacking
			q.Effect, q.Remedy = "the kernel interrupts a thread up to 1000 times a second", boot("nohz_full=")
		case quiet.Callbacks:
			holds, lacks = "no RCU callbacks (rcu_nocbs)", "RCU callbacks (no rcu_nocbs): "+lacking
			q.Effect, q.Remedy = "the kernel frees memory of other processes there", boot("rcu_nocbs=")
		case quiet.Interrupts:
			holds, lacks = "no irqbalance", "irqbalance runs"
			q.Effect, q.Remedy = "it moves interrupts to any CPU that its configuration does not exclude",
				"systemctl disable --now irqbalance"
		case quiet.Frequency:
			holds, lacks = "full clock", "frequency governor "+strings.Join(f.Slow, ", ")
			q.Effect, q.Remedy = "the clock is slow when a thread wakes up", "cpupower frequency-set -g performance"
		case quiet.Threads:
			holds, lacks = "whole cores", "sibling threads are in other use: "+lacking
			q.Effect = "two threads share the units of a core"
			q.Remedy = "echo off > /sys/devices/system/cpu/smt/control"
		case quiet.Managed:
			holds, lacks = "no fixed interrupts", "interrupts that cannot be moved: "+lacking
			q.Effect, q.Remedy = "queues of devices interrupt a thread there", boot("isolcpus=domain,managed_irq,")
			if f.SparesManaged {
				q.Effect, q.Remedy = "the device has no queue on other CPUs", "ethtool -L DEVICE combined 1"
			}
		}
		if q.Text = lacks; q.Holds {
			q.Text, q.Effect, q.Remedy = holds, "", ""
		}
		out = append(out, q)
	}
	return out
}

// InterruptsText says in few words how often interrupts fire on the CPUs of a pod; "" where that is not known.
func InterruptsText(r *quiet.Rate) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%d interrupts/s (kernel %d)", r.Devices, r.Kernel)
}

// InterruptsNote says how often interrupts fire on the CPUs of a pod, and which device's does most.
func InterruptsNote(cpus string, r *quiet.Rate) string {
	const kernel = "%d times a second by the kernel, such as by timers"
	if r.Devices == 0 {
		return fmt.Sprintf("CPUs %s are interrupted by no device, and "+kernel, cpus, r.Kernel)
	}
	return fmt.Sprintf("CPUs %s are interrupted %d times a second by devices, most by interrupt %s, and "+kernel, cpus,
		r.Devices, r.Busiest, r.Kernel)
}

// QuietNotes says in one sentence each what holds on the CPUs of a pod on a node, and what does not.
func QuietNotes(m *topo.Machine, f *quiet.Facts, cpus cpuset.Set, node string) (notes []string) {
	var holds, lacks []string
	for _, q := range QuietOf(m, f, cpus) {
		if q.Holds {
			holds = append(holds, q.Text)
		} else {
			lacks = append(lacks, q.Text)
		}
	}
	if len(holds) > 0 {
		notes = append(notes, subject(m, cpus, "has", "have")+": "+strings.Join(holds, "; "))
	}
	if len(lacks) > 0 {
		notes = append(notes, fmt.Sprintf("%s isolation: %s (tenon doctor --node %s has the commands)",
			subject(m, cpus, "lacks", "lack"), strings.Join(lacks, "; "), node))
	}
	return notes
}

// subject writes a set of CPUs with the verb for one or for several.
func subject(m *topo.Machine, cpus cpuset.Set, one, several string) string {
	verb := several
	if cpus.Len() == 1 {
		verb = one
	}
	return CPUs(m.FormatList(cpus)) + " " + verb
}

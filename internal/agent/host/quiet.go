package host

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Quiet returns which CPUs of a machine the boot keeps other work from, and what disturbs them. A file that is missing
// or cannot be read says nothing; err names the first one that cannot be read.
func Quiet(root Root, m *topo.Machine) (q annotation.IsolatedCPUs, err error) {
	q.Isolated, q.NoHzFull = m.FormatList(m.Isolated()), m.FormatList(m.NoTick())
	for _, read := range []func(*tree){
		func(t *tree) { readCmdline(t, m, &q) },
		func(t *tree) { q.Irqbalance = runs(t, "irqbalance") },
		func(t *tree) { q.SlowGovernors = slowGovernors(t, m) },
		func(t *tree) { q.FixedInterrupts = m.FormatList(fixedInterrupts(t, m)) },
	} {
		if e := within(root, read); err == nil {
			err = e
		}
	}
	return q, err
}

// readCmdline reads rcu_nocbs and the flags of isolcpus. "rcu_nocbs" without a list, and "all", name every CPU.
func readCmdline(t *tree, m *topo.Machine, q *annotation.IsolatedCPUs) {
	for option := range strings.FieldsSeq(t.text("proc/cmdline")) {
		switch key, value, _ := strings.Cut(option, "="); {
		case key == "rcu_nocbs" && (value == "" || value == "all"):
			q.NoCallbacks = m.FormatList(m.All())
		case key == "rcu_nocbs":
			cpus, _, err := m.ParseList(value)
			if err != nil {
				t.fail("proc/cmdline", fmt.Errorf("rcu_nocbs: %w", err))
			}
			q.NoCallbacks = m.FormatList(cpus)
		case key == "isolcpus":
			q.SparesManaged = q.SparesManaged || slices.Contains(strings.Split(value, ","), "managed_irq")
		}
	}
}

// Runs reports whether a process of the machine has this name. Processes that cannot be listed are none.
func Runs(root Root, name string) (found bool) {
	_ = within(root, func(t *tree) { found = runs(t, name) })
	return found
}

func runs(t *tree, name string) bool {
	return slices.ContainsFunc(t.numbered("proc", ""), func(pid int) bool {
		comm, err := t.root.ReadFile(path.Join("proc", fmt.Sprint(pid), "comm")) // a process may end meanwhile
		return err == nil && strings.TrimSpace(string(comm)) == name
	})
}

// slowGovernors returns the frequency governors of online CPUs other than performance, sorted.
func slowGovernors(t *tree, m *topo.Machine) (names []string) {
	online := m.Online()
	for c := range online.All() {
		file := fmt.Sprintf("%s/cpu%d/cpufreq/scaling_governor", cpuDir, m.CPUID(topo.CPU(c)))
		if name := t.text(file); name != "" && name != "performance" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fixedInterrupts returns the CPUs on which interrupts fire whose affinity the kernel does not let change: from Linux
// 6.12 on no one may write their file.
func fixedInterrupts(t *tree, m *topo.Machine) (cpus cpuset.Set) {
	for _, irq := range t.numbered("proc/irq", "") {
		dir := path.Join("proc/irq", fmt.Sprint(irq))
		info, err := t.root.Stat(path.Join(dir, "smp_affinity_list"))
		if err != nil || info.Mode().Perm()&0o222 != 0 || t.text(fmt.Sprintf("sys/kernel/irq/%d/actions", irq)) == "" {
			continue
		}
		here, _, err := m.ParseList(t.text(path.Join(dir, "effective_affinity_list")))
		if err != nil {
			t.fail(path.Join(dir, "effective_affinity_list"), err)
		}
		cpus = cpus.Union(here)
	}
	return cpus
}

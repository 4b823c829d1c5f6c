package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// generate writes the files of sysfs and procfs that the agent, the kubelet and lscpu read.
func (d Description) generate(s *store) error {
	w := &writer{store: s, spec: d.Spec()}
	w.cpuFiles()
	for _, c := range w.spec.CPUs {
		w.cpu(c)
	}
	for i := range w.spec.NUMA {
		w.node(i)
	}
	w.nodeFiles()
	w.proc(d.model)
	return w.err
}

// writer creates files in a store; after the first error it does nothing more.
type writer struct {
	store *store
	spec  topo.Spec
	err   error
}

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

func (w *writer) file(name, content string) {
	if w.err == nil {
		w.err = w.store.file(name, content+"\n")
	}
}

func (w *writer) link(name, target string) {
	if w.err == nil {
		w.err = w.store.link(name, target)
	}
}

// ids lists the CPUs that answer yes, ascending.
func (w *writer) ids(yes func(topo.CPUSpec) bool) []int {
	var ids []int
	for _, c := range w.spec.CPUs {
		if yes(c) {
			ids = append(ids, c.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func (w *writer) cpuFiles() {
	all := w.ids(func(topo.CPUSpec) bool { return true })
	list := cpuset.FormatIDs(all)
	w.file(cpuDir+"/possible", list)
	w.file(cpuDir+"/present", list)
	w.file(cpuDir+"/online", list)
	w.file(cpuDir+"/offline", "")
	w.file(cpuDir+"/isolated", "")
	w.file(cpuDir+"/kernel_max", strconv.Itoa(topo.MaxCPUs-1))
	fast := w.ids(func(c topo.CPUSpec) bool { return c.Kind == topo.Performance })
	slow := w.ids(func(c topo.CPUSpec) bool { return c.Kind == topo.Efficiency })
	if len(slow) > 0 {
		w.file("sys/devices/cpu_core/cpus", cpuset.FormatIDs(fast))
		w.file("sys/devices/cpu_atom/cpus", cpuset.FormatIDs(slow))
	}
}

// cpu writes the folder of one CPU. The threads of a core differ in nothing, so those after the first are a link to it;
// CPUs that share their last cache share its folder in the same way. The file cpuN/online does not exist, as on kernels
// that cannot take CPUs offline: the list of all online CPUs counts.
func (w *writer) cpu(c topo.CPUSpec) {
	dir := fmt.Sprintf("%s/cpu%d", cpuDir, c.ID)
	core := w.ids(func(o topo.CPUSpec) bool { return o.Socket == c.Socket && o.Core == c.Core })
	if c.ID != core[0] {
		w.link(dir, fmt.Sprintf("cpu%d", core[0]))
		return
	}
	pkg := w.ids(func(o topo.CPUSpec) bool { return o.Socket == c.Socket })
	l3 := w.ids(func(o topo.CPUSpec) bool { return o.L3 == c.L3 })
	t := dir + "/topology"
	w.file(t+"/core_id", strconv.Itoa(w.coreID(c)))
	w.file(t+"/physical_package_id", strconv.Itoa(c.Socket))
	w.file(t+"/die_id", "0")
	w.file(t+"/thread_siblings", formatMap(core, len(w.spec.CPUs)))
	w.file(t+"/thread_siblings_list", cpuset.FormatIDs(core))
	w.file(t+"/core_siblings", formatMap(pkg, len(w.spec.CPUs)))
	if c.ID == l3[0] {
		w.cache(dir+"/cache/index3", c.L3, l3)
	} else {
		w.link(dir+"/cache", fmt.Sprintf("../cpu%d/cache", l3[0]))
	}
	w.link(fmt.Sprintf("%s/node%d", dir, c.NUMA), fmt.Sprintf("../../node/node%d", c.NUMA))
}

// coreID is the kernel's core_id: it counts within the socket, so it repeats on the next one.
func (w *writer) coreID(c topo.CPUSpec) int {
	first := c.Core
	for _, o := range w.spec.CPUs {
		if o.Socket == c.Socket {
			first = min(first, o.Core)
		}
	}
	return c.Core - first
}

func (w *writer) cache(dir string, id int, shared []int) {
	w.file(dir+"/id", strconv.Itoa(id))
	w.file(dir+"/level", "3")
	w.file(dir+"/type", "Unified")
	w.file(dir+"/size", "32768K")
	w.file(dir+"/shared_cpu_map", formatMap(shared, len(w.spec.CPUs)))
	w.file(dir+"/shared_cpu_list", cpuset.FormatIDs(shared))
}

func (w *writer) node(i int) {
	n := w.spec.NUMA[i]
	dir := fmt.Sprintf("%s/node%d", nodeDir, n.ID)
	cpus := w.ids(func(c topo.CPUSpec) bool { return c.NUMA == n.ID })
	w.file(dir+"/cpumap", formatMap(cpus, len(w.spec.CPUs)))
	w.file(dir+"/cpulist", cpuset.FormatIDs(cpus))
	row := make([]string, len(n.Distances))
	for j, d := range n.Distances {
		row[j] = strconv.Itoa(d)
	}
	w.file(dir+"/distance", strings.Join(row, " "))
	kib := n.MemoryBytes >> 10
	w.file(dir+"/meminfo",
		fmt.Sprintf("Node %d MemTotal: %15d kB\nNode %d MemFree:  %15d kB\nNode %d MemUsed:  %15d kB",
			n.ID, kib, n.ID, kib-kib/50, n.ID, kib/50))
	pages := map[int64]int64{2 << 20: 0, gib: 0}
	for size, count := range n.Hugepages {
		pages[size] = count
	}
	for size, count := range pages {
		huge := fmt.Sprintf("%s/hugepages/hugepages-%dkB", dir, size>>10)
		w.file(huge+"/nr_hugepages", strconv.FormatInt(count, 10))
	}
	for _, c := range cpus {
		w.link(fmt.Sprintf("%s/cpu%d", dir, c), fmt.Sprintf("../../cpu/cpu%d", c))
	}
}

func (w *writer) nodeFiles() {
	var all, withCPU, withMemory []int
	for _, n := range w.spec.NUMA {
		all = append(all, n.ID)
		if slices.ContainsFunc(w.spec.CPUs, func(c topo.CPUSpec) bool { return c.NUMA == n.ID }) {
			withCPU = append(withCPU, n.ID)
		}
		if n.MemoryBytes > 0 {
			withMemory = append(withMemory, n.ID)
		}
	}
	for name, ids := range map[string][]int{
		"possible": all, "online": all, "has_cpu": withCPU, "has_memory": withMemory, "has_normal_memory": withMemory,
	} {
		w.file(nodeDir+"/"+name, cpuset.FormatIDs(ids))
	}
}

func (w *writer) proc(model string) {
	var memory int64
	for _, n := range w.spec.NUMA {
		memory += n.MemoryBytes >> 10
	}
	w.file("proc/meminfo", fmt.Sprintf("MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB",
		memory, memory-memory/50, memory-memory/50))
	w.file("proc/cpuinfo", w.cpuinfo(model))
	w.file("proc/stat", "btime 1735689600")
	w.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz ro")
	w.file("proc/version", "Linux version 6.12.0-simulated")
	w.file("proc/sys/kernel/random/boot_id", string(uuid.NewUUID())) // this tree is one boot of the machine
}

func (w *writer) cpuinfo(model string) string {
	var b strings.Builder
	for _, id := range w.ids(func(topo.CPUSpec) bool { return true }) {
		c := w.spec.CPUs[slices.IndexFunc(w.spec.CPUs, func(c topo.CPUSpec) bool { return c.ID == id })]
		fmt.Fprintf(&b, "processor\t: %d\n", id)
		if w.spec.Arch == "arm64" {
			b.WriteString(
				"BogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm aes crc32 atomics cpuid\nCPU implementer\t: 0x41\n" +
					"CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n")
			continue
		}
		vendor := "GenuineIntel"
		if strings.HasPrefix(model, "AMD") {
			vendor = "AuthenticAMD"
		}
		fmt.Fprintf(&b,
			"vendor_id\t: %s\ncpu family\t: 6\nmodel\t\t: 106\nmodel name\t: %s\nstepping\t: 1\ncpu MHz\t\t: "+
				"2500.000\n"+
				"physical id\t: %d\ncore id\t\t: %d\nflags\t\t: fpu tsc msr apic ht lm\n\n", vendor, model, c.Socket,
			w.coreID(c))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// formatMap writes CPU ids as the kernel's map: words of 32 bits in hexadecimal, the highest first.
func formatMap(ids []int, cpus int) string {
	words := make([]uint32, (cpus+31)/32)
	for _, id := range ids {
		words[id/32] |= 1 << (id % 32)
	}
	text := make([]string, len(words))
	for i, w := range words {
		text[len(words)-1-i] = fmt.Sprintf("%08x", w)
	}
	return strings.Join(text, ",")
}

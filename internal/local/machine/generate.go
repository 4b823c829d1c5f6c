package machine

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
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
	devices := d.Devices(filepath.Base(s.root.Name()))
	w.devices(devices)
	w.drivers(devices)
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

func (w *writer) files(dir string, content map[string]string) {
	for name, text := range content {
		w.file(dir+"/"+name, text)
	}
}

func (w *writer) link(name, target string) {
	if w.err == nil {
		w.err = w.store.link(name, target)
	}
}

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

func (w *writer) all() []int { return w.ids(func(topo.CPUSpec) bool { return true }) }

func (w *writer) kind(k topo.Kind) string {
	return cpuset.FormatIDs(w.ids(func(c topo.CPUSpec) bool { return c.Kind == k }))
}

func (w *writer) cpuFiles() {
	list := cpuset.FormatIDs(w.all())
	w.files(cpuDir, map[string]string{
		"possible": list, "present": list, "online": list, "offline": "", "isolated": "",
		"kernel_max": strconv.Itoa(topo.MaxCPUs - 1),
	})
	if slow := w.kind(topo.Efficiency); slow != "" {
		w.file("sys/devices/cpu_core/cpus", w.kind(topo.Performance))
		w.file("sys/devices/cpu_atom/cpus", slow)
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
	w.files(dir+"/topology", map[string]string{
		"core_id": strconv.Itoa(w.coreID(c)), "physical_package_id": strconv.Itoa(c.Socket), "die_id": "0",
		"thread_siblings": w.bits(core), "thread_siblings_list": cpuset.FormatIDs(core),
		"core_siblings": w.bits(w.ids(func(o topo.CPUSpec) bool { return o.Socket == c.Socket })),
	})
	l3 := w.ids(func(o topo.CPUSpec) bool { return o.L3 == c.L3 })
	if c.ID == l3[0] {
		w.files(dir+"/cache/index3", map[string]string{
			"id": strconv.Itoa(c.L3), "level": "3", "type": "Unified", "size": "32768K",
			"shared_cpu_map": w.bits(l3), "shared_cpu_list": cpuset.FormatIDs(l3),
		})
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

func (w *writer) node(i int) {
	n := w.spec.NUMA[i]
	dir := fmt.Sprintf("%s/node%d", nodeDir, n.ID)
	cpus := w.ids(func(c topo.CPUSpec) bool { return c.NUMA == n.ID })
	kib := n.MemoryBytes >> 10
	w.files(dir, map[string]string{
		"cpumap": w.bits(cpus), "cpulist": cpuset.FormatIDs(cpus),
		"distance": strings.Trim(fmt.Sprint(n.Distances), "[]"),
		"meminfo": fmt.Sprintf("Node %d MemTotal: %15d kB\nNode %d MemFree:  %15d kB\nNode %d MemUsed:  %15d kB",
			n.ID, kib, n.ID, kib-kib/50, n.ID, kib/50),
	})
	pages := map[int64]int64{2 << 20: 0, gib: 0}
	maps.Copy(pages, n.Hugepages)
	for size, count := range pages {
		w.file(fmt.Sprintf("%s/hugepages/hugepages-%dkB/nr_hugepages", dir, size>>10), strconv.FormatInt(count, 10))
	}
	for _, c := range cpus {
		w.link(fmt.Sprintf("%s/cpu%d", dir, c), fmt.Sprintf("../../cpu/cpu%d", c))
	}
}

func (w *writer) nodeFiles() {
	having := func(has func(topo.NUMASpec) bool) string {
		var ids []int
		for _, n := range w.spec.NUMA {
			if has(n) {
				ids = append(ids, n.ID)
			}
		}
		return cpuset.FormatIDs(ids)
	}
	all := having(func(topo.NUMASpec) bool { return true })
	memory := having(func(n topo.NUMASpec) bool { return n.MemoryBytes > 0 })
	w.files(nodeDir, map[string]string{
		"possible": all, "online": all, "has_memory": memory, "has_normal_memory": memory,
		"has_cpu": having(func(n topo.NUMASpec) bool {
			return slices.ContainsFunc(w.spec.CPUs, func(c topo.CPUSpec) bool { return c.NUMA == n.ID })
		}),
	})
}

func (w *writer) proc(model string) {
	var memory int64
	for _, n := range w.spec.NUMA {
		memory += n.MemoryBytes >> 10
	}
	w.files("proc", map[string]string{
		"meminfo": fmt.Sprintf("MemTotal:       %d kB\nMemFree:        %d kB\nMemAvailable:   %d kB",
			memory, memory-memory/50, memory-memory/50),
		"cpuinfo": w.cpuinfo(model), "stat": "btime 1735689600", "cmdline": "BOOT_IMAGE=/vmlinuz ro",
		"version":                   "Linux version 6.12.0-simulated",
		"sys/kernel/random/boot_id": string(uuid.NewUUID()), // this tree is one boot of the machine
	})
}

func (w *writer) cpuinfo(model string) string {
	var b strings.Builder
	for _, id := range w.all() {
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

// bits writes CPU ids as the kernel's map: words of 32 bits in hexadecimal, the highest first.
func (w *writer) bits(ids []int) string {
	words := make([]uint32, (len(w.spec.CPUs)+31)/32)
	for _, id := range ids {
		words[id/32] |= 1 << (id % 32)
	}
	text := make([]string, len(words))
	for i, word := range words {
		text[len(words)-1-i] = fmt.Sprintf("%08x", word)
	}
	return strings.Join(text, ",")
}

// store creates the files of a tree below a folder. Files with one content share one inode, and so do symbolic links
// with one target: of the thousands of files of a big machine a few hundred differ, and a new inode costs many times a
// new name. So a file of a machine is changed by replacing it, never by writing into it.
type store struct {
	root  *os.Root
	made  map[string]bool  // folders that exist
	taken map[string]bool  // names that were created
	first map[inode]string // where an inode has its first name
}

type inode struct {
	link    bool
	content string // a symbolic link's is its target
}

func newStore(root *os.Root) *store {
	return &store{root: root, made: map[string]bool{}, taken: map[string]bool{}, first: map[inode]string{}}
}

func (s *store) file(name, content string) error {
	return s.create(name, inode{content: content},
		func() error { return s.root.WriteFile(name, []byte(content), 0o644) })
}

func (s *store) link(name, target string) error {
	return s.create(name, inode{true, target}, func() error { return s.root.Symlink(target, name) })
}

func (s *store) folder(name string) error {
	if s.made[name] {
		return nil
	}
	if err := s.root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	s.made[name] = true
	return nil
}

func (s *store) create(name string, i inode, anew func() error) error {
	if err := s.folder(path.Dir(name)); err != nil {
		return err
	}
	if s.taken[name] { // writing into it would change its other names too
		if err := s.root.Remove(name); err != nil {
			return err
		}
	}
	s.taken[name] = true
	// A file system without hard links, or one that has had enough of them, gets a file of its own.
	if first, ok := s.first[i]; ok && s.root.Link(first, name) == nil {
		return nil
	}
	if err := anew(); err != nil {
		return err
	}
	s.first[i] = name
	return nil
}

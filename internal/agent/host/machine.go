package host

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

// Reading is what Read found.
type Reading struct {
	Machine *topo.Machine
	// Notes report each value that the files lack and a rule filled, one sentence each, in a fixed order.
	Notes []string
}

// Read returns the machine that the files below root describe. arch is the GOARCH to assume when /proc/cpuinfo does not
// contain it. Errors name the file.
func Read(root Root, arch string) (Reading, error) {
	var s survey
	err := within(root, func(t *tree) {
		s.tree = t
		s.run(arch)
	})
	if err != nil {
		return Reading{}, err
	}
	m, err := topo.New(s.spec)
	if err != nil {
		return Reading{}, fmt.Errorf("machine under %s: %w", root.Path(), err)
	}
	return Reading{Machine: m, Notes: s.notes}, nil
}

// cpuFacts is what the files say of one CPU. Groups are named by their lowest CPU; -1 is unknown.
type cpuFacts struct {
	topo.CPUSpec
	threads           []int  // the CPUs of its core, itself among them
	threadsFile       string // for errors
	packageID         int
	packageGroup      int
	coreID            int
	capacity, baseKHz int64
}

// survey collects the facts of one machine.
type survey struct {
	*tree
	cpu   []cpuFacts
	at    map[int]int // CPU id to position in cpu
	spec  topo.Spec   // core ids are unique in the machine and dense, in the order of the cores' lowest CPUs
	notes []string
}

// run reads one machine. No step follows one that failed.
func (s *survey) run(arch string) {
	for _, step := range []func(){
		s.findCPUs, s.readBoot, s.readTopology, s.readNodes, s.groupCores, s.groupSockets, s.readKinds,
	} {
		if step(); s.err != nil {
			return
		}
	}
	s.spec.Arch = cmp.Or(parseArch(s.text("proc/cpuinfo")), arch)
	for _, c := range s.cpu {
		s.spec.CPUs = append(s.spec.CPUs, c.CPUSpec)
	}
}

func (s *survey) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// findCPUs lists the CPUs that are present, and which of them are offline. Kernels before 2.6.30 have no
// lists: there a CPU is a folder, and offline when its file "online" says 0.
func (s *survey) findCPUs() {
	ids := s.numbered(cpuDir, "cpu")
	if len(ids) == 0 {
		s.fail(cpuDir, errors.New("has no folder cpu0, cpu1, …"))
	}
	present := s.list(path.Join(cpuDir, "present"))
	if present == nil {
		present = ids
	}
	online := s.list(path.Join(cpuDir, "online"))
	s.at = map[int]int{}
	for _, id := range ids {
		if !contains(present, id) {
			continue
		}
		c := cpuFacts{
			CPUSpec: topo.CPUSpec{
				ID: id, L3: -1, NUMA: -1, Offline: !contains(online, id),
			},
			packageID: -1, packageGroup: -1, coreID: -1,
		}
		if online == nil {
			on, ok := s.number(path.Join(cpuDir, cpuName(id), "online"))
			c.Offline = ok && on == 0
		}
		s.at[id] = len(s.cpu)
		s.cpu = append(s.cpu, c)
	}
	if len(s.cpu) > topo.MaxCPUs {
		s.fail(cpuDir, fmt.Errorf("has %d CPUs, at most %d are supported", len(s.cpu), topo.MaxCPUs))
	}
	if !slices.ContainsFunc(s.cpu, func(c cpuFacts) bool { return !c.Offline }) {
		s.fail(cpuDir, errors.New("no CPU that is present is online"))
	}
}

// readBoot reads which CPUs the boot options isolcpus and nohz_full name. Kernels without nohz_full have no file, and
// some write "(null)" where no CPU is named. CPUs that are not present are left out.
func (s *survey) readBoot() {
	for _, option := range []struct {
		file string
		set  func(*topo.CPUSpec)
	}{
		{"isolated", func(c *topo.CPUSpec) { c.Isolated = true }},
		{"nohz_full", func(c *topo.CPUSpec) { c.NoTick = true }},
	} {
		name := path.Join(cpuDir, option.file)
		if s.text(name) == "(null)" {
			continue
		}
		for _, id := range s.list(name) {
			if i, present := s.at[id]; present {
				option.set(&s.cpu[i].CPUSpec)
			}
		}
	}
}

// readTopology reads the folder topology and the caches of every online CPU. The kernel removes them while a CPU is
// offline.
func (s *survey) readTopology() {
	for i := range s.cpu {
		c := &s.cpu[i]
		if c.Offline {
			continue
		}
		dir := path.Join(cpuDir, cpuName(c.ID))
		s.readCPU(c, path.Join(dir, "topology"))
		c.L3 = s.lastLevelCache(path.Join(dir, "cache"))
		c.capacity, _ = s.number(path.Join(dir, "cpu_capacity"))
		c.baseKHz, _ = s.number(path.Join(dir, "cpufreq", "base_frequency"))
	}
}

func (s *survey) readCPU(c *cpuFacts, dir string) {
	c.threadsFile = path.Join(dir, "thread_siblings")
	c.threads = s.cpus(dir, "core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
	c.packageID, c.coreID = s.id(path.Join(dir, "physical_package_id")), s.id(path.Join(dir, "core_id"))
	c.packageGroup = lowest(s.cpus(dir, "package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings"))
}

// id reads a file with an id; -1 when the file is missing or the kernel does not know.
func (s *survey) id(name string) int {
	n, ok := s.number(name)
	if !ok || n < 0 {
		return -1
	}
	if n > math.MaxInt32 {
		s.fail(name, fmt.Errorf("id %d is out of range", n))
		return -1
	}
	return int(n)
}

// lastLevelCache returns the kernel's id of the level 3 cache, by which the kubelet knows it; the lowest CPU that
// shares it where the kernel gives caches no ids, and -1 when there is none.
func (s *survey) lastLevelCache(dir string) int {
	for _, i := range s.numbered(dir, "index") {
		index := path.Join(dir, "index"+strconv.Itoa(i))
		if level, _ := s.number(path.Join(index, "level")); level != 3 {
			continue
		}
		if id, ok := s.number(path.Join(index, "id")); ok && id >= 0 && id <= math.MaxInt32 {
			return int(id)
		}
		return lowest(s.cpus(index, "shared_cpu_list", "shared_cpu_map"))
	}
	return -1
}

func cpuName(id int) string { return "cpu" + strconv.Itoa(id) }

func contains(sorted []int, id int) bool {
	_, ok := slices.BinarySearch(sorted, id)
	return ok
}

func lowest(sorted []int) int {
	if len(sorted) == 0 || sorted[0] >= cpuset.MaxID {
		return -1
	}
	return sorted[0]
}

package host

import (
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
	spec, notes, err := Spec(root, arch)
	if err != nil {
		return Reading{}, err
	}
	m, err := topo.New(spec)
	if err != nil {
		return Reading{}, fmt.Errorf("machine under %s: %w", root.Path(), err)
	}
	return Reading{Machine: m, Notes: notes}, nil
}

// Spec is Read without the validation of topo.New. Core ids in it are unique in the whole machine and dense: cores in
// ascending order of their lowest CPU.
func Spec(root Root, arch string) (topo.Spec, []string, error) {
	t, err := open(root)
	if err != nil {
		return topo.Spec{}, nil, err
	}
	defer t.close()
	s := survey{tree: t}
	if err := s.run(arch); err != nil {
		return topo.Spec{}, nil, err
	}
	return s.spec, s.notes, nil
}

// cpuFacts is what the files say of one CPU. Groups are named by their lowest CPU; -1 is unknown.
type cpuFacts struct {
	id                int
	offline, isolated bool
	threads           []int  // the CPUs of its core, itself among them
	threadsFile       string // for errors
	packageID         int
	packageGroup      int
	coreID            int
	die, l3           int
	capacity, baseKHz int64

	// What survey decides.
	core, socket, numa int
	kind               topo.Kind
}

// survey collects the facts of one machine.
type survey struct {
	*tree
	cpu   []cpuFacts
	at    map[int]int // CPU id to position in cpu
	spec  topo.Spec
	notes []string
}

func (s *survey) run(arch string) error {
	for _, step := range []func() error{
		s.findCPUs, s.readTopology, s.readNodes, s.groupCores, s.groupSockets, s.readKinds,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return s.finish(arch)
}

func (s *survey) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// findCPUs lists the CPUs that are present, and which of them are offline and isolated. Kernels before 2.6.30 have no
// lists: there a CPU is a folder, and offline when its file "online" says 0.
func (s *survey) findCPUs() error {
	ids, err := s.numbered(cpuDir, "cpu")
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return s.fault(cpuDir, errors.New("has no folder cpu0, cpu1, …"))
	}
	present, err := s.idList(path.Join(cpuDir, "present"))
	if err != nil {
		return err
	}
	if present == nil {
		present = ids
	}
	online, err := s.idList(path.Join(cpuDir, "online"))
	if err != nil {
		return err
	}
	isolated, err := s.idList(path.Join(cpuDir, "isolated"))
	if err != nil {
		return err
	}
	s.at = map[int]int{}
	for _, id := range ids {
		if !contains(present, id) {
			continue
		}
		c := cpuFacts{id: id, packageID: -1, packageGroup: -1, coreID: -1, die: -1, l3: -1, numa: -1}
		if c.offline, err = s.isOffline(id, online); err != nil {
			return err
		}
		c.isolated = contains(isolated, id)
		s.at[id] = len(s.cpu)
		s.cpu = append(s.cpu, c)
	}
	if len(s.cpu) > topo.MaxCPUs {
		return s.fault(cpuDir, fmt.Errorf("has %d CPUs, at most %d are supported", len(s.cpu), topo.MaxCPUs))
	}
	if !slices.ContainsFunc(s.cpu, func(c cpuFacts) bool { return !c.offline }) {
		return s.fault(cpuDir, errors.New("no CPU that is present is online"))
	}
	return nil
}

// idList reads a file in list format whatever its name; nil when missing or empty.
func (s *survey) idList(name string) ([]int, error) {
	text, err := s.text(name)
	if err != nil {
		return nil, err
	}
	ids, err := parseList(text)
	if err != nil {
		return nil, s.fault(name, err)
	}
	return ids, nil
}

func (s *survey) isOffline(id int, online []int) (bool, error) {
	if online != nil {
		return !contains(online, id), nil
	}
	on, ok, err := s.number(path.Join(cpuDir, cpuName(id), "online"))
	return ok && on == 0, err
}

// readTopology reads the folder topology and the caches of every online CPU. The kernel removes them while a CPU is
// offline.
func (s *survey) readTopology() error {
	for i := range s.cpu {
		c := &s.cpu[i]
		dir := path.Join(cpuDir, cpuName(c.id))
		if c.offline {
			continue
		}
		if err := s.readCPU(c, path.Join(dir, "topology")); err != nil {
			return err
		}
		var err error
		if c.l3, err = s.lastLevelCache(path.Join(dir, "cache")); err != nil {
			return err
		}
		if c.capacity, _, err = s.number(path.Join(dir, "cpu_capacity")); err != nil {
			return err
		}
		if c.baseKHz, _, err = s.number(path.Join(dir, "cpufreq", "base_frequency")); err != nil {
			return err
		}
	}
	return nil
}

func (s *survey) readCPU(c *cpuFacts, dir string) (err error) {
	c.threadsFile = path.Join(dir, "thread_siblings")
	if c.threads, err = s.cpus(dir, "core_cpus_list", "thread_siblings_list", "core_cpus",
		"thread_siblings"); err != nil {
		return err
	}
	if c.packageID, err = s.id(path.Join(dir, "physical_package_id")); err != nil {
		return err
	}
	if c.coreID, err = s.id(path.Join(dir, "core_id")); err != nil {
		return err
	}
	group, err := s.cpus(dir, "package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
	if err != nil {
		return err
	}
	c.packageGroup = lowest(group)
	dies, err := s.cpus(dir, "die_cpus_list", "die_cpus")
	if err != nil {
		return err
	}
	if c.die = lowest(dies); c.die >= 0 {
		return nil
	}
	die, err := s.id(path.Join(dir, "die_id"))
	if die >= 0 && c.packageID >= 0 {
		// unique in the machine: die ids repeat on the next package
		c.die = cpuset.MaxID + c.packageID*topo.MaxCPUs + die
	}
	return err
}

// id reads a file with an id; -1 when the file is missing or the kernel does not know.
func (s *survey) id(name string) (int, error) {
	n, ok, err := s.number(name)
	if err != nil || !ok || n < 0 {
		return -1, err
	}
	if n > 1<<31-1 {
		return 0, s.fault(name, fmt.Errorf("id %d is out of range", n))
	}
	return int(n), nil
}

// lastLevelCache returns the kernel's id of the level 3 cache, by which the kubelet knows it; the lowest CPU that
// shares it where the kernel gives caches no ids, and -1 when there is none.
func (s *survey) lastLevelCache(dir string) (int, error) {
	indices, err := s.numbered(dir, "index")
	if err != nil {
		return -1, err
	}
	for _, i := range indices {
		index := path.Join(dir, "index"+strconv.Itoa(i))
		level, _, err := s.number(path.Join(index, "level"))
		if err != nil {
			return -1, err
		}
		if level != 3 {
			continue
		}
		if id, ok, err := s.number(path.Join(index, "id")); err != nil || ok && id >= 0 && id <= math.MaxInt32 {
			return int(id), err
		}
		shared, err := s.cpus(index, "shared_cpu_list", "shared_cpu_map")
		return lowest(shared), err
	}
	return -1, nil
}

func (s *survey) finish(arch string) error {
	cpuinfo, err := s.text("proc/cpuinfo")
	if err != nil {
		return err
	}
	if found := parseArch(cpuinfo); found != "" {
		arch = found
	}
	s.spec.Arch = arch
	for _, c := range s.cpu {
		s.spec.CPUs = append(s.spec.CPUs, topo.CPUSpec{
			ID: c.id, Core: c.core, L3: c.l3, Die: c.die, Socket: c.socket, NUMA: c.numa, Kind: c.kind,
			Offline: c.offline, Isolated: c.isolated,
		})
	}
	return nil
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

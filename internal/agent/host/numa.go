package host

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// remoteDistance is assumed between NUMA nodes where the machine does not say.
const remoteDistance = 20

// readNodes reads the NUMA nodes and puts every CPU on one. Nodes may be sparse and may lack CPUs or memory. A CPU that
// no node names counts to node 0.
func (s *survey) readNodes() error {
	ids, err := s.numbered(nodeDir, "node")
	if err != nil {
		return err
	}
	if len(ids) > topo.MaxNUMANodes {
		return s.fault(nodeDir, fmt.Errorf("has %d NUMA nodes, at most %d are supported", len(ids), topo.MaxNUMANodes))
	}
	for _, id := range ids {
		if err := s.readNode(id, len(ids)); err != nil {
			return err
		}
	}
	if err := s.placeByLinks(ids); err != nil {
		return err
	}
	return s.placeRest(ids)
}

func (s *survey) readNode(id, nodes int) error {
	dir := path.Join(nodeDir, "node"+strconv.Itoa(id))
	cpus, err := s.cpus(dir, "cpulist", "cpumap")
	if err != nil {
		return err
	}
	for _, cpu := range cpus {
		i, ok := s.at[cpu]
		if !ok { // possible, not present
			continue
		}
		if s.cpu[i].numa >= 0 {
			return s.fault(dir, fmt.Errorf("names CPU %d, which node%d names too", cpu, s.cpu[i].numa))
		}
		s.cpu[i].numa = id
	}
	spec := topo.NUMASpec{ID: id}
	if spec.MemoryBytes, err = s.memTotal(path.Join(dir, "meminfo")); err != nil {
		return err
	}
	if spec.Hugepages, err = s.hugepages(path.Join(dir, "hugepages")); err != nil {
		return err
	}
	if spec.Distances, err = s.distances(path.Join(dir, "distance"), nodes); err != nil {
		return err
	}
	s.spec.NUMA = append(s.spec.NUMA, spec)
	return nil
}

// memTotal returns 0 for a missing file: a node of CPUs alone.
func (s *survey) memTotal(file string) (int64, error) {
	text, err := s.text(file)
	if err != nil || text == "" {
		return 0, err
	}
	bytes, err := parseMemTotal(text)
	if err != nil {
		return 0, s.fault(file, err)
	}
	return bytes, nil
}

func (s *survey) hugepages(dir string) (map[int64]int64, error) {
	f, err := s.root.Open(dir)
	if err != nil {
		if isMissing(err) {
			return nil, nil
		}
		return nil, s.fault(dir, bare(err))
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, s.fault(dir, bare(err))
	}
	slices.Sort(names)
	var pages map[int64]int64
	for _, name := range names {
		size, ok := parseHugepageSize(name)
		if !ok {
			continue
		}
		file := path.Join(dir, name, "nr_hugepages")
		n, _, err := s.number(file)
		if err != nil {
			return nil, err
		}
		if n < 0 {
			return nil, s.fault(file, fmt.Errorf("number of pages %d is negative", n))
		}
		if n == 0 {
			continue
		}
		if pages == nil {
			pages = map[int64]int64{}
		}
		pages[size] = n
	}
	return pages, nil
}

// distances returns nil, which means 10 and 20, when the file is missing, cannot be parsed, or has a row for another
// number of nodes: a kernel with a node offline may write one more.
func (s *survey) distances(file string, nodes int) ([]int, error) {
	text, err := s.text(file)
	if err != nil || text == "" {
		return nil, err
	}
	row, err := parseDistances(text)
	if err != nil {
		s.note("%s: %v: 10 and 20 are assumed", file, err)
		return nil, nil
	}
	if len(row) != nodes {
		s.note("%s has %d distances for %d NUMA nodes: 10 and 20 are assumed", file, len(row), nodes)
		return nil, nil
	}
	return row, nil
}

// placeByLinks uses the links cpuN/nodeM, which a CPU keeps while it is offline.
func (s *survey) placeByLinks(nodes []int) error {
	for i := range s.cpu {
		c := &s.cpu[i]
		if c.numa >= 0 {
			continue
		}
		links, err := s.numbered(path.Join(cpuDir, cpuName(c.id)), "node")
		if err != nil {
			return err
		}
		// A link to a node that has no folder of its own leads nowhere: the rule for CPUs without a node holds.
		if len(links) == 1 && contains(nodes, links[0]) {
			c.numa = links[0]
		}
	}
	return nil
}

// placeRest counts the CPUs that no node names to node 0.
func (s *survey) placeRest(nodes []int) error {
	homeless := 0
	for i := range s.cpu {
		if c := &s.cpu[i]; c.numa < 0 {
			c.numa = 0
			homeless++
		}
	}
	if homeless == 0 {
		return nil
	}
	if len(nodes) == 0 {
		s.note("%s has no NUMA nodes: the machine counts as one, node 0", nodeDir)
	} else {
		s.note("%d CPUs belong to no NUMA node that has a folder: they count to node 0", homeless)
	}
	if contains(nodes, 0) {
		return nil
	}
	return s.addNodeZero()
}

// addNodeZero adds a node 0 that has no folder. Its memory is what the whole machine has beyond the other nodes.
func (s *survey) addNodeZero() error {
	memory, err := s.memTotal("proc/meminfo")
	if err != nil {
		return err
	}
	for i := range s.spec.NUMA {
		n := &s.spec.NUMA[i]
		memory -= n.MemoryBytes
		if n.Distances != nil {
			n.Distances = append(n.Distances, remoteDistance)
		}
	}
	zero := topo.NUMASpec{ID: 0, MemoryBytes: max(0, memory)}
	if zero.MemoryBytes == 0 {
		s.note("proc/meminfo names no memory for node 0")
	}
	if len(s.spec.NUMA) == 0 {
		if zero.Hugepages, err = s.hugepages("sys/kernel/mm/hugepages"); err != nil {
			return err
		}
	}
	s.spec.NUMA = append(s.spec.NUMA, zero)
	return nil
}

package host

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/view"
)

// remoteDistance is assumed between NUMA nodes where the machine does not say.
const remoteDistance = 20

// readNodes reads the NUMA nodes and puts every CPU on one. Nodes may be sparse and may lack CPUs or memory. A CPU that
// no node names counts to node 0.
func (s *survey) readNodes() {
	ids := s.numbered(nodeDir, "node")
	if len(ids) > topo.MaxNUMANodes {
		s.fail(nodeDir, fmt.Errorf("has %d NUMA nodes, at most %d are supported", len(ids), topo.MaxNUMANodes))
		return
	}
	for _, id := range ids {
		s.readNode(id, len(ids))
	}
	s.placeByLinks(ids)
	s.placeRest(ids)
}

func (s *survey) readNode(id, nodes int) {
	dir := path.Join(nodeDir, "node"+strconv.Itoa(id))
	for _, cpu := range s.cpus(dir, "cpulist", "cpumap") {
		i, ok := s.at[cpu]
		if !ok { // possible, not present
			continue
		}
		if s.cpu[i].NUMA >= 0 {
			s.fail(dir, fmt.Errorf("names CPU %d, which node%d names too", cpu, s.cpu[i].NUMA))
		}
		s.cpu[i].NUMA = id
	}
	s.spec.NUMA = append(s.spec.NUMA, topo.NUMASpec{
		ID: id, MemoryBytes: s.memTotal(path.Join(dir, "meminfo")),
		Hugepages: s.hugepages(path.Join(dir, "hugepages")),
		Distances: s.distances(path.Join(dir, "distance"), nodes),
	})
}

// memTotal returns 0 for a missing file: a node of CPUs alone.
func (s *survey) memTotal(file string) int64 {
	text := s.text(file)
	if text == "" {
		return 0
	}
	bytes, err := parseMemTotal(text)
	s.fail(file, err)
	return bytes
}

func (s *survey) hugepages(dir string) map[int64]int64 {
	var pages map[int64]int64
	for _, name := range slices.Sorted(slices.Values(s.names(dir))) {
		size, ok := parseHugepageSize(name)
		if !ok {
			continue
		}
		file := path.Join(dir, name, "nr_hugepages")
		n, _ := s.number(file)
		if n < 0 {
			s.fail(file, fmt.Errorf("number of pages %d is negative", n))
		}
		if n > 0 {
			put(&pages, size, n)
		}
	}
	return pages
}

// distances returns nil, which means 10 and 20, when the file is missing, cannot be parsed, or has a row for another
// number of nodes: a kernel with a node offline may write one more.
func (s *survey) distances(file string, nodes int) []int {
	text := s.text(file)
	if text == "" {
		return nil
	}
	row, err := parseDistances(text)
	if err != nil {
		s.note("%s: %v: 10 and 20 are assumed", file, err)
		return nil
	}
	if len(row) != nodes {
		s.note("%s has %s for %s: 10 and 20 are assumed", file, view.Count(len(row), "distance"),
			view.Count(nodes, "NUMA node"))
		return nil
	}
	return row
}

// placeByLinks uses the links cpuN/nodeM, which a CPU keeps while it is offline.
func (s *survey) placeByLinks(nodes []int) {
	for i := range s.cpu {
		c := &s.cpu[i]
		if c.NUMA >= 0 {
			continue
		}
		links := s.numbered(path.Join(cpuDir, cpuName(c.ID)), "node")
		// A link to a node that has no folder of its own leads nowhere: the rule for CPUs without a node holds.
		if len(links) == 1 && contains(nodes, links[0]) {
			c.NUMA = links[0]
		}
	}
}

// placeRest counts the CPUs that no node names to node 0.
func (s *survey) placeRest(nodes []int) {
	homeless := 0
	for i := range s.cpu {
		if c := &s.cpu[i]; c.NUMA < 0 {
			c.NUMA = 0
			homeless++
		}
	}
	if homeless == 0 {
		return
	}
	if len(nodes) == 0 {
		s.note("%s has no NUMA nodes: the machine counts as one, node 0", nodeDir)
	} else {
		s.note("%s without a NUMA node that has a folder: node 0 is assumed", view.Count(homeless, "CPU"))
	}
	if !contains(nodes, 0) {
		s.addNodeZero()
	}
}

// addNodeZero adds a node 0 that has no folder. Its memory is what the whole machine has beyond the other nodes.
func (s *survey) addNodeZero() {
	memory := s.memTotal("proc/meminfo")
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
		zero.Hugepages = s.hugepages("sys/kernel/mm/hugepages")
	}
	s.spec.NUMA = append(s.spec.NUMA, zero)
}

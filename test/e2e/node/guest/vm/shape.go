package vm

import (
	"errors"
	"fmt"
	"strconv"
)

// Shape is what a guest's hardware looks like. CPUs are numbered as QEMU does: the threads of a core are neighbours,
// and NUMA nodes hold runs of equal length.
type Shape struct {
	Name                          string
	Sockets, Dies, Cores, Threads int // Dies a socket, Cores a die, Threads a core
	// MemoryMiB is that of each NUMA node.
	MemoryMiB int
	// Tap is a network device that is made when the guest is resumed, and ends with it. The host gives it the address
	// Host. "" is a network inside the emulator, which leads to the host's loopback.
	Tap string
	// Kernel are further words of the kernel's command line.
	Kernel string
	// Steady makes the guest's clock advance with the instructions that its CPUs execute, whatever else the host does:
	// what is measured by that clock does not depend on the host's load.
	Steady bool
	// Systemd makes systemd the first process, in place of busybox's init.
	Systemd bool
	// Distance[i][j] is that from NUMA node i to j, 10 on the diagonal; its length is the number of nodes.
	Distance [][]int
	// Devices are further devices, as the emulator's argument -device has them. A guest with some is not saved: not
	// every device can be.
	Devices []string
}

// CPUs is the number of CPUs.
func (s Shape) CPUs() int { return s.Sockets * s.Dies * s.Cores * s.Threads }

// Nodes is the number of NUMA nodes.
func (s Shape) Nodes() int { return len(s.Distance) }

// NodeCPUs returns the first and the last CPU of a NUMA node.
func (s Shape) NodeCPUs(node int) (first, last int) {
	per := s.CPUs() / s.Nodes()
	return node * per, (node+1)*per - 1
}

func (s Shape) check() error {
	switch {
	case s.Name == "" || s.CPUs() <= 0 || s.MemoryMiB <= 0 || s.Nodes() == 0:
		return fmt.Errorf("shape %+v: name, CPUs, memory and NUMA nodes must be given", s)
	case s.CPUs()%s.Nodes() != 0:
		return fmt.Errorf("shape %s: %d CPUs cannot be shared evenly by %d NUMA nodes", s.Name, s.CPUs(), s.Nodes())
	}
	for i, row := range s.Distance {
		if len(row) != s.Nodes() {
			return fmt.Errorf("shape %s: row %d of the distances has %d values, want %d", s.Name, i, len(row),
				s.Nodes())
		}
		if row[i] != 10 {
			return errors.New("shape " + s.Name + ": the distance of a node to itself is 10")
		}
	}
	return nil
}

func (s Shape) arguments() []string {
	args := []string{
		"-smp", fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", s.CPUs(), s.Sockets, s.Dies, s.Cores,
			s.Threads),
		"-m", strconv.Itoa(s.MemoryMiB * s.Nodes()),
	}
	for i := range s.Nodes() {
		first, last := s.NodeCPUs(i)
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", i, s.MemoryMiB),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=m%d", i, first, last, i))
	}
	for i, row := range s.Distance {
		for j, distance := range row {
			if i != j {
				args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", i, j, distance))
			}
		}
	}
	for _, device := range s.Devices {
		args = append(args, "-device", device)
	}
	return args
}

package cluster

import (
	"fmt"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/machine"
)

// DefaultMachines returns the machines of a cluster that is started without a list of machines.
func DefaultMachines() []string { return []string{"epyc-2s=2", "epyc-256", "arm64-1s"} }

// MachineError is the error of a machine list that cannot be used.
type MachineError struct{ Err error }

func (e *MachineError) Error() string { return e.Err.Error() }

func (e *MachineError) Unwrap() error { return e.Err }

// ExitCode is that of bad input.
func (e *MachineError) ExitCode() int { return 2 }

// Expand makes nodes of machine specs. Where count is not 0 the list is repeated, or cut, to give that many. Nodes are
// named after their machine and numbered.
func Expand(specs []string, count int) ([]datadir.Node, error) {
	var list []datadir.Node
	for _, spec := range specs {
		d, n, err := machine.Parse(spec)
		if err != nil {
			return nil, &MachineError{err}
		}
		for range n {
			list = append(list, datadir.Node{Name: d.Name, Machine: d.Lasting})
		}
	}
	if count < 0 || count > machine.MaxCount {
		return nil, &MachineError{fmt.Errorf("number of nodes %d: want 1 to %d", count, machine.MaxCount)}
	}
	if count == 0 {
		count = len(list)
	}
	nodes := make([]datadir.Node, 0, count)
	numbers := map[string]int{}
	for i := range count {
		n := list[i%len(list)]
		kind := n.Name
		n.Name = fmt.Sprintf("%s-%d", kind, numbers[kind])
		numbers[kind]++
		nodes = append(nodes, n)
	}
	return nodes, nil
}

package cluster

import (
	"fmt"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/machine"
)

// DefaultMachines returns the machines of a cluster that is started without a list of machines.
func DefaultMachines() []string { return []string{"epyc-2s=2", "epyc-256", "arm64-1s", "hgx-h100"} }

// ExitError is an error with the exit code of the program; that of bad input, such as a list of machines that cannot be
// used, is 2.
type ExitError struct {
	Err  error
	Code int
}

func (e *ExitError) Error() string { return e.Err.Error() }

func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the exit code of the program.
func (e *ExitError) ExitCode() int { return e.Code }

// Expand returns the nodes of machine specs. If count is not 0, the list is repeated or cut to that length. Nodes are
// named after their machine and numbered.
func Expand(specs []string, count int) ([]datadir.Node, error) {
	var list []datadir.Node
	for _, spec := range specs {
		d, n, err := machine.Parse(spec)
		if err != nil {
			return nil, &ExitError{err, 2}
		}
		for range n {
			list = append(list, datadir.Node{Name: d.Name, Machine: d.Lasting})
		}
	}
	if count < 0 || count > machine.MaxCount {
		return nil, &ExitError{fmt.Errorf("number of nodes %d: want 1 to %d", count, machine.MaxCount), 2}
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

//go:build linux && e2e_cluster

package cluster

import (
	"path"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// tree is the agent's view of the real cgroups: it speaks of virtual ids and folds on the way to the kernel. What the
// kernel shows is turned back by the store of what was asked for; a value that nobody asked for is shown as it is, and so
// is a drift.
type tree struct {
	apply.Cgroup
	store fold.Store
	real  int    // CPUs of the kernel
	all   string // CPUs and NUMA nodes of the played machine
	nodes string
}

var _ apply.Cgroup = tree{}

func isCPUs(file string) bool {
	return file == "cpuset.cpus" || file == "cpuset.effective_cpus" || file == "cpuset.cpus.effective"
}

func isMems(file string) bool {
	return file == desired.Mems || file == "cpuset.effective_mems" || file == "cpuset.mems.effective"
}

// Read returns the content of a file in virtual ids.
func (t tree) Read(group, file string) (string, error) {
	real, err := t.Cgroup.Read(group, file)
	if err != nil || real == "" || !isCPUs(file) && !isMems(file) {
		return real, err
	}
	record, _, err := t.store.Get(path.Base(group))
	if err != nil {
		return "", err
	}
	candidates := []fold.Set{record.Set}
	if record.Next != nil {
		candidates = append(candidates, *record.Next)
	}
	for _, c := range candidates {
		virtual, folded, err := c.Mems, "", error(nil)
		if isCPUs(file) {
			virtual = c.CPUs
			if virtual == "" {
				virtual = t.all
			}
			folded, err = fold.CPUs(virtual, t.real)
		} else {
			if virtual == "" {
				virtual = t.nodes
			}
			folded, err = fold.Mems(virtual)
		}
		if err != nil {
			return "", err
		}
		if folded == real {
			return virtual, nil
		}
	}
	return real, nil
}

// Write folds a value and hands it to the kernel.
func (t tree) Write(group, file, value string) error {
	var fill func(*fold.Set) *string
	var folding func(string) (string, error)
	switch {
	case isCPUs(file):
		fill = func(s *fold.Set) *string { return &s.CPUs }
		folding = func(list string) (string, error) { return fold.CPUs(list, t.real) }
	case isMems(file):
		fill = func(s *fold.Set) *string { return &s.Mems }
		folding = fold.Mems
	default:
		return t.Cgroup.Write(group, file, value)
	}
	folded, err := folding(value)
	if err != nil {
		return err
	}
	return t.store.Change(path.Base(group), byAgent,
		func(s fold.Set) fold.Set { *fill(&s) = value; return s },
		func(fold.Set) error { return t.Cgroup.Write(group, file, folded) })
}

// byAgent marks in the store what the agent wrote itself.
const byAgent = "agent"

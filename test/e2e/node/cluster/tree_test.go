//go:build linux && e2e_cluster

package fabricated

import (
	"cmp"
	"path"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// tree is the agent's view of the real cgroups: it speaks of virtual ids and folds on the way to the kernel. What the
// kernel shows is turned back by the store of what was asked for; a value that was not asked for is shown as it is, and
// so is a drift.
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
	text, err := t.Cgroup.Read(group, file)
	if err != nil || text == "" || !isCPUs(file) && !isMems(file) {
		return text, err
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
		virtual, folded, err := t.folded(c, file)
		if err != nil || folded == text {
			return virtual, err
		}
	}
	return text, nil
}

// folded returns a set as it was asked for, and as the kernel has it then.
func (t tree) folded(s fold.Set, file string) (virtual, folded string, err error) {
	if isCPUs(file) {
		virtual = cmp.Or(s.CPUs, t.all)
		folded, err = fold.CPUs(virtual, t.real)
		return virtual, folded, err
	}
	virtual = cmp.Or(s.Mems, t.nodes)
	folded, err = fold.Mems(virtual)
	return virtual, folded, err
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

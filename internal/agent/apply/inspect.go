package apply

import (
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Sight is one group of a pod at one moment: what the table wants and what the kernel has.
type Sight struct {
	// Path is relative to the root of the tree. Container is "" for a sandbox and for the pod's own group.
	Path, Container string
	// Vanished groups are not in the tree any more; they have no values.
	Vanished bool
	// Values are the files of the group that Tenon writes, and cpuset.cpus of every container, by file.
	Values []Seen
}

// Seen is one file of a group. Wanted is false where only the kubelet decides its value.
type Seen struct {
	File        string
	Wanted      bool
	Want, Got   string
	Cause       desired.Cause
	AtCreation  bool
	Effective   string // of cpuset.cpus: what the kernel lets the group use
	Differs     bool   // Wanted, and the kernel has something else
	Unreadable  error
	Constrained why.Reason // why the pod has no values; the zero Reason when it has
}

// Inspect reads the groups of a pod anew and returns what it finds beside what the table wants, by path; nothing for a
// pod that the Engine does not know. It writes nothing, and does not wait. The error is ErrNotReady.
func (e *Engine) Inspect(uid string) ([]Sight, error) {
	e.mu.Lock()
	in, ready := e.input()
	var own []Sight
	for _, l := range e.sortedLeaves() {
		if l.uid == uid {
			own = append(own, Sight{Path: l.path, Container: l.container})
		}
	}
	if p := e.pods[uid]; p != nil && p.Cgroup != "" {
		own = append(own, Sight{Path: p.Cgroup})
	}
	e.mu.Unlock()
	if !ready {
		return nil, ErrNotReady
	}
	t := desired.Compute(in)
	for i := range own {
		e.see(in.View.Machine(), &own[i], uid, t)
	}
	// A pod's own group is shown where something is wanted of it.
	own = slices.DeleteFunc(own, func(s Sight) bool { return len(s.Values) == 0 && !s.Vanished })
	slices.SortFunc(own, func(a, b Sight) int { return strings.Compare(a.Path, b.Path) })
	return own, nil
}

// see reads the files of one group.
func (e *Engine) see(m *topo.Machine, s *Sight, uid string, t desired.Table) {
	byFile := map[string]Seen{}
	for _, row := range t.Rows {
		if row.Path == s.Path {
			byFile[row.File] = Seen{
				File: row.File, Wanted: true, Want: row.Value, Cause: row.Cause,
				AtCreation: row.AtCreation,
			}
		}
	}
	e.mu.Lock()
	leaf := e.leaves[s.Path] != nil
	e.mu.Unlock()
	if _, wanted := byFile[desired.CPUs]; leaf && !wanted {
		unwanted := Seen{File: desired.CPUs}
		for _, r := range t.Refused {
			if r.UID == uid {
				unwanted.Constrained = r.Reason
			}
		}
		byFile[desired.CPUs] = unwanted
	}
	for _, v := range byFile {
		err := e.compare(m, s.Path, &v)
		if isGone(err) {
			s.Vanished, s.Values = true, nil
			return
		}
		v.Unreadable = err
		s.Values = append(s.Values, v)
	}
	slices.SortFunc(s.Values, func(a, b Seen) int { return strings.Compare(a.File, b.File) })
}

// compare reads one file and says whether the kernel has what is wanted.
func (e *Engine) compare(m *topo.Machine, group string, v *Seen) error {
	var err error
	if v.Got, err = e.read(group, v.File); err != nil {
		return err
	}
	if v.File != desired.CPUs {
		first, _, _ := strings.Cut(v.Got, " ") // cpu.max shows the period behind the quota
		v.Differs = v.Wanted && first != v.Want
		return nil
	}
	got, _, err := m.ParseList(v.Got)
	if err != nil {
		return err
	}
	if v.Effective, err = e.read(group, effectiveFile(e.o.Cgroup.Dialect())); err != nil {
		return err
	}
	effective, _, err := m.ParseList(v.Effective)
	if err != nil {
		return err
	}
	want, _, err := m.ParseList(v.Want)
	v.Differs = v.Wanted && (got != want || effective != want)
	return err
}

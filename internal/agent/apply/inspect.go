package apply

import (
	"maps"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/view"
)

// Inspect reads the groups of a pod anew and returns what it finds beside what the table wants, by path; nothing for a
// pod that the Engine does not know. It writes nothing, and does not wait. The error is ErrNotReady.
func (e *Engine) Inspect(uid string) ([]view.Cgroup, error) {
	t, m := e.compute()
	if m == nil {
		return nil, ErrNotReady
	}
	var own []view.Cgroup
	e.mu.Lock()
	for _, l := range e.sortedLeaves() {
		if l.uid == uid {
			own = append(own, view.Cgroup{Path: l.path, Container: l.container})
		}
	}
	if p := e.pods[uid]; p != nil && p.Cgroup != "" {
		own = append(own, view.Cgroup{Path: p.Cgroup})
	}
	e.mu.Unlock()
	for i := range own {
		e.see(m, &own[i], uid, t)
	}
	// A pod's own group is shown where something is wanted of it.
	own = slices.DeleteFunc(own, func(g view.Cgroup) bool { return len(g.Values) == 0 && !g.Gone })
	slices.SortFunc(own, func(a, b view.Cgroup) int { return strings.Compare(a.Path, b.Path) })
	return own, nil
}

// see reads the files of one group.
func (e *Engine) see(m *topo.Machine, g *view.Cgroup, uid string, t desired.Table) {
	byFile := map[string]view.CgroupValue{}
	for _, row := range t.Rows {
		if row.Path == g.Path {
			byFile[row.File] = view.CgroupValue{
				File: row.File, Want: row.Value, State: view.Matches, Cause: row.Cause.String(),
				AtCreation: row.AtCreation,
			}
		}
	}
	e.mu.Lock()
	leaf := e.leaves[g.Path] != nil
	e.mu.Unlock()
	if _, wanted := byFile[desired.CPUs]; leaf && !wanted {
		unwanted := view.CgroupValue{File: desired.CPUs, State: view.Unmanaged, Cause: "left to the kubelet"}
		for _, r := range t.Refused {
			if r.UID == uid {
				unwanted.Cause = "must not run: " + r.Reason.Code.String()
			}
		}
		byFile[desired.CPUs] = unwanted
	}
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		v := byFile[file]
		err := e.compare(m, g.Path, &v)
		if isGone(err) {
			g.Gone, g.Values = true, nil
			return
		}
		if err != nil {
			v.State, v.Error = view.Unreadable, err.Error()
		}
		g.Values = append(g.Values, v)
	}
}

// compare reads one file, and marks it where the kernel has something else than what is wanted.
func (e *Engine) compare(m *topo.Machine, group string, v *view.CgroupValue) error {
	var err error
	if v.Got, err = e.o.Cgroup.Read(group, v.File); err != nil {
		return err
	}
	if v.File != desired.CPUs {
		v.Want = e.boundBurst(group, v.File, v.Want)
		if !isSame(v.File, v.Got, v.Want) {
			v.State = view.Differs
		}
		return nil
	}
	got, _, err := m.ParseList(v.Got)
	if err != nil {
		return err
	}
	if v.Effective, err = e.o.Cgroup.Read(group, effectiveFile(e.o.Cgroup.Dialect())); err != nil {
		return err
	}
	effective, _, err := m.ParseList(v.Effective)
	if err != nil {
		return err
	}
	want, _, err := m.ParseList(v.Want)
	if v.State == view.Matches && (got != want || effective != want) {
		v.State = view.Differs
	}
	return err
}

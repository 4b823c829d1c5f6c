package apply

import (
	"errors"
	"path"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// bestEffortDir is the name of the directory in which the kubelet keeps the pods of that class.
const bestEffortDir = "besteffort"

// podUID returns the uid in the name of a pod's group, as the cgroupfs driver writes it.
func podUID(name string) (string, bool) { return strings.CutPrefix(name, "pod") }

// discover lists the groups of containers in the tree and forgets the ones that are gone. A group whose pod nobody told
// of becomes an orphan.
func (e *Engine) discover() error {
	seen := map[string]bool{}
	var errs []error
	for _, root := range e.o.Roots {
		errs = append(errs, e.walk(root, 0, seen))
	}
	if err := errors.Join(errs...); err != nil {
		return err // an incomplete list must not let a leaf be forgotten
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for at, l := range e.leaves {
		if !seen[at] && (l.kernel.known || l.phase != created) {
			delete(e.leaves, at)
		}
	}
	return nil
}

// walk looks for pods in dir and, one level below the roots, in the directories of the QoS classes.
func (e *Engine) walk(dir string, level int, seen map[string]bool) error {
	names, err := e.o.Cgroup.Children(dir)
	if err != nil {
		if isGone(err) {
			return nil
		}
		return err
	}
	for _, name := range names {
		group := path.Join(dir, name)
		uid, isPod := podUID(name)
		switch {
		case isPod:
			if err := e.walkPod(group, uid, seen); err != nil {
				return err
			}
		case level == 0:
			if err := e.walk(group, 1, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) walkPod(group, uid string, seen map[string]bool) error {
	names, err := e.o.Cgroup.Children(group)
	if err != nil {
		if isGone(err) {
			return nil
		}
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		at := path.Join(group, name)
		seen[at] = true
		if e.leaves[at] != nil {
			continue
		}
		// A container that the hooks did not tell of may be about to run: only Stop and Remove say that it is not.
		e.leaves[at] = &leaf{path: at, uid: uid, phase: started}
		if p := e.pods[uid]; p != nil {
			p.Cgroup = group
			continue
		}
		e.pods[uid] = &pod{orphan: found, gone: true, Pod: desired.Pod{
			Cgroup: group,
			Entry:  ledger.Entry{UID: uid, Role: orphanRole(group)},
		}}
	}
	return nil
}

// orphanRole is what a group's place tells about an unknown pod.
func orphanRole(group string) qos.Role {
	if path.Base(path.Dir(group)) == bestEffortDir {
		return qos.BEPool
	}
	return qos.SharedPool
}

// look reads what the kernel has for a leaf. A change that nobody here made is drift.
func (e *Engine) look(m *topo.Machine, l *leaf, drift bool) error {
	cpus, err := e.readSet(m, l.path, desired.CPUs)
	if err == nil {
		err = e.lookEffective(m, l)
	}
	if err == nil {
		err = e.lookPopulated(l)
	}
	if isGone(err) {
		l.kernel = kernelState{vanished: true, lived: l.kernel.lived}
		return nil
	}
	if err != nil {
		return err
	}
	if drift && l.kernel.known && cpus != l.kernel.cpus {
		e.record(Record{
			Kind: Drifted, UID: l.uid, Container: l.container, Group: l.path, File: desired.CPUs,
			Want: m.FormatList(l.kernel.cpus), Got: m.FormatList(cpus),
		})
		l.kernel.drifted = true
	}
	l.kernel.known, l.kernel.vanished, l.kernel.cpus = true, false, cpus
	return nil
}

func (e *Engine) lookEffective(m *topo.Machine, l *leaf) error {
	set, err := e.readSet(m, l.path, effectiveFile(e.o.Cgroup.Dialect()))
	if err == nil {
		l.kernel.effective = set
	}
	return err
}

func (e *Engine) lookPopulated(l *leaf) error {
	live, err := e.populated(l.path)
	if err == nil {
		l.kernel.populated = live
		l.kernel.lived = l.kernel.lived || live
	}
	return err
}

func (e *Engine) readSet(m *topo.Machine, group, name string) (cpuset.Set, error) {
	text, err := e.read(group, name)
	if err != nil {
		return cpuset.Set{}, err
	}
	set, _, err := m.ParseList(text)
	return set, err
}

// populated reports whether a process lives in group or below it.
func (e *Engine) populated(group string) (bool, error) {
	if e.o.Cgroup.Dialect() == desired.V2 {
		text, err := e.read(group, eventsV2)
		return strings.Contains(text, "populated 1"), err
	}
	text, err := e.read(group, procsFile)
	if err != nil || text != "" {
		return text != "", err
	}
	names, err := e.o.Cgroup.Children(group)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		live, err := e.populated(path.Join(group, name))
		if live || err != nil && !isGone(err) {
			return live, err
		}
	}
	return false, nil
}

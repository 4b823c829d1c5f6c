package apply

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Names that the kubelet gives to groups. With the systemd driver a group is a slice, whose name repeats that of the
// slice that it is in, and dashes in a UID are underscores:
//
//	kubepods/besteffort/pod1-2/ID
//	kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice/cri-containerd-ID.scope
const (
	podPrefix   = "pod"
	sliceSuffix = ".slice"
)

// podUID returns the uid in the name of a pod's group, which is found in the group parent.
func podUID(parent, name string) (string, bool) {
	slice, isSlice := strings.CutSuffix(name, sliceSuffix)
	if !isSlice {
		return strings.CutPrefix(name, podPrefix)
	}
	uid, ok := strings.CutPrefix(slice, strings.TrimSuffix(path.Base(parent), sliceSuffix)+"-"+podPrefix)
	return strings.ReplaceAll(uid, "_", "-"), ok
}

// discover lists the groups of containers in the tree and forgets the ones that are gone. A group of an unknown pod
// becomes an orphan.
func (e *Engine) discover() error {
	seen := map[string]bool{}
	var errs []error
	for _, root := range e.o.Roots {
		errs = append(errs, e.walk(root, 0, seen))
	}
	for uid, group := range e.outside() {
		errs = append(errs, e.walkPod(group, uid, seen))
	}
	if err := errors.Join(errs...); err != nil {
		return err // an incomplete list must not let a leaf be forgotten
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.visits)
	maps.DeleteFunc(e.leaves, func(at string, l *leaf) bool {
		return !seen[at] && (l.kernel.known || l.phase != created)
	})
	return nil
}

// outside returns the groups of pods, by UID, that are not below the roots: only the runtime reports them.
func (e *Engine) outside() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]string{}
	for uid, p := range e.pods {
		if p.Cgroup != "" && !e.holdsPods(p.Cgroup) {
			out[uid] = p.Cgroup
		}
	}
	return out
}

// visitPods looks for new groups of the pods in e.visits; in the whole tree if the group of one of them is unknown.
func (e *Engine) visitPods() error {
	e.mu.Lock()
	asked := e.visits
	everywhere := asked[anyPod]
	groups := make(map[string]string, len(asked))
	for uid := range asked {
		p := e.pods[uid]
		switch {
		case p == nil || p.gone:
		case p.Cgroup == "":
			everywhere = true
		default:
			groups[uid] = p.Cgroup
		}
	}
	if !everywhere {
		e.visits = map[string]bool{}
	}
	e.mu.Unlock()
	if everywhere {
		return e.discover()
	}
	var errs []error
	for uid, group := range groups {
		err := e.walkPod(group, uid, map[string]bool{})
		if err != nil { // it is still to be taken
			e.mu.Lock()
			e.visits[uid] = true
			e.mu.Unlock()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// walk looks for pods in dir and, one level below the roots, in the directories of the QoS classes.
func (e *Engine) walk(dir string, level int, seen map[string]bool) error {
	names, err := e.children(dir)
	for _, name := range names {
		group := path.Join(dir, name)
		if uid, isPod := podUID(dir, name); isPod {
			err = e.walkPod(group, uid, seen)
		} else if level == 0 {
			err = e.walk(group, 1, seen)
		}
		if err != nil {
			break
		}
	}
	return err
}

// children returns the names of the groups below a group; none below one that is gone.
func (e *Engine) children(group string) ([]string, error) {
	names, err := e.o.Cgroup.Children(group)
	if isGone(err) {
		return nil, nil
	}
	return names, err
}

func (e *Engine) walkPod(group, uid string, seen map[string]bool) error {
	names, err := e.children(group)
	if err != nil || len(names) == 0 {
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
		// A container that the hooks did not report may be about to run: only Stop and Remove show that it is not.
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

// orphanRole returns the role of an unknown pod by its group's path.
func orphanRole(group string) qos.Role {
	if desired.IsBestEffort(group) {
		return qos.BEPool
	}
	return qos.SharedPool
}

// readLeaf reads what the kernel has for a leaf. A change that the Engine did not make is drift.
func (e *Engine) readLeaf(m *topo.Machine, l *leaf, drift bool) error {
	cpus, err := e.readSet(m, l.setGroup(), desired.CPUs)
	if err == nil {
		err = e.readEffective(m, l)
	}
	if err == nil {
		err = e.readPopulated(l, cpus)
	}
	if isGone(err) {
		l.kernel = kernelState{vanished: true, lived: l.kernel.lived}
		return nil
	}
	if err != nil {
		return err
	}
	if drift && l.kernel.known && cpus != l.kernel.cpus {
		e.record(l.record(Drifted, m.FormatList(l.kernel.cpus), m.FormatList(cpus)))
		l.kernel.drifted = true
	}
	l.kernel.known, l.kernel.vanished, l.kernel.cpus = true, false, cpus
	return nil
}

func (e *Engine) readEffective(m *topo.Machine, l *leaf) error {
	set, err := e.readSet(m, l.path, effectiveFile(e.o.Cgroup.Dialect()))
	if err == nil {
		l.kernel.effective = set
	}
	return err
}

// readPopulated reads whether processes live in a leaf whose cpuset.cpus is cpus.
func (e *Engine) readPopulated(l *leaf, cpus cpuset.Set) error {
	live, err := e.populated(l.path)
	l.kernel.displaced = nil
	if err == nil && !live && cpus.IsEmpty() && e.o.Cgroup.Dialect() == desired.V1 && e.hasRun(l) {
		err = e.readDisplaced(l)
		live = len(l.kernel.displaced) > 0
	}
	if err == nil {
		l.kernel.populated = live
		l.kernel.lived = l.kernel.lived || live
	}
	return err
}

// hasRun reports whether a process has lived in the leaf, seen or not.
func (e *Engine) hasRun(l *leaf) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return l.kernel.lived || l.phase == started
}

// readDisplaced finds the processes of a leaf all of whose CPUs went offline: a v1 kernel moves them to the group
// above, where no others run. They run on all CPUs of that group.
func (e *Engine) readDisplaced(l *leaf) error {
	above := path.Dir(l.path)
	text, err := e.o.Cgroup.Read(above, procsFile)
	if err != nil || text == "" {
		return err
	}
	m, _ := e.ready()
	l.kernel.displaced = strings.Fields(text)
	l.kernel.effective, err = e.readSet(m, above, effectiveV1)
	return err
}

// returnDisplaced moves a leaf's displaced processes back into it.
func (e *Engine) returnDisplaced(l *leaf) error {
	for _, pid := range l.kernel.displaced {
		if err := e.o.Cgroup.Write(l.path, procsFile, pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %s: %w", pid, err)
		}
	}
	l.kernel.displaced = nil
	return nil
}

func (e *Engine) readSet(m *topo.Machine, group, name string) (cpuset.Set, error) {
	text, err := e.o.Cgroup.Read(group, name)
	if err != nil {
		return cpuset.Set{}, err
	}
	set, _, err := m.ParseList(text)
	return set, err
}

// populated reports whether a process lives in group or below it.
func (e *Engine) populated(group string) (bool, error) {
	if e.o.Cgroup.Dialect() == desired.V2 {
		text, err := e.o.Cgroup.Read(group, eventsV2)
		return strings.Contains(text, "populated 1"), err
	}
	text, err := e.o.Cgroup.Read(group, procsFile)
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

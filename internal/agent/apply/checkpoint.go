package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Grant is what an exclusive pod was given: its class, LSE or LSR, and its CPUs in list format.
type Grant struct {
	Class qos.Class
	CPUs  string
}

// Checkpoint remembers grants, by the UID of the pod, across restarts of the agent.
type Checkpoint interface {
	// Load returns what was saved last; an error for which errors.Is(err, fs.ErrNotExist) holds when nothing was.
	Load() (map[string]Grant, error)
	Save(map[string]Grant) error
}

// File is a Checkpoint in a file.
type File string

var _ Checkpoint = File("")

type checkpoint struct {
	Version int              `json:"version"`
	Grants  map[string]grant `json:"grants"`
}

type grant struct {
	Class string `json:"class"`
	CPUs  string `json:"cpuset"`
}

// Load reads the file. An unknown class or version or a malformed set is an error: then it is safer to know nothing.
func (f File) Load() (map[string]Grant, error) {
	b, err := os.ReadFile(string(f))
	if err != nil {
		return nil, err
	}
	var c checkpoint
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", f, err)
	}
	if c.Version != 1 {
		return nil, fmt.Errorf("checkpoint %s has version %d, want 1", f, c.Version)
	}
	out := make(map[string]Grant, len(c.Grants))
	for uid, g := range c.Grants {
		class, ok := qos.ParseClass(g.Class)
		if !ok || class != qos.LSE && class != qos.LSR {
			return nil, fmt.Errorf("checkpoint %s: class of %s is %q, want LSE or LSR", f, uid, g.Class)
		}
		if _, err := cpuset.ParseIDs(g.CPUs); err != nil {
			return nil, fmt.Errorf("checkpoint %s: cpuset of %s: %w", f, uid, err)
		}
		out[uid] = Grant{class, g.CPUs}
	}
	return out, nil
}

// Save replaces the file.
func (f File) Save(grants map[string]Grant) error {
	c := checkpoint{Version: 1, Grants: make(map[string]grant, len(grants))}
	for uid, g := range grants {
		c.Grants[uid] = grant{g.Class.String(), g.CPUs}
	}
	return statedir.Dir(filepath.Dir(string(f))).Save(filepath.Base(string(f)), c)
}

// loadGrants loads the checkpoint once. Without one the grants are derived from the tree.
func (e *Engine) loadGrants() {
	if e.grants != nil {
		return
	}
	e.grants = map[string]Grant{}
	if e.o.Checkpoint == nil {
		return
	}
	if grants, err := e.o.Checkpoint.Load(); err == nil {
		e.grants, e.recalled = grants, true
	} else if !errors.Is(err, fs.ErrNotExist) {
		e.record(Record{Kind: CheckpointLost, Err: err})
	}
}

// saveGrant saves what a pod is given, before it runs there.
func (e *Engine) saveGrant(uid string, g Grant) error {
	old, had := e.grants[uid]
	if had && old == g {
		return nil
	}
	if e.grants[uid] = g; e.o.Checkpoint == nil {
		return nil
	}
	if err := e.o.Checkpoint.Save(e.grants); err != nil {
		if delete(e.grants, uid); had {
			e.grants[uid] = old
		}
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}

// dropGrants drops dead pods. A save that fails is repeated with the next one: a dead pod in the checkpoint has no
// effect.
func (e *Engine) dropGrants(dead []string) {
	had := len(e.grants)
	for _, uid := range dead {
		delete(e.grants, uid)
	}
	if len(e.grants) < had && e.o.Checkpoint != nil {
		_ = e.o.Checkpoint.Save(e.grants)
	}
}

// grantOf returns what the pod of an item is granted: its whole allocation, with CPUs that are offline, as the pod has
// them again once they are back. An allocation that has changed since the pass looked is not granted. The caller holds
// turn.
func (e *Engine) grantOf(it *item) Grant {
	class := qos.LSE
	if it.role == qos.ExclusiveWithBE {
		class = qos.LSR
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pods[it.uid]
	if p == nil || p.kept {
		return Grant{class, e.grants[it.uid].CPUs}
	}
	if granted, changed := e.changedGrant(e.machine, p); changed {
		return Grant{class, granted}
	}
	return Grant{class, p.Entry.CPUList}
}

// keepGrants keeps running pods on the CPUs that they were granted when their allocation changes, as happens when a
// user edits the pods' annotations: in the account too, until their processes have ended or the allocation is the
// granted one again.
func (e *Engine) keepGrants(m *topo.Machine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(e.pods)) {
		p := e.pods[uid]
		if p.orphan != known || !p.Entry.Role.Binds() {
			continue
		}
		granted, changed := e.changedGrant(m, p)
		switch {
		case changed:
			held := p.Entry
			held.CPUList = granted
			e.account.Put(held)
			if !p.kept && !p.gone {
				e.outbox = append(e.outbox, Record{
					Kind: AllocationRefused, UID: uid, Namespace: p.Entry.Namespace, Name: p.Entry.Name,
					Group: p.Cgroup, Want: p.Entry.CPUList, Got: granted,
				})
			}
			p.kept = true // of a deleted pod too: grantOf must not record the changed allocation
		case p.kept && !p.gone:
			p.kept = false
			e.account.Put(p.Entry)
		}
	}
}

// changedGrant returns what a running pod was granted, and whether its allocation says something else by now. The
// caller holds turn and mu.
func (e *Engine) changedGrant(m *topo.Machine, p *pod) (granted string, yes bool) {
	g, ok := e.grants[p.Entry.UID]
	if !ok || g.CPUs == "" || g.CPUs == p.Entry.CPUList {
		return "", false
	}
	for _, l := range e.leaves {
		if l.uid == p.Entry.UID && !l.kernel.vanished && (l.phase == started || l.kernel.populated) {
			return g.CPUs, onlineCPUs(m, p.Entry.CPUList) != onlineCPUs(m, g.CPUs)
		}
	}
	return "", false
}

// onlineCPUs returns the CPUs of a list that the machine has and that are online; none when it cannot be read.
func onlineCPUs(m *topo.Machine, list string) cpuset.Set {
	set, _, err := m.ParseList(list)
	if err != nil {
		return cpuset.Set{}
	}
	return set.Intersect(m.Online())
}

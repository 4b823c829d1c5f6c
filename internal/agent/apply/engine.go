package apply

import (
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Options are what an Engine needs.
type Options struct {
	Cgroup Cgroup
	// Roots are the groups below which pods live; default "kubepods".
	Roots []string
	// Checkpoint remembers who has exclusive CPUs. Without one, a group that nobody knows after a restart is held like an
	// exclusive pod's unless a process of the shared pool runs on its CPUs.
	Checkpoint Checkpoint
	// Report takes what an operator or the pod's owner should hear. It is called without a lock held, and must not block.
	// nil drops the records.
	Report func(Record)
	// Timed hears how long each pass over the tree took, but for those of Start. It is called like Report; nil hears nothing.
	Timed func(time.Duration)
	// Moved hears which groups a pass gave another set, so that who else writes them can be told. Later passes have higher
	// numbers, and may be heard of before earlier ones. It is called like Report; nil hears nothing.
	Moved func(pass uint64, sets []Moved)
	// Resync is the time between two comparisons of the whole tree with the table; default 30 s.
	Resync time.Duration
	// Clock is the real one when nil.
	Clock clock.WithTicker
	// KubeletKeepsMemory and AllowUnallocatedLSR are those of desired.Input. The former is that of the beginning: Engine's
	// method of that name changes it, under its mutex.
	KubeletKeepsMemory, AllowUnallocatedLSR bool
}

// Engine keeps the cgroup tree of one machine equal to the desired table. All methods are safe for concurrent use.
//
// Nothing is written before SetFacts has named a machine and Prune has completed the list of pods: until then a group
// that looks unknown may belong to a pod that just was not told yet.
type Engine struct {
	o     Options
	dirty chan struct{} // holds one token while something is to do

	// turn is held by the one that works on the tree, across its reads and writes: the order of writes is the safety.
	// It is taken before mu. Fields below it, and leaf.kernel, belong to its holder.
	turn   sync.Mutex
	outbox []Record
	passes uint64
	moved  map[string]string // group to set: what was written in this turn
	faults map[file]*fault
	// plain holds the values known to stand in files other than cpuset.cpus, stale those of before the last Verify.
	plain, stale map[file]string
	surveyed     bool             // the tree was read at least once
	machine      *topo.Machine    // of the last pass: what is known of the leaves is in its indices
	grants       map[string]Grant // as in the checkpoint; nil before it was read
	recalled     bool             // grants began as what an earlier agent saved

	mu       sync.Mutex // guards the fields below; never held across a call to the tree
	account  *ledger.Ledger
	pods     map[string]*pod
	leaves   map[string]*leaf // by path
	complete bool
	recheck  bool            // the tree is to be read anew
	visits   map[string]bool // UIDs of pods whose groups are to be looked for anew
	loose    map[*leaf]bool  // as of the last plan, see findLoose
}

// Moved is a group that the Engine gave another set of CPUs.
type Moved struct{ Group, CPUs string }

// file names one file of the tree.
type file struct{ group, name string }

// pod is what the Engine knows of one pod.
type pod struct {
	desired.Pod           // Leaves stays empty: they are kept in Engine.leaves
	gone        bool      // not in the API any more, or ended; kept while a process lives
	orphan      orphanage // found in the tree, never in the API
	refused     string    // why a change of its allocation was refused; "" when none is
	introduced  bool      // the runtime told of it, the API has not
}

// orphanage tells how sure the Engine is about a pod that it knows from the tree alone.
type orphanage uint8

const (
	known  orphanage = iota // from the API
	found                   // not judged yet
	judged                  // its entry in the account says what its groups show
)

// phase is the life of a container as the hooks tell it.
type phase uint8

const (
	created phase = iota
	started
	stopped
)

// leaf is the group of one container.
type leaf struct {
	path, uid, container string
	phase                phase
	kernel               kernelState
}

// kernelState is what was last read of a group.
type kernelState struct {
	known           bool
	cpus, effective cpuset.Set
	// populated was seen at the last look; lived at any look.
	populated, lived bool
	vanished         bool
	// stranded: an exclusive pod's leaf without CPUs of its own, put on the shared pool while its processes live.
	stranded bool
	// strays are processes of the leaf that a v1 kernel moved to the group above.
	strays []string
	// drifted: a stranger changed the value, and the repair is still to be made.
	drifted bool
	// stuckOn is the group whose CPUs the leaf was last said to wait for; "" while it waits for none.
	stuckOn string
}

// New returns an Engine that knows nothing yet.
func New(o Options) *Engine {
	if len(o.Roots) == 0 {
		o.Roots = []string{"kubepods"}
	}
	if o.Resync <= 0 {
		o.Resync = 30 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Report == nil {
		o.Report = func(Record) {}
	}
	if o.Moved == nil {
		o.Moved = func(uint64, []Moved) {}
	}
	if o.Timed == nil {
		o.Timed = func(time.Duration) {}
	}
	return &Engine{
		o:       o,
		dirty:   make(chan struct{}, 1),
		faults:  map[file]*fault{},
		plain:   map[file]string{},
		stale:   map[file]string{},
		moved:   map[string]string{},
		visits:  map[string]bool{},
		account: ledger.New(ledger.Facts{}),
		pods:    map[string]*pod{},
		leaves:  map[string]*leaf{},
	}
}

// SetFacts replaces what is known of the machine.
func (e *Engine) SetFacts(f ledger.Facts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.account.SetFacts(f)
	e.wake()
}

// Update tells of a pod of this node, new or changed. Its Leaves are ignored: the Engine finds them by itself.
func (e *Engine) Update(p desired.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.Leaves = nil
	old := e.pods[p.Entry.UID]
	if old != nil && p.Cgroup == "" {
		p.Cgroup = old.Cgroup
	}
	if old != nil && !old.gone && old.orphan == known && reflect.DeepEqual(old.Pod, p) {
		old.introduced = false
		return
	}
	next := &pod{Pod: p}
	if old != nil {
		next.refused = old.refused
	}
	e.pods[p.Entry.UID] = next
	e.account.Put(p.Entry)
	e.wake()
}

// Introduce tells of a pod that the runtime has and that the API may not have told of yet, or never will. What the API
// told, or tells later, counts more. Withdraw ends it.
func (e *Engine) Introduce(p desired.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.Leaves = nil
	old := e.pods[p.Entry.UID]
	if old != nil && old.orphan == known && !(old.introduced && old.gone) {
		if old.Cgroup == "" {
			old.Cgroup = p.Cgroup // the API does not tell
		}
		return
	}
	if old != nil && p.Cgroup == "" {
		p.Cgroup = old.Cgroup
	}
	e.pods[p.Entry.UID] = &pod{Pod: p, introduced: true}
	e.account.Put(p.Entry)
	e.wake()
}

// Withdraw is Delete for a pod that only the runtime told of.
func (e *Engine) Withdraw(uid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pods[uid]; p != nil && p.introduced && !p.gone {
		p.gone = true
		e.wake()
	}
}

// Uses reports whether a pod that the Engine knows uses something of Tenon.
func (e *Engine) Uses(uid string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pods[uid]
	return p != nil && p.Uses
}

// Binds reports whether a pod that the Engine knows has CPUs of its own.
func (e *Engine) Binds(uid string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pods[uid]
	return p != nil && p.Entry.Role.Binds()
}

// Ready reports whether the machine and the list of pods are known.
func (e *Engine) Ready() bool {
	_, ready := e.ready()
	return ready
}

// Recheck asks for a look at the whole tree in the next pass.
func (e *Engine) Recheck() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recheck = true
	e.wake()
}

// Visit asks for a look at the groups of a pod that has a new sandbox.
func (e *Engine) Visit(uid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.visits[uid] = true
	e.wake()
}

// Excludes reports whether containers of the pod other must not run on the CPUs of the pod uid.
func (e *Engine) Excludes(uid, other string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, o := e.pods[uid], e.pods[other]
	return uid != other && p != nil && p.Entry.Role.Binds() && (o == nil || !maySee(p.Entry.Role, o.Entry.Role))
}

// Delete tells that a pod is gone from the API or has ended. What it holds stays held while a process lives in its
// groups. Unknown pods are ignored.
func (e *Engine) Delete(uid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pods[uid]; p != nil && !p.gone {
		p.gone = true
		e.wake()
	}
}

// Prune tells that the live pods of this node are exactly uids, all of them told by Update before: every other pod is
// deleted. From the first Prune on the Engine may write.
func (e *Engine) Prune(uids iter.Seq[string]) {
	live := map[string]bool{}
	for uid := range uids {
		live[uid] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, p := range e.pods {
		if !live[uid] && p.orphan == known && !p.introduced {
			p.gone = true
		}
	}
	e.complete = true
	e.wake()
}

// View returns the account: the pools are what groups may use now, with the CPUs of pods that have not died yet held
// back.
func (e *Engine) View() *ledger.View {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.account.View()
}

// Table returns the desired table of this moment.
func (e *Engine) Table() desired.Table {
	e.mu.Lock()
	in, ready := e.input()
	e.mu.Unlock()
	if !ready {
		return desired.Table{}
	}
	return desired.Compute(in)
}

// input returns what the table is computed from; false while the machine is unknown. The caller holds mu.
func (e *Engine) input() (desired.Input, bool) {
	in := desired.Input{
		View: e.account.View(), Dialect: e.o.Cgroup.Dialect(),
		KubeletKeepsMemory: e.o.KubeletKeepsMemory, AllowUnallocatedLSR: e.o.AllowUnallocatedLSR,
	}
	if in.View.Machine() == nil {
		return in, false
	}
	byPod := make(map[string][]desired.Leaf, len(e.pods))
	for _, l := range e.leaves {
		byPod[l.uid] = append(byPod[l.uid], desired.Leaf{Path: l.path, Container: l.container, Loose: e.loose[l]})
	}
	in.Pods = make([]desired.Pod, 0, len(e.pods))
	for uid, p := range e.pods {
		d := p.Pod
		d.Leaves = byPod[uid]
		if len(d.Leaves) == 0 {
			continue
		}
		in.Pods = append(in.Pods, d)
	}
	return in, true
}

// findLoose returns the leaves of pods that the kubelet pinned which are none of what it pinned: sandboxes, which it gives no
// CPUs, and containers that it lets share. Only a runtime that tells of containers tells them from containers to which the
// kubelet is about to give their CPUs; without one nothing is loose, and what such groups can run on is not granted to
// anybody. Once the kubelet pins no more it gives no container CPUs that is to start. The caller holds turn and mu.
func (e *Engine) findLoose(v *ledger.View) map[*leaf]bool {
	pins := desired.Pinned(v)
	if len(pins) == 0 {
		return nil
	}
	told := map[string]bool{} // pods of which the runtime tells
	for _, l := range e.leaves {
		told[l.uid] = told[l.uid] || l.container != ""
	}
	out := map[*leaf]bool{}
	for _, l := range e.leaves {
		cpus, pinned := pins[l.uid]
		if pinned && l.phase == created && l.container != "" && !v.Facts().Kubelet.Static {
			out[l] = true
			continue
		}
		if !pinned || !told[l.uid] || l.phase != started || !l.kernel.known || !l.kernel.populated {
			continue
		}
		if l.container == "" || l.kernel.cpus.IsEmpty() || !l.kernel.cpus.SubsetOf(&cpus) {
			out[l] = true
		}
	}
	return out
}

// wake marks that there is something to do.
func (e *Engine) wake() {
	select {
	case e.dirty <- struct{}{}:
	default:
	}
}

// inTurn runs f as the one that works on the tree, then delivers what f reported.
func (e *Engine) inTurn(f func() error) error {
	e.turn.Lock()
	err := f()
	out := e.outbox
	e.outbox = nil
	e.passes++
	pass := e.passes
	sets := make([]Moved, 0, len(e.moved))
	for group, cpus := range e.moved {
		sets = append(sets, Moved{group, cpus})
	}
	clear(e.moved)
	e.turn.Unlock()
	for _, r := range out {
		e.o.Report(r)
	}
	if len(sets) > 0 {
		e.o.Moved(pass, sets)
	}
	return err
}

// ErrNotReady is returned while the machine or the list of pods is not known.
var ErrNotReady = errors.New("AgentNotReady")

// depth is the number of groups above path.
func depth(path string) int { return strings.Count(path, "/") }

// sortedLeaves returns the leaves by path. The caller holds mu.
func (e *Engine) sortedLeaves() []*leaf {
	out := make([]*leaf, 0, len(e.leaves))
	for _, l := range e.leaves {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *leaf) int { return strings.Compare(a.path, b.path) })
	return out
}

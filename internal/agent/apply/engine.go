package apply

import (
	"context"
	"errors"
	"iter"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Options are what an Engine needs.
type Options struct {
	Cgroup Cgroup
	// Roots are the groups below which pods live; default "kubepods".
	Roots []string
	// Checkpoint remembers who has exclusive CPUs. Without one, a group of an unknown pod is held after a restart like
	// an exclusive pod's unless a process of the shared pool runs on its CPUs.
	Checkpoint Checkpoint
	// Dir is the folder of the agent, in which the Engine records which pods have a burst; "" for nowhere.
	Dir statedir.Dir
	// Reports gets what the engine reports; nil drops it.
	Reports Reports
	// Resync is the time between two comparisons of the whole tree with the table; default 30 s.
	Resync time.Duration
	// Clock is the real one when nil.
	Clock clock.WithTicker
	// KubeletKeepsMemory and AllowUnallocatedLSR are those of desired.Input. The former is that of the beginning:
	// Engine's method of that name changes it, under its mutex.
	KubeletKeepsMemory, AllowUnallocatedLSR bool
}

// Reports takes what an Engine reports. Its methods are called without a lock held, and must not block.
type Reports interface {
	// Record takes what an operator or the pod's owner should know.
	Record(Record)
	// Timed takes the duration of each pass over the tree, except those of Start.
	Timed(time.Duration)
}

// Writer is another writer of groups, as a container runtime is.
type Writer interface {
	// SetsChanged takes the sets that a pass gave to groups, by group. Later passes have higher numbers, and may be
	// reported before earlier ones. It is called without a lock held, and must not block.
	SetsChanged(pass uint64, sets map[string]string)
}

// Engine keeps the cgroup tree of one machine equal to the desired table. All methods are safe for concurrent use.
//
// Nothing is written before SetFacts has named a machine and Prune has completed the list of pods: until then a group
// that looks unknown may belong to a pod that was not added yet. Begin lifts the second condition.
type Engine struct {
	o     Options
	other Writer        // nil where no other program writes
	dirty chan struct{} // holds one token while something is to do
	// exclusiveMoved holds one token after Exclusive has come to have another answer.
	exclusiveMoved chan struct{}

	// turn is a lock: the goroutine that works on the tree holds it across its reads and writes, as the order of writes
	// makes the tree safe. It is taken before mu. Its holder owns the fields down to mu, and leaf.kernel.
	turn   chan struct{}     // has room for one token, that of the holder
	outbox []Record          // to be reported at the end of the turn
	passes uint64            // passes that have ended
	moved  map[string]string // by group: the sets that were written in this turn
	faults map[file]*fault   // files whose last write failed, until one succeeds
	// plain holds the known values of files other than cpuset.cpus, stale those of before the last Verify: a file that
	// had its wanted value then and has another one now was changed by another program.
	plain, stale map[file]string
	surveyed     bool             // the tree was read at least once
	machine      *topo.Machine    // of the last pass: what is known of the leaves is in its indices
	grants       map[string]Grant // as in the checkpoint; nil before it was read
	recalled     bool             // grants began as what an earlier agent saved

	mu       sync.Mutex          // guards the fields below; never held across a call to the tree
	account  *ledger.Ledger      // the machine, and what the pods of it hold
	pods     map[string]*pod     // by UID
	leaves   map[string]*leaf    // by path
	complete bool                // Prune has completed the list of pods
	begun    bool                // Begin was called, and the list of pods is not complete yet
	be       desired.Limit       // of best-effort pods
	burst    *slo.CPUBurstConfig // of the node; nil while it is not known
	noBurst  bool                // the kernel has no files for it
	bursted  map[string]bool     // UIDs of pods whose groups may have a burst; replaced as a whole once it was loaded
	beHeld   bool                // best-effort pods do not grow: their limit is not known yet
	kubelet  *desired.Kubelet    // what groups are to be without the agent; nil while the agent keeps them
	recheck  bool                // the tree is to be read anew
	visits   map[string]bool     // UIDs of pods whose groups are to be looked for anew
	unpinned map[*leaf]bool      // as of the last plan, see findUnpinned
	// exclusive is the answer of Exclusive as of the last pass with a complete list of pods; nil before.
	exclusive []Exclusive
}

// file names one file of the tree.
type file struct{ group, name string }

// pod is what the Engine knows of one pod.
type pod struct {
	desired.Pod           // Leaves stays empty: they are kept in Engine.leaves
	gone        bool      // not in the API any more, or ended; kept while a process lives
	orphan      orphanage // found in the tree, never in the API
	kept        bool      // its allocation changed while it runs: it keeps what it was granted
	introduced  bool      // known from the runtime, not from the API
}

// orphanage is how far a pod that is known only from the tree was classified.
type orphanage uint8

const (
	known      orphanage = iota // from the API
	found                       // not classified yet
	classified                  // its entry in the account says what its groups show
)

// phase is the state of a container as the hooks report it.
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

// setGroup is the group whose set is written for the leaf.
func (l *leaf) setGroup() string {
	if l.kernel.sealed {
		return path.Dir(l.path)
	}
	return l.path
}

// kernelState is what was last read of a group. The holder of Engine.turn owns it.
type kernelState struct {
	// known reports that cpus and effective, the content of the two files, were read.
	known           bool
	cpus, effective cpuset.Set
	// populated reports that a process ran in the group when it was read last, lived that one ran at any reading.
	populated, lived bool
	// vanished reports that the group did not exist when it was read last.
	vanished bool
	// sealed reports that the kernel takes no set of the group itself, which is the agent's own and the root of its
	// cgroup namespace (mount option nsdelegate, as systemd has it). cpus is then the set of the pod's group, effective
	// still that of the leaf.
	sealed bool
	// stranded reports that the leaf of an exclusive pod has no CPUs of its own, and was put on the shared pool until
	// its processes end.
	stranded bool
	// displaced are processes of the leaf that a v1 kernel moved to the group above.
	displaced []string
	// drifted reports that another program changed the value, and that the repair is still to be made.
	drifted bool
	// stuckOn is the group of which reportStuck last reported that the leaf waits for its CPUs; "" if it waits for
	// none.
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
	return &Engine{
		o:     o,
		dirty: make(chan struct{}, 1),

		exclusiveMoved: make(chan struct{}, 1),

		turn:    make(chan struct{}, 1),
		faults:  map[file]*fault{},
		plain:   map[file]string{},
		stale:   map[file]string{},
		moved:   map[string]string{},
		visits:  map[string]bool{},
		account: ledger.New(ledger.Facts{}),
		pods:    map[string]*pod{},
		leaves:  map[string]*leaf{},
		bursted: map[string]bool{},
	}
}

// Attach makes w hear of the sets that passes give to groups. It is called before the engine works.
func (e *Engine) Attach(w Writer) { e.other = w }

// change changes what the Engine knows, and asks for a pass.
func (e *Engine) change(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	e.wake()
}

// SetFacts replaces what is known of the machine.
func (e *Engine) SetFacts(f ledger.Facts) { e.change(func() { e.account.SetFacts(f) }) }

// Update adds or changes a pod of this node. Its Leaves are ignored: the Engine finds them by itself.
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
	e.put(&pod{Pod: p, kept: old != nil && old.kept && old.Entry.CPUList == p.Entry.CPUList})
}

// put replaces a pod. The caller holds mu.
func (e *Engine) put(p *pod) {
	e.pods[p.Entry.UID] = p
	e.account.Put(p.Entry)
	e.wake()
}

// Introduce adds a pod that the runtime has and that the API may not have sent yet, or never will. The state from the
// API takes precedence. Withdraw ends it.
func (e *Engine) Introduce(p desired.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.Leaves = nil
	old := e.pods[p.Entry.UID]
	if old != nil && old.orphan == known && !(old.introduced && old.gone) {
		if old.Cgroup == "" {
			old.Cgroup = p.Cgroup // the API does not have it
		}
		return
	}
	if old != nil && p.Cgroup == "" {
		p.Cgroup = old.Cgroup
	}
	e.put(&pod{Pod: p, introduced: true})
}

// Withdraw is Delete for a pod that is known only from the runtime.
func (e *Engine) Withdraw(uid string) { e.markGone(uid, func(p *pod) bool { return p.introduced }) }

// Uses reports whether a pod that the Engine knows uses something of Tenon.
func (e *Engine) Uses(uid string) bool {
	return e.testPod(uid, func(p *pod) bool { return p.Uses })
}

// Devices returns the types of device that a pod requests, as far as the API has sent it.
func (e *Engine) Devices(uid string) (types []annotation.DeviceType) {
	e.testPod(uid, func(p *pod) bool { types = p.Devices; return true })
	return types
}

// Groups writes the own group of each pod that has one into a map, by UID: of orphans too.
func (e *Engine) Groups(into map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, p := range e.pods {
		if p.Cgroup != "" {
			into[uid] = p.Cgroup
		}
	}
}

// Containers calls f with the UID of a pod and the group of a container of it, for all of them. f must return at once.
func (e *Engine) Containers(f func(uid, group string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for at, l := range e.leaves {
		f(l.uid, at)
	}
}

// Class returns the class of a pod that the Engine knows; qos.None for any other.
func (e *Engine) Class(uid string) (class qos.Class) {
	e.testPod(uid, func(p *pod) bool { class = p.Entry.Class; return true })
	return class
}

// ClassGroup returns the group of the pods of a QoS class of Kubernetes, such as "burstable"; "" is for all pods. Where
// no such group exists yet, it is that of the cgroupfs driver.
func (e *Engine) ClassGroup(class string) string {
	root := e.o.Roots[0]
	for _, r := range e.o.Roots {
		if _, err := e.o.Cgroup.Children(r); err == nil {
			root = r
			break
		}
	}
	name, isSlice := strings.CutSuffix(root, ".slice")
	switch {
	case class == "":
		return root
	case isSlice:
		return path.Join(root, path.Base(name)+"-"+class+".slice")
	}
	return path.Join(root, class)
}

// Binds reports whether a pod that the Engine knows has CPUs of its own.
func (e *Engine) Binds(uid string) bool {
	return e.testPod(uid, func(p *pod) bool { return p.Entry.Role.Binds() })
}

// IsBestEffort reports whether a pod that the Engine knows runs on the BE pool.
func (e *Engine) IsBestEffort(uid string) bool {
	return e.testPod(uid, func(p *pod) bool { return p.Entry.Role == qos.BEPool })
}

func (e *Engine) testPod(uid string, test func(*pod) bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pods[uid]
	return p != nil && test(p)
}

// Ready reports whether the machine and the list of pods are known.
func (e *Engine) Ready() bool {
	_, ready := e.ready()
	return ready
}

// Recheck asks for a look at the whole tree in the next pass.
func (e *Engine) Recheck() { e.change(func() { e.recheck = true }) }

// anyPod stands for a UID in visits where the new group may be any pod's.
const anyPod = ""

// Scan asks for a look for new groups, of whichever pods.
func (e *Engine) Scan() { e.Visit(anyPod) }

// Visit asks for a look for new groups of a pod.
func (e *Engine) Visit(uid string) { e.change(func() { e.visits[uid] = true }) }

// Excludes reports whether containers of the pod other must not run on the CPUs of the pod uid.
func (e *Engine) Excludes(uid, other string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, o := e.pods[uid], e.pods[other]
	return uid != other && p != nil && p.Entry.Role.Binds() && (o == nil || !maySee(p.Entry.Role, o.Entry.Role))
}

// Delete removes a pod that is gone from the API or has ended. Its CPUs are held while a process lives in its groups.
// Unknown pods are ignored.
func (e *Engine) Delete(uid string) { e.markGone(uid, func(*pod) bool { return true }) }

func (e *Engine) markGone(uid string, ends func(*pod) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pods[uid]; p != nil && !p.gone && ends(p) {
		p.gone = true
		e.wake()
	}
}

// Prune deletes the pods that are not in uids, the list of the node's live pods, all of which were passed to Update. It
// ranges over uids once it has noted what the Engine knows: a list that is made then lacks no pod that it deletes. From
// the first Prune on the Engine may write.
func (e *Engine) Prune(uids iter.Seq[string]) {
	e.mu.Lock()
	listed := maps.Clone(e.pods)
	maps.DeleteFunc(listed, func(_ string, p *pod) bool { return p.orphan != known || p.introduced })
	e.mu.Unlock()
	for uid := range uids {
		delete(listed, uid)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, p := range listed {
		if e.pods[uid] == p { // not replaced meanwhile
			p.gone = true
		}
	}
	e.complete = true
	if e.begun {
		e.begun = false
		for _, p := range e.pods {
			if p.orphan == classified {
				p.orphan = found // to be reported, now that it is one
			}
		}
	}
	e.wake()
}

// Begin lets the Engine work before the list of pods is complete: for the pods that the runtime reports, and without
// the CPUs that the checkpoint names. Groups of other pods are left as they are until Prune. Begin has no effect after
// Prune.
func (e *Engine) Begin() { e.change(func() { e.begun = !e.complete }) }

// KubeletKeepsMemory replaces the option of that name: a kubelet may be restarted with another memory manager.
func (e *Engine) KubeletKeepsMemory(keeps bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.o.KubeletKeepsMemory != keeps {
		e.o.KubeletKeepsMemory = keeps
		e.wake()
	}
}

// ReturnGroups gives all groups the values that the kubelet alone would give them, from the next pass on; nil ends
// that. No pod has CPUs of its own meanwhile.
func (e *Engine) ReturnGroups(to *desired.Kubelet) { e.change(func() { e.kubelet = to }) }

// HoldBE lets the groups of best-effort pods keep at most the CPUs that they have until LimitBE is called: an agent
// that begins does not know yet whether an earlier one suppressed them.
func (e *Engine) HoldBE() { e.change(func() { e.beHeld = true }) }

// LimitBE bounds what best-effort pods may use, from the next pass on.
func (e *Engine) LimitBE(l desired.Limit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.beHeld || e.be != l {
		e.be, e.beHeld = l, false
		e.wake()
	}
}

// QuotaReachesBE reports whether the group of Kubernetes' BestEffort pods contains all best-effort pods that run, and
// no other pod: only then does its quota bound those pods alone.
func (e *Engine) QuotaReachesBE() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.pods {
		if p.Cgroup != "" && desired.IsBestEffort(p.Cgroup) != (p.Entry.Role == qos.BEPool) {
			return false
		}
	}
	return true
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
	t, _ := e.compute()
	return t
}

// compute returns the table and its machine; nil while that is unknown.
func (e *Engine) compute() (desired.Table, *topo.Machine) {
	e.mu.Lock()
	in, ready := e.input()
	e.mu.Unlock()
	if !ready {
		return desired.Table{}, nil
	}
	return desired.Compute(in), in.View.Machine()
}

// input returns what the table is computed from; false while the machine is unknown. The caller holds mu.
func (e *Engine) input() (desired.Input, bool) {
	in := e.inputOf()
	if in.View.Machine() == nil {
		return in, false
	}
	byPod := make(map[string][]desired.Leaf, len(e.pods))
	for _, l := range e.leaves {
		byPod[l.uid] = append(byPod[l.uid], desired.Leaf{Path: l.path, Container: l.container, Unpinned: e.unpinned[l]})
	}
	in.Pods = make([]desired.Pod, 0, len(e.pods))
	for uid, p := range e.pods {
		d := p.Pod
		d.Leaves, d.Bursted = byPod[uid], e.bursted[uid]
		if len(d.Leaves) == 0 || e.begun && p.orphan != known {
			continue
		}
		in.Pods = append(in.Pods, d)
	}
	return in, true
}

// inputOf is the input for a table of some pods. The caller holds mu.
func (e *Engine) inputOf(pods ...desired.Pod) desired.Input {
	return desired.Input{
		View: e.account.View(), Dialect: e.o.Cgroup.Dialect(), Pods: pods,
		KubeletKeepsMemory: e.o.KubeletKeepsMemory, AllowUnallocatedLSR: e.o.AllowUnallocatedLSR,
		Kubelet: e.kubelet, BE: e.be, Burst: e.burst, NoBurst: e.noBurst,
	}
}

// findUnpinned returns the leaves of pinned pods that the kubelet did not pin: sandboxes, to which it assigns no CPUs,
// and containers that share CPUs. Only a runtime that reports containers distinguishes them from containers to which
// the kubelet is about to assign CPUs; without one no leaf is unpinned, and the CPUs that such groups can run on are
// not granted to other pods. Once the kubelet pins no more it assigns no CPUs to containers that start later. The
// caller holds turn and mu.
func (e *Engine) findUnpinned(v *ledger.View) map[*leaf]bool {
	pins := desired.Pinned(v)
	if len(pins) == 0 {
		return nil
	}
	reported := map[string]bool{} // pods of which the runtime reports containers
	for _, l := range e.leaves {
		reported[l.uid] = reported[l.uid] || l.container != ""
	}
	out := map[*leaf]bool{}
	for _, l := range e.leaves {
		cpus, pinned := pins[l.uid]
		if pinned && l.phase == created && l.container != "" && !v.Facts().Model.Config.CPU.Static {
			out[l] = true
			continue
		}
		if !pinned || !reported[l.uid] || l.phase != started || !l.kernel.known || !l.kernel.populated {
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

// inTurn runs f while it holds turn, then delivers what f reported. It returns the error of ctx if that ends before f
// could begin.
func (e *Engine) inTurn(ctx context.Context, f func() error) error {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := f()
	out := e.outbox
	e.outbox = nil
	e.passes++
	pass := e.passes
	sets := e.moved
	e.moved = map[string]string{}
	<-e.turn
	if e.o.Reports != nil {
		for _, r := range out {
			e.o.Reports.Record(r)
		}
	}
	if len(sets) > 0 && e.other != nil {
		e.other.SetsChanged(pass, sets)
	}
	return err
}

// ErrNotReady is returned while the machine or the list of pods is not known.
var ErrNotReady = errors.New("AgentNotReady")

// depth is the number of groups above path.
func depth(path string) int { return strings.Count(path, "/") }

// sortedLeaves returns the leaves by path. The caller holds mu.
func (e *Engine) sortedLeaves() []*leaf {
	return slices.SortedFunc(maps.Values(e.leaves), func(a, b *leaf) int { return strings.Compare(a.path, b.path) })
}

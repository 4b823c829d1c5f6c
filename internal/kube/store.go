package kube

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Store keeps the ledger of every node. All methods may be called from any goroutine.
type Store struct {
	nodes sync.Map // node name → *record
	// holders maps the UID of each pod that has an entry to the name of its node: the object of a deletion may be older
	// than the pod's binding and name no node.
	holders sync.Map

	mu     sync.Mutex // guards args and sealed
	args   convert.Args
	sealed bool // Args has returned args, or Configure has set them: they do not change any more

	reading sync.Mutex    // guards known and frames
	known   convert.Known // keeps one value of equal machines, and of equal kubelets
	frames  ledger.Frames // keeps one value of what follows from equal facts

	// static counts nodes whose kubelet has a static CPU manager, constrained those whose topology policy confines pods
	// of the shared pool to NUMA nodes.
	static, constrained atomic.Int64
	// memory and devices count nodes whose kubelet is predicted and gives out memory of NUMA nodes, or devices.
	memory, devices atomic.Int64
	// inventories counts nodes with a usable Device object.
	inventories atomic.Int64

	kinds Kinds

	listener atomic.Pointer[Listener]          // nil before SetListener
	changed  atomic.Pointer[func(node string)] // nil before OnChange

	unknown *NodeView // the empty account that View returns for a node that no object names

	filling  atomic.Bool // from Fill until MarkSynced: see there
	syncOnce sync.Once
	synced   chan struct{}
}

// NewStore returns an empty store that reads nodes with the plugin's default arguments.
func NewStore() *Store {
	return &Store{
		args:    convert.DefaultArgs(),
		unknown: NewNodeView(ledger.New(noFacts()).View()),
		synced:  make(chan struct{}),
	}
}

// Configure sets the arguments that a node's facts depend on. There is one account per machine, whichever profile
// schedules onto it, so every caller must bring equal arguments, before the first object. Trust sets the
// schedulers.
func (s *Store) Configure(args convert.Args) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	args.Schedulers = s.args.Schedulers
	if s.sealed && args != s.args {
		return fmt.Errorf("all profiles must give the plugin NodeNUMAResource equal arguments: got %+v after %+v", args,
			s.args)
	}
	s.args, s.sealed = args, true
	return nil
}

// Trust ignores the labels and annotations of pods of other schedulers than these. It is called before Configure and
// the first object.
func (s *Store) Trust(schedulers *convert.Schedulers) { s.args.Schedulers = schedulers }

// OnChange sets the function that is called with each node whose account has changed, once View returns the new one.
// It replaces an earlier one. It is called outside of the store's locks and must not block.
func (s *Store) OnChange(f func(node string)) { s.changed.Store(&f) }

// Touch calls OnChange's function for a node whose account has not changed but must be evaluated again.
func (s *Store) Touch(node string) {
	if changed := s.changed.Load(); changed != nil {
		(*changed)(node)
	}
}

// notifyChange calls f, and OnChange's function where f has changed the account of the node.
func (s *Store) notifyChange(node string, r *record, f func()) {
	before := r.view.Load()
	f()
	if r.view.Load() != before {
		s.Touch(node)
	}
}

// Fill declares that MarkSynced follows once all objects have been put. Until then the facts of a node are read when
// both its Node and its topology are there, each read once in the place of twice; MarkSynced reads the others.
func (s *Store) Fill() { s.filling.Store(true) }

// MarkSynced declares that every object which existed at start has been put.
func (s *Store) MarkSynced() {
	s.syncOnce.Do(func() {
		// Whoever still reads true has its node in the map, which is read below.
		s.filling.Store(false)
		s.nodes.Range(func(name, _ any) bool {
			s.change(name.(string), func(r *record) {
				if r.unread {
					r.setFacts(s)
				}
			})
			return true
		})
		close(s.synced)
	})
}

// Synced is closed by MarkSynced. Before, views are incomplete and nothing may be decided on them.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// IsSynced reports whether MarkSynced was called.
func (s *Store) IsSynced() bool {
	select {
	case <-s.synced:
		return true
	default:
		return false
	}
}

// View returns the account of a node without a lock; an empty one without topology for an unknown node.
func (s *Store) View(node string) *ledger.View { return s.NodeView(node).View }

// NodeView returns View with the memory of verdicts on it.
func (s *Store) NodeView(node string) *NodeView {
	if r, ok := s.nodes.Load(node); ok {
		return r.(*record).view.Load()
	}
	return s.unknown
}

// Known returns the account of a node without taking a lock, nil when no object names the node.
func (s *Store) Known(node string) *ledger.View {
	if r, ok := s.nodes.Load(node); ok {
		return r.(*record).view.Load().View
	}
	return nil
}

// Nodes returns the names of the nodes that have a Node object, sorted.
func (s *Store) Nodes() []string {
	var names []string
	s.nodes.Range(func(name, r any) bool {
		if r.(*record).snapshot().Object != nil {
			names = append(names, name.(string))
		}
		return true
	})
	slices.Sort(names)
	return names
}

// Node is everything the Store knows of one node. The objects must not be changed.
type Node struct {
	Object   *corev1.Node                   // nil while only pods or a topology name the node
	Topology *v1alpha2.NodeResourceTopology // nil without; what the scheduler reads of it
	// Numatopology is nil without; View's facts tell whether it counts (Imported).
	Numatopology *nodeinfo.Numatopology
	Devices      *devicev1alpha1.Device // nil without
	View         *ledger.View
	Problems     []convert.Problem
}

// Node returns what is known of a node.
func (s *Store) Node(name string) (Node, bool) {
	r, ok := s.nodes.Load(name)
	if !ok {
		return Node{}, false
	}
	return r.(*record).snapshot(), true
}

// AnyStaticKubelet reports whether some node's kubelet pins CPUs itself. While none does, a pod that Tenon does not
// bind cannot be refused for the kubelet's sake.
func (s *Store) AnyStaticKubelet() bool { return s.static.Load() > 0 }

// AnyMemoryManager reports whether some node's kubelet gives Guaranteed pods memory of NUMA nodes.
func (s *Store) AnyMemoryManager() bool { return s.memory.Load() > 0 }

// AnyDevices reports whether some node's kubelet is known to hand out devices that it could refuse.
func (s *Store) AnyDevices() bool { return s.devices.Load() > 0 }

// AnyInventory reports whether some node has a usable Device object.
func (s *Store) AnyInventory() bool { return s.inventories.Load() > 0 }

// AnyConstrained reports whether the topology policy of some node whose agent writes cpusets is Restricted or
// SingleNUMANode. While none is, a pod that requests no topology policy is never constrained to NUMA nodes.
func (s *Store) AnyConstrained() bool { return s.constrained.Load() > 0 }

// Commit applies an offer. It returns ledger.ErrExpired when the account has moved since, or when the node is gone.
func (s *Store) Commit(node string, o ledger.Offer) error {
	err := s.apply(node, func(r *record) error { return r.ledger.Commit(o) })
	if err == nil {
		s.holders.Store(o.Entry.UID, node)
	}
	return err
}

// Amend replaces a committed offer by next, which differs from it in its prediction alone. Its errors are those of
// ledger.Amend; it returns ErrExpired when the node is gone.
func (s *Store) Amend(node string, committed, next ledger.Offer) error {
	return s.apply(node, func(r *record) error { return r.ledger.Amend(committed, next) })
}

func (s *Store) apply(node string, f func(*record) error) error {
	r, ok := s.nodes.Load(node)
	if !ok {
		return fmt.Errorf("node %s is gone: %w", node, ledger.ErrExpired)
	}
	err := ledger.ErrExpired
	s.notifyChange(node, r.(*record), func() { r.(*record).update(func(r *record) { err = f(r) }) })
	return err
}

// Revert takes back a committed offer, if it is still held and the API server has not confirmed it.
func (s *Store) Revert(node string, o ledger.Offer) {
	s.change(node, func(r *record) {
		r.ledger.Revert(o)
		if _, held := r.ledger.View().Entry(o.Entry.UID); !held {
			s.holders.CompareAndDelete(o.Entry.UID, node)
		}
	})
}

// PutNode records the Node object.
func (s *Store) PutNode(n *corev1.Node) {
	s.create(n.Name, func(r *record) { set(s, r, &r.sources.Node, n, sameNode) })
}

// Imagine returns the account that a node with these objects would have, without pods; topology and devices may be nil.
func (s *Store) Imagine(n *corev1.Node, topology *v1alpha2.NodeResourceTopology, devices *devicev1alpha1.Device,
) *ledger.View {
	apart := NewStore()
	apart.args = s.Args()
	apart.PutNode(n)
	if topology != nil {
		apart.PutTopology(topology)
	}
	if devices != nil {
		apart.PutDevice(devices)
	}
	return apart.View(n.Name)
}

// RemoveNode forgets the Node object. Its pods are kept until they are removed.
func (s *Store) RemoveNode(name string) {
	s.change(name, func(r *record) { set(s, r, &r.sources.Node, nil, sameNode) })
}

// PutTopology records the NodeResourceTopology of the node of the same name.
func (s *Store) PutTopology(t *v1alpha2.NodeResourceTopology) {
	var confirmed []tenancy.Confirmation
	s.create(t.Name, func(r *record) {
		before := r.ledger.View()
		set(s, r, &r.sources.Topology, t, SameTopology)
		confirmed = r.ledger.View().Tenancy().Confirmations(before.Tenancy())
	})
	if l := s.listener.Load(); l != nil && s.IsSynced() { // a former leader was notified of what was there before
		for _, c := range confirmed {
			l.Confirmed(t.Name, c)
		}
	}
}

// RemoveTopology forgets a NodeResourceTopology.
func (s *Store) RemoveTopology(name string) {
	s.change(name, func(r *record) { set(s, r, &r.sources.Topology, nil, SameTopology) })
}

// PutNumatopology records the Numatopology of the node of the same name.
func (s *Store) PutNumatopology(n *nodeinfo.Numatopology) {
	s.create(n.Name, func(r *record) { set(s, r, &r.sources.Numatopology, n, SameNumatopology) })
}

// RemoveNumatopology forgets a Numatopology.
func (s *Store) RemoveNumatopology(name string) {
	s.change(name, func(r *record) { set(s, r, &r.sources.Numatopology, nil, SameNumatopology) })
}

// PutDevice records the Device of the node of the same name.
func (s *Store) PutDevice(d *devicev1alpha1.Device) {
	s.create(d.Name, func(r *record) {
		if was := r.sources.Devices; was == nil || !SameDevice(was.Device, d) {
			r.setDevices(s, &convert.Devices{Device: d})
		}
	})
}

// RemoveDevice forgets a Device. Pods keep what they hold of its devices, so that they are not given twice when it is
// back.
func (s *Store) RemoveDevice(name string) {
	s.change(name, func(r *record) {
		if r.sources.Devices != nil {
			r.sources.Devices = nil
			r.setFacts(s)
		}
	})
}

// PutPod records a pod. A pod without node, or in a terminal phase, holds nothing; a terminating pod holds what it has
// until it is gone, and so does a pod whose resource-status or device-allocated was removed or damaged while it runs.
func (s *Store) PutPod(p *corev1.Pod) {
	if p.Spec.NodeName == "" {
		return
	}
	entry, concerns := convert.EntryUnder(s.Args(), p)
	if node, was, held := s.Holder(entry.UID); held && node == p.Spec.NodeName {
		entry = convert.Keeping(entry, was)
		concerns = concerns || entry.Equal(was) || entry.Devices != nil
	}
	if !concerns {
		s.RemovePod(p)
		return
	}
	if was, ok := s.holders.Swap(entry.UID, p.Spec.NodeName); ok && was != p.Spec.NodeName {
		s.change(was.(string), func(r *record) { r.ledger.Remove(entry.UID) })
	}
	s.create(p.Spec.NodeName, func(r *record) { r.ledger.Put(entry) })
}

// RemovePod forgets a pod, wherever it is held.
func (s *Store) RemovePod(p *corev1.Pod) {
	uid := string(p.UID)
	node, ok := s.holders.LoadAndDelete(uid)
	if !ok {
		return
	}
	var entry ledger.Entry
	held := false
	s.change(node.(string), func(r *record) {
		entry, held = r.ledger.View().Entry(uid)
		r.ledger.Remove(uid)
	})
	if l := s.listener.Load(); l != nil && held {
		l.Left(node.(string), entry)
	}
}

// create applies f to the record of a node, which it makes if there is none. A record that another goroutine removes in
// the meantime is replaced by a new one.
func (s *Store) create(node string, f func(*record)) {
	for {
		r, ok := s.nodes.Load(node)
		if !ok {
			fresh := &record{ledger: s.unknown.Begin()}
			fresh.view.Store(s.unknown)
			r, _ = s.nodes.LoadOrStore(node, fresh)
		}
		updated := false
		s.notifyChange(node, r.(*record), func() { updated = r.(*record).update(f) })
		if updated {
			return
		}
	}
}

// change applies f to the record of a node, if there is one, and removes a record that holds nothing any more.
func (s *Store) change(node string, f func(*record)) {
	r, ok := s.nodes.Load(node)
	if !ok {
		return
	}
	s.notifyChange(node, r.(*record), func() {
		r.(*record).update(func(r *record) {
			f(r)
			if r.isEmpty() {
				r.dead = true
				s.nodes.CompareAndDelete(node, r)
			}
		})
	})
}

// Args returns the arguments, which must not change after the call.
func (s *Store) Args() convert.Args {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = true
	return s.args
}

// count updates the numbers of nodes by kind when the facts of one node change.
func (s *Store) count(before, after *ledger.Facts) {
	s.static.Add(one(after.Model.Config.CPU.Static) - one(before.Model.Config.CPU.Static))
	s.memory.Add(one(after.Model.Config.Memory.Static) - one(before.Model.Config.Memory.Static))
	s.devices.Add(one(len(after.Model.Devices) > 0) - one(len(before.Model.Devices) > 0))
	s.inventories.Add(one(after.Devices != nil) - one(before.Devices != nil))
	s.kinds.change(before.Devices.Kinds(), after.Devices.Kinds())
	s.constrained.Add(one(constrains(after)) - one(constrains(before)))
}

// Kinds returns the kinds of devices that Device objects list.
func (s *Store) Kinds() *Kinds { return &s.kinds }

func constrains(f *ledger.Facts) bool { return f.Mode == ledger.Own && f.Topology >= hint.Restricted }

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

package kube

import (
	"sync"
	"sync/atomic"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/memo"
)

// record is what the Store has of one node. It is made with the first object that names the node, and is dead once none
// does.
type record struct {
	view atomic.Pointer[NodeView] // the ledger's current view; written under mu, read without

	mu       sync.Mutex // guards everything below
	ledger   *ledger.Ledger
	sources  convert.Sources
	problems []convert.Problem
	unread   bool // the sources have changed since facts and problems were read; see Store.Fill
	dead     bool // the record is not in the Store's map any more: updates must go to its successor
}

// update applies f under the record's lock and publishes the view. It returns false when the record is dead.
func (r *record) update(f func(*record)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return false
	}
	f(r)
	r.publish()
	return true
}

// publish makes the ledger's current view visible to readers. The verdicts on an unchanged view remain.
func (r *record) publish() {
	if v := r.view.Load(); v == nil || v.View != r.ledger.View() {
		r.view.Store(NewNodeView(r.ledger.View()))
	}
}

// isEmpty reports whether no pod has an entry and no object names the node.
func (r *record) isEmpty() bool {
	for range r.ledger.View().Entries() {
		return false
	}
	return r.sources == (convert.Sources{})
}

func (r *record) snapshot() Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.sources
	n := Node{o.Node, o.Topology, o.Numatopology, nil, r.ledger.View(), r.problems}
	if o.Devices != nil {
		n.Devices = o.Devices.Device
	}
	return n
}

// set replaces an object of a record, nil for none, and reads the facts again unless same reports that they cannot
// differ.
func set[T any](s *Store, r *record, object **T, next *T, same func(a, b *T) bool) {
	last := *object
	*object = next
	if last != next && (last == nil || next == nil || !same(last, next)) {
		r.setFacts(s)
	}
}

// setFacts reads the objects again. The ledger's version moves only when the facts differ. While the store is filled,
// objects are not read before a Node and a topology are among them.
func (r *record) setFacts(s *Store) {
	described := r.sources != (convert.Sources{})
	r.unread = described && s.filling.Load() && (r.sources.Node == nil || r.sources.Topology == nil)
	if r.unread {
		return
	}
	facts := noFacts()
	r.problems = nil
	s.reading.Lock()
	defer s.reading.Unlock()
	if described {
		args, sources := s.Args(), r.sources
		if n := sources.Node; n != nil && annotation.IsLeaving(n.Annotations) {
			sources = convert.Sources{Node: n} // what is still published is given to no pod
		}
		facts, r.problems = s.known.Read(sources, args)
	}
	s.count(r.ledger.View().Facts(), &facts)
	s.frames.SetFacts(r.ledger, facts)
}

// setDevices is setFacts where the Device alone has changed. A node that another object describes is not read again.
func (r *record) setDevices(s *Store, d *convert.Devices) {
	was, node := r.sources.Devices, r.sources.Node
	r.sources.Devices = d
	if node == nil || r.unread || annotation.IsLeaving(node.Annotations) {
		r.setFacts(s)
		return
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	before := r.ledger.View().Facts()
	var facts ledger.Facts
	facts, r.problems = s.known.ReadDevices(r.sources, was, *before, r.problems)
	s.count(before, &facts)
	s.frames.SetFacts(r.ledger, facts)
}

// NodeView is the view of a node's ledger with a memory of the last verdicts on it: pods that wait at one time are
// equal to few others. Any number of goroutines may use it.
type NodeView struct {
	*ledger.View
	verdicts memo.Table[place.Key, why.Reason]
}

// NewNodeView returns v with an empty memory.
func NewNodeView(v *ledger.View) *NodeView { return &NodeView{View: v} }

// Fits is place.Fits, from memory if an equal request was answered before; remembered then is true.
func (v *NodeView) Fits(r *place.Request) (reason why.Reason, remembered bool) {
	return place.Recall(&v.verdicts, v.View, r)
}

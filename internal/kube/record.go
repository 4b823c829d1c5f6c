package kube

import (
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// record is one node: its objects and its ledger.
type record struct {
	view atomic.Pointer[ledger.View] // the ledger's current view; written under mu, read without

	mu       sync.Mutex // guards everything below
	ledger   *ledger.Ledger
	node     *corev1.Node
	topology *v1alpha2.NodeResourceTopology
	numa     *nodeinfo.Numatopology
	problems []convert.Problem
	// dead records are out of the Store's map; an update must go to their successor.
	dead bool
}

func newRecord() *record {
	r := &record{ledger: ledger.New(noFacts())}
	r.view.Store(r.ledger.View())
	return r
}

// update applies f under the record's lock and publishes the view. It returns false when the record is dead.
func (r *record) update(f func(*record)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return false
	}
	f(r)
	r.view.Store(r.ledger.View())
	return true
}

func (r *record) isEmpty() bool {
	for range r.ledger.View().Entries() {
		return false
	}
	return r.isUnnamed()
}

// isUnnamed reports whether no object names the node.
func (r *record) isUnnamed() bool { return r.node == nil && r.topology == nil && r.numa == nil }

func (r *record) snapshot() Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Node{Object: r.node, Topology: r.topology, Numatopology: r.numa, View: r.ledger.View(), Problems: r.problems}
}

// set replaces an object of a record, nil for none. Facts are read again unless the two are the same to them.
func set[T any](s *Store, r *record, object **T, is *T, same func(a, b *T) bool) {
	was := *object
	*object = is
	if was != is && (was == nil || is == nil || !same(was, is)) {
		r.setFacts(s)
	}
}

// setFacts reads the objects again. The ledger's version moves only when the facts differ.
func (r *record) setFacts(s *Store) {
	facts := noFacts()
	r.problems = nil
	if !r.isUnnamed() {
		args := s.Args()
		s.reading.Lock()
		facts, r.problems = s.known.Read(
			convert.Sources{Node: r.node, Topology: r.topology, Numatopology: r.numa}, args)
		s.reading.Unlock()
	}
	s.count(r.ledger.View().Facts(), &facts)
	r.ledger.SetFacts(facts)
}

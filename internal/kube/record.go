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
	pods     map[string]struct{} // UIDs with an entry, assumed ones too
	// dead records are out of the Store's map; an update must go to their successor.
	dead bool
}

func newRecord() *record {
	r := &record{ledger: ledger.New(noFacts()), pods: map[string]struct{}{}}
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
	return r.node == nil && r.topology == nil && r.numa == nil && len(r.pods) == 0
}

func (r *record) snapshot() Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Node{Object: r.node, Topology: r.topology, Numatopology: r.numa, View: r.ledger.View(), Problems: r.problems}
}

func (r *record) commit(o ledger.Offer) error {
	err := r.ledger.Commit(o)
	if err == nil {
		r.pods[o.Entry.UID] = struct{}{}
	}
	return err
}

// revert reports whether the pod still has an entry.
func (r *record) revert(o ledger.Offer) (held bool) {
	r.ledger.Revert(o)
	if _, held = r.ledger.View().Entry(o.Entry.UID); !held {
		delete(r.pods, o.Entry.UID)
	}
	return held
}

func (r *record) put(e ledger.Entry) {
	r.ledger.Put(e)
	r.pods[e.UID] = struct{}{}
}

func (r *record) remove(uid string) {
	if _, held := r.pods[uid]; held {
		r.ledger.Remove(uid)
		delete(r.pods, uid)
	}
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
	if r.node != nil || r.topology != nil || r.numa != nil {
		facts, r.problems = s.facts(convert.Sources{Node: r.node, Topology: r.topology, Numatopology: r.numa})
	}
	was := r.ledger.View().Facts()
	s.count(was, &facts)
	r.ledger.SetFacts(facts)
}

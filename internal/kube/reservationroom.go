package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// nodeRoom is what a node has for its pods, and these.
type nodeRoom struct {
	// has is what the node can allocate. nil while no Node object is known: then nothing is compared.
	has amount.List
	// pods are those that have not ended, without reserve pods, by UID.
	pods map[types.UID]*corev1.Pod
}

// free returns what the node can allocate less what its pods request.
func (n *nodeRoom) free() amount.List {
	free := maps.Clone(n.has)
	for _, p := range n.pods {
		for name, amount := range convert.PodAmounts(p) {
			if _, has := free[name]; has {
				free[name] -= amount
			}
		}
	}
	return free
}

// room returns the nodeRoom of a node, a new one where none is known. s.mu is held.
func (s *Reservations) room(node string) *nodeRoom {
	n := s.nodes[node]
	if n == nil {
		n = &nodeRoom{pods: map[types.UID]*corev1.Pod{}}
		s.nodes[node] = n
	}
	return n
}

// PutNode records what a node can allocate.
func (s *Reservations) PutNode(n *corev1.Node) {
	has := convert.Amounts(convert.Schedulable(n).Status.Allocatable)
	s.mu.Lock()
	room := s.room(n.Name)
	same := maps.Equal(room.has, has)
	room.has = has
	s.mu.Unlock()
	if !same {
		s.recheck(n.Name)
	}
}

// RemoveNode forgets what a node can allocate. Its pods are kept until they are removed.
func (s *Reservations) RemoveNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.room(n.Name)
	room.has = nil
	s.prune(n.Name, room)
}

// putOnNode records a pod of a node, and forgets one that has ended.
func (s *Reservations) putOnNode(p *corev1.Pod) {
	if p.Spec.NodeName == "" {
		return
	}
	if convert.Ended(p) {
		s.removeFromNode(p)
		return
	}
	s.mu.Lock()
	s.room(p.Spec.NodeName).pods[p.UID] = p
	s.mu.Unlock()
	s.recheck(p.Spec.NodeName)
}

// removeFromNode forgets a pod. The object of a deletion may be older than the pod's binding and name no node.
func (s *Reservations) removeFromNode(p *corev1.Pod) {
	s.mu.Lock()
	node := p.Spec.NodeName
	if node == "" {
		for name, room := range s.nodes {
			if room.pods[p.UID] != nil {
				node = name
			}
		}
	}
	if room := s.nodes[node]; room != nil {
		delete(room.pods, p.UID)
		s.prune(node, room)
	}
	s.mu.Unlock()
	s.recheck(node)
}

// prune forgets a node of which nothing is known any more. s.mu is held.
func (s *Reservations) prune(node string, room *nodeRoom) {
	if room.has == nil && len(room.pods) == 0 {
		delete(s.nodes, node)
	}
}

// recheck has the status of the Reservations on a node compared with the room that the node has.
func (s *Reservations) recheck(node string) {
	s.mu.RLock()
	changed, all := s.changed, s.account.On(node)
	s.mu.RUnlock()
	if changed != nil {
		for _, spec := range all {
			changed(types.UID(spec.UID))
		}
	}
}

// Available is what a Reservation keeps beside its users, as far as its node has the room.
func (s *Reservations) Available(uid string) amount.List {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.available(uid)
}

// available is Available. s.mu is held.
func (s *Reservations) available(uid string) amount.List {
	var free amount.List
	if spec := s.account.Find(uid); spec != nil {
		if room := s.nodes[spec.Node]; room != nil {
			free = room.free()
		}
	}
	return s.account.Available(uid, free)
}

// shortage says what the node of a Reservation lacks for it, "" if the node has all that the Reservation keeps. s.mu is
// held.
func (s *Reservations) shortage(r *v1alpha1.Reservation) string {
	kept, available := s.account.Left(string(r.UID)), s.available(string(r.UID))
	var short []string
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if kept[name] > available[name] {
			short = append(short, fmt.Sprintf(
				"keeps %s %s for owners, and its node %s has %s beside its pods and older Reservations",
				convert.QuotaText(name, kept[name]), name, r.Status.NodeName, convert.QuotaText(name, available[name])))
		}
	}
	return strings.Join(short, "; ")
}

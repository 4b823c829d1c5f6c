package kube

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Difference is a pod about which the accounts say something else than its object.
type Difference struct {
	Node string // whose account holds the pod, or should
	UID  string
}

// Differences holds all accounts against pods, every pod of the cluster as the caller sees them at this moment, and
// returns the contradictions by node and UID. Accounts and pods come over different ways, so a difference counts only
// when it is still there some time later. A pod without node that has an entry is about to be bound: that is none.
func (s *Store) Differences(pods []*corev1.Pod) []Difference {
	type claim struct {
		node  string
		entry ledger.Entry
	}
	wanted := make(map[string]claim, len(pods))
	pending := map[string]bool{}
	exclusive := s.arguments().DefaultExclusive
	for _, p := range pods {
		if p.Spec.NodeName == "" {
			pending[string(p.UID)] = true
			continue
		}
		if e, concerns := convert.EntryUnder(exclusive, p); concerns {
			wanted[e.UID] = claim{p.Spec.NodeName, e}
		}
	}
	var found []Difference
	s.nodes.Range(func(name, r any) bool {
		node := name.(string)
		for e := range r.(*record).view.Load().Entries() {
			if isHeld(&e) {
				continue
			}
			want, ok := wanted[e.UID]
			if ok && want.node == node && want.entry.Equal(e) {
				delete(wanted, e.UID)
			} else if !pending[e.UID] {
				found = append(found, Difference{node, e.UID})
				delete(wanted, e.UID)
			}
		}
		return true
	})
	for uid, missing := range wanted {
		found = append(found, Difference{missing.node, uid})
	}
	slices.SortFunc(found, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.UID, b.UID))
	})
	return found
}

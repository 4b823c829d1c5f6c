package kube

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Difference is a pod about which the accounts say something else than its object.
type Difference struct {
	Node string // whose account holds the pod, or should
	UID  string
}

// Differences returns where accounts contradict pods, every pod of the cluster, by node and UID. Accounts and pods come
// over different ways, so only a lasting difference counts. A pod without node that has an entry is about to be bound.
func (s *Store) Differences(pods []*corev1.Pod) []Difference {
	type claim struct {
		node     string
		entry    ledger.Entry
		concerns bool // else it holds only what its resource-status said once
	}
	wanted := make(map[string]claim, len(pods))
	pending := map[string]bool{}
	args := s.Args()
	for _, p := range pods {
		if p.Spec.NodeName == "" {
			pending[string(p.UID)] = true
			continue
		}
		if e, concerns := convert.EntryUnder(args, p); e.UID != "" {
			wanted[e.UID] = claim{p.Spec.NodeName, e, concerns}
		}
	}
	var found []Difference
	s.nodes.Range(func(name, r any) bool {
		node := name.(string)
		for e := range r.(*record).view.Load().Entries() {
			if strings.HasPrefix(e.UID, heldPrefix) {
				continue
			}
			want, ok := wanted[e.UID]
			if ok && want.node == node && convert.Keeping(want.entry, e).Equal(e) {
				delete(wanted, e.UID)
			} else if !pending[e.UID] {
				found = append(found, Difference{node, e.UID})
				delete(wanted, e.UID)
			}
		}
		return true
	})
	for uid, missing := range wanted {
		if missing.concerns {
			found = append(found, Difference{missing.node, uid})
		}
	}
	slices.SortFunc(found, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.UID, b.UID))
	})
	return found
}

// Repair makes the accounts agree with pods, which Differences was given, about the pod of a difference.
func (s *Store) Repair(d Difference, pods []*corev1.Pod) {
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return string(p.UID) == d.UID })
	if i < 0 || pods[i].Spec.NodeName != d.Node {
		s.change(d.Node, func(r *record) { r.ledger.Remove(d.UID) })
		s.holders.CompareAndDelete(d.UID, d.Node)
	}
	if i >= 0 {
		s.PutPod(pods[i])
	}
}

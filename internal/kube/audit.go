package kube

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Difference is where an account says something else than the objects: about a pod, or about what the pods of a quota
// use together.
type Difference struct {
	Node  string // whose account holds the pod, or should
	UID   string // of the pod
	Quota string // whose use is wrong, instead of a pod
	// Devices is true where the account or the pod's annotation says that the pod has devices.
	Devices bool
}

// Differences returns where accounts contradict pods, every pod of the cluster, by node and UID. Accounts and pods come
// over different ways, so only a lasting difference counts. A pod without node that has an entry is about to be bound.
func (s *Store) Differences(pods []*corev1.Pod) []Difference {
	type expected struct {
		node     string
		entry    ledger.Entry
		concerns bool // the account must have the entry; else it may, by what the resource-status said once
	}
	wanted := make(map[string]expected, len(pods))
	pending := map[string]bool{}
	args := s.Args()
	for _, p := range pods {
		if p.Spec.NodeName == "" {
			pending[string(p.UID)] = true
			continue
		}
		if e, concerns := convert.EntryUnder(args, p); e.UID != "" {
			wanted[e.UID] = expected{p.Spec.NodeName, e, concerns}
		}
	}
	var found []Difference
	s.nodes.Range(func(name, r any) bool {
		node := name.(string)
		for e := range r.(*record).view.Load().Entries() {
			if strings.HasPrefix(e.UID, rejectedPrefix) || e.IsClaim() {
				continue
			}
			want, ok := wanted[e.UID]
			if ok && want.node == node && convert.Keeping(want.entry, e).Equal(e) {
				delete(wanted, e.UID)
			} else if !pending[e.UID] {
				holds := len(e.Devices)+len(want.entry.Devices) > 0
				found = append(found, Difference{Node: node, UID: e.UID, Devices: holds})
				delete(wanted, e.UID)
			}
		}
		return true
	})
	for uid, missing := range wanted {
		if missing.concerns {
			found = append(found, Difference{Node: missing.node, UID: uid, Devices: len(missing.entry.Devices) > 0})
		}
	}
	return sorted(found)
}

func sorted(found []Difference) []Difference {
	slices.SortFunc(found, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Node, b.Node), cmp.Compare(a.UID, b.UID))
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

// Differences returns where the account of quotas contradicts pods, every pod of the cluster, by quota, node and UID.
func (s *Quotas) Differences(pods []*corev1.Pod) []Difference {
	if !s.configured.Load() {
		return nil
	}
	var found []Difference
	listed := make(map[types.UID]bool, len(pods))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pods {
		listed[p.UID] = true
		was, ended := s.pods[p.UID], convert.Ended(p)
		if ended == (was != nil) || was != nil && (was.Spec.NodeName != p.Spec.NodeName ||
			was.Generation != p.Generation || was.Labels[annotation.QuotaName] != p.Labels[annotation.QuotaName]) {
			found = append(found, Difference{Node: p.Spec.NodeName, UID: string(p.UID)})
		}
	}
	for uid, p := range s.pods {
		if !listed[uid] {
			found = append(found, Difference{Node: p.Spec.NodeName, UID: string(uid)})
		}
	}
	for _, name := range s.account.Miscounted() {
		found = append(found, Difference{Quota: name})
	}
	return sorted(found)
}

// Repair makes the account agree with pods, which Differences was given, about the pod of a difference. If what a quota
// uses is wrong, it computes the whole account anew.
func (s *Quotas) Repair(d Difference, pods []*corev1.Pod) {
	if d.Quota != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.account, s.checker = s.account.Rebuilt(), nil
		clear(s.refused)
		return
	}
	if i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return string(p.UID) == d.UID }); i >= 0 {
		s.PutPod(pods[i])
	} else {
		s.RemovePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(d.UID)}})
	}
}

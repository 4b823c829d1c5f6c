package follow

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/view"
)

// auditEvery separates two comparisons. A difference counts if it lasts that long: objects that are on their way make
// shorter ones.
const auditEvery = time.Minute

// account is a set of accounts that can be compared with the pods it was computed from, and repaired.
type account interface {
	Differences(pods []*corev1.Pod) []kube.Difference
	Repair(d kube.Difference, pods []*corev1.Pod)
}

// Audit compares the accounts of nodes and of quotas with the pods and the Reservations for as long as ctx lives, from
// when the store is complete. What two comparisons in a row find is a mistake of ours: it is repaired, counted and
// reported. A NUMA node of which pods hold more than there is, as after a resize that no webhook saw, is reported once.
func (t *Tracker) Audit(ctx context.Context, pods corelisters.PodLister, reserved *kube.Reservations,
	quotas *kube.Quotas,
) {
	audits := []*auditor{
		{account: t.store, pods: pods, reserved: reserved}, {account: quotas, pods: pods, reserved: reserved},
	}
	debts := debtAudit{view: t.store.View}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !t.store.IsSynced() {
			return
		}
		for node, texts := range debts.fresh(t.store.Nodes()) {
			t.event(nodeReference(node), event.NUMANodeOvercommitted, "Auditing", "%s", strings.Join(texts, "; "))
		}
		for _, a := range audits {
			for _, d := range a.repair() {
				t.metrics.mismatches.Inc()
				if d.Devices {
					t.metrics.repairs.WithLabelValues(d.Node).Inc()
				}
				if d.Node != "" {
					t.event(nodeReference(d.Node), event.AccountRepaired, "Auditing", "the scheduler's account of the "+
						"node or of its pods' quotas differed from the pod with UID %s for a minute and was repaired",
						d.UID)
				}
				klog.FromContext(ctx).Error(nil, "Account differed from its pods", "node", d.Node, "podUID", d.UID,
					"quota", d.Quota)
			}
		}
	}, auditEvery)
}

// debtAudit finds NUMA nodes of which pods hold more than there is.
type debtAudit struct {
	// view returns the account of a node.
	view func(node string) *ledger.View
	// found are the debts that the last audit found, by node and text: true once they have been reported.
	found map[string]map[string]bool
}

// fresh returns the debts by node that this audit and the one before have found, each once for as long as it lasts.
func (a *debtAudit) fresh(nodes []string) map[string][]string {
	found, fresh := map[string]map[string]bool{}, map[string][]string{}
	for _, node := range nodes {
		for _, d := range a.view(node).Debts() {
			text := view.DebtText(d.Reason)
			reported, lasts := a.found[node][text]
			if lasts && !reported {
				fresh[node] = append(fresh[node], text)
			}
			if found[node] == nil {
				found[node] = map[string]bool{}
			}
			found[node][text] = lasts
		}
	}
	a.found = found
	return fresh
}

// auditor compares one kind of account with the pods. last has the differences of the last comparison.
type auditor struct {
	// account is compared with pods and reserve pods.
	account account
	// pods lists all pods of the cluster that have not ended. The accounts count the reserve pods of reserved too.
	pods     corelisters.PodLister
	reserved *kube.Reservations
	// last has the differences of the last comparison. Only one that two comparisons in a row find is repaired:
	// account and lister learn of a pod at different moments.
	last []kube.Difference
}

// repair repairs and returns the differences that the last comparison found as well.
func (a *auditor) repair() []kube.Difference {
	pods, err := a.pods.List(labels.Everything())
	if err != nil {
		return nil // a lister on memory has no error to give
	}
	pods = append(slices.Clip(pods), a.reserved.ReservePods()...)
	found := a.account.Differences(pods)
	lasting := slices.DeleteFunc(slices.Clone(found),
		func(d kube.Difference) bool { return !slices.Contains(a.last, d) })
	for _, d := range lasting {
		a.account.Repair(d, pods)
	}
	a.last = found
	return lasting
}

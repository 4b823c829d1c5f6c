package follow

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/kube"
)

const auditEvery = time.Minute

// account is compared with the pods that it is about.
type account interface {
	Differences(pods []*corev1.Pod) []kube.Difference
	Repair(d kube.Difference, pods []*corev1.Pod)
}

// Audit compares the accounts of nodes and of quotas with the pods for as long as ctx lives, from when the store is
// complete. What two comparisons in a row find is a mistake of ours: it is repaired, counted and reported.
func (t *Tracker) Audit(ctx context.Context, pods corelisters.PodLister, quotas *kube.Quotas) {
	audits := []*auditor{{account: t.store, pods: pods}, {account: quotas, pods: pods}}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !t.store.IsSynced() {
			return
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

type auditor struct {
	account account
	pods    corelisters.PodLister
	last    []kube.Difference
}

func (a *auditor) repair() []kube.Difference {
	pods, err := a.pods.List(labels.Everything())
	if err != nil {
		return nil // a lister on memory has no error to give
	}
	found := a.account.Differences(pods)
	lasting := slices.DeleteFunc(slices.Clone(found),
		func(d kube.Difference) bool { return !slices.Contains(a.last, d) })
	for _, d := range lasting {
		a.account.Repair(d, pods)
	}
	a.last = found
	return lasting
}

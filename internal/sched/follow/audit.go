package follow

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/kube"
)

const auditEvery = time.Minute

// Audit compares the accounts with the pods for as long as ctx lives, from when the store is complete. What two
// comparisons in a row find is a mistake of ours: it is repaired, counted and reported.
func (t *Tracker) Audit(ctx context.Context, pods corelisters.PodLister) {
	a := &auditor{store: t.store, pods: pods}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !t.store.IsSynced() {
			return
		}
		for _, d := range a.repair() {
			t.metrics.mismatches.Inc()
			t.event(nodeReference(d.Node), event.AccountRepaired, "Auditing",
				"the scheduler's account of the node differed from the pod with UID %s for a minute and was repaired",
				d.UID)
			klog.FromContext(ctx).Error(nil, "Account differed from its pods", "node", d.Node, "podUID", d.UID)
		}
	}, auditEvery)
}

type auditor struct {
	store *kube.Store
	pods  corelisters.PodLister
	last  []kube.Difference
}

func (a *auditor) repair() []kube.Difference {
	pods, err := a.pods.List(labels.Everything())
	if err != nil {
		return nil // a lister on memory has no error to give
	}
	found := a.store.Differences(pods)
	lasting := slices.DeleteFunc(slices.Clone(found),
		func(d kube.Difference) bool { return !slices.Contains(a.last, d) })
	for _, d := range lasting {
		a.store.Repair(d, pods)
	}
	a.last = found
	return lasting
}

package app

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/kube"
)

// auditEvery is the time between two comparisons of the accounts with the pods.
const auditEvery = time.Minute

// audit compares the accounts with the pods for as long as ctx lives. What two comparisons in a row find is a mistake
// of ours: it is repaired, counted and reported.
func (s *Scheduler) audit(ctx context.Context) {
	select {
	case <-s.store.Synced():
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	a := &auditor{store: s.store, pods: s.config.InformerFactory.Core().V1().Pods().Lister()}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, d := range a.repair() {
			s.metrics.mismatch.Inc()
			s.tracker.Repaired(d)
			klog.FromContext(ctx).Error(nil, "Account differed from its pods", "node", d.Node, "podUID", d.UID)
		}
	}
}

// auditor remembers what the last comparison found.
type auditor struct {
	store *kube.Store
	pods  corelisters.PodLister
	last  []kube.Difference
}

// repair repairs and returns the differences that the last comparison found too.
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

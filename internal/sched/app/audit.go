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

// audit holds the accounts against the pods for as long as ctx lives. What two comparisons in a row find is a mistake of
// ours: it is counted and told, once.
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
		for _, d := range a.compare() {
			s.metrics.mismatch.Inc()
			klog.FromContext(ctx).Error(nil, "Account differs from its pods", "node", d.Node, "podUID", d.UID)
		}
	}
}

// auditor remembers what the last comparison found.
type auditor struct {
	store *kube.Store
	pods  corelisters.PodLister
	last  []kube.Difference // found last time
	told  []kube.Difference // told, and still there
}

// compare returns the differences that were there last time too and are not told yet.
func (a *auditor) compare() []kube.Difference {
	pods, err := a.pods.List(labels.Everything())
	if err != nil {
		return nil // a lister on memory has no error to give
	}
	found := a.store.Differences(pods)
	var news, told []kube.Difference
	for _, d := range found {
		switch {
		case slices.Contains(a.told, d):
			told = append(told, d)
		case slices.Contains(a.last, d):
			news, told = append(news, d), append(told, d)
		}
	}
	a.last, a.told = found, told
	return news
}

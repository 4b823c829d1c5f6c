package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	policyinformers "k8s.io/client-go/informers/policy/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/gangstatus"
	"github.com/tenon-project/tenon/internal/kube"
)

// cluster is what a manager knows of its cluster: one set of informers, from which the webhooks of every replica answer
// and the controllers of the leader work.
type cluster struct {
	store                *kube.Quotas
	quotas               map[string]cache.SharedIndexInformer // by group
	pods, nodes, budgets cache.SharedIndexInformer            // pods are those that have not ended
	groups, members      []cache.SharedIndexInformer          // PodGroups, and all pods that name one in a label
	synced               []cache.InformerSynced
}

func newCluster(config *rest.Config, client kubernetes.Interface, store *kube.Quotas) (*cluster, error) {
	reader, err := kube.NewClient(config)
	if err != nil {
		return nil, err
	}
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	c := &cluster{
		store: store, quotas: map[string]cache.SharedIndexInformer{},
		pods: coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, byNamespace,
			func(o *metav1.ListOptions) { o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed" }),
		nodes:   coreinformers.NewNodeInformer(client, 0, cache.Indexers{}),
		budgets: policyinformers.NewPodDisruptionBudgetInformer(client, metav1.NamespaceAll, 0, byNamespace),
	}
	for group, label := range map[string]string{
		v1alpha1.GroupName: annotation.PodGroup, v1alpha1.CommunityGroupName: annotation.CommunityPodGroup,
	} {
		c.groups = append(c.groups, kube.NewPodGroupInformer(reader, group))
		c.members = append(c.members, coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0,
			gangstatus.IndexPods(), func(o *metav1.ListOptions) { o.LabelSelector = label }))
	}
	var failed []error
	for _, i := range []cache.SharedIndexInformer{c.pods, c.nodes, c.budgets} {
		failed = append(failed, i.SetTransform(withoutManagedFields))
	}
	for _, i := range c.members {
		failed = append(failed, i.SetTransform(gangstatus.Trim))
	}
	follow := func(i cache.SharedIndexInformer, h cache.ResourceEventHandler) {
		registration, err := i.AddEventHandler(h)
		if failed = append(failed, err); err == nil {
			c.synced = append(c.synced, registration.HasSynced)
		}
	}
	follow(kube.ByUID(c.pods), store.PodHandler())
	follow(c.nodes, store.NodeHandler())
	for _, group := range v1alpha1.Groups() {
		c.quotas[group] = kube.NewQuotaInformer(reader, group)
		follow(kube.Distinct(kube.SameQuota, c.quotas[group]), store.QuotaHandler())
	}
	c.synced = append(c.synced, c.budgets.HasSynced)
	if err := errors.Join(failed...); err != nil {
		return nil, fmt.Errorf("follow pods, nodes and quotas: %w", err)
	}
	return c, nil
}

// Start runs the informers until ctx ends.
func (c *cluster) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for _, i := range c.quotas {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	for _, i := range slices.Concat(c.groups, c.members, []cache.SharedIndexInformer{c.pods, c.nodes, c.budgets}) {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	running.Go(func() { c.store.Run(ctx) })
	running.Wait()
	return nil
}

// NeedLeaderElection is false: every replica answers webhooks.
func (*cluster) NeedLeaderElection() bool { return false }

// hasSynced reports whether the informers have shown everything that there was at first.
func (c *cluster) hasSynced() bool {
	for _, synced := range c.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// quota returns an ElasticQuota as it was shown last; nil where there is none.
func (c *cluster) quota(group, namespace, name string) *v1alpha1.ElasticQuota {
	i := c.quotas[group]
	if i == nil {
		return nil
	}
	object, _, err := i.GetStore().GetByKey(namespace + "/" + name)
	if q, ok := object.(*v1alpha1.ElasticQuota); ok && err == nil {
		return q
	}
	return nil
}

// withoutManagedFields keeps caches small.
func withoutManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}

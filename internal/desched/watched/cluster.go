package watched

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	autoscalinginformers "k8s.io/client-go/informers/autoscaling/v2"
	coreinformers "k8s.io/client-go/informers/core/v1"
	policyinformers "k8s.io/client-go/informers/policy/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
)

// Cluster is what a descheduler knows of its cluster. Its methods may be called from any goroutine.
type Cluster struct {
	// Pods, Nodes and Jobs are the informers of these kinds, for handlers and listers of others. They run in Start.
	Pods, Nodes, Jobs cache.SharedIndexInformer
	// Gangs are those of all pods. accounts has them.
	Gangs    *kube.Gangs
	accounts accounts.Table

	others []cache.SharedIndexInformer
	lookup lookup

	mu         sync.Mutex // guards everything below
	state      *evict.State
	synced     map[string][]cache.InformerSynced // by source; sources that have synced are deleted
	pods       map[string]map[types.UID]*corev1.Pod
	budgets    map[string]map[string]*policyv1.PodDisruptionBudget
	owners     map[ownerKey]owner
	jobs       map[types.UID]*migration.PodMigrationJob
	counted    map[string]*kube.Budgets // by namespace: what Pod.Budgets points into
	changed    map[string]bool          // namespaces of which all pods are to be converted again
	stale      map[types.UID]*corev1.Pod
	unresolved map[types.UID]bool // jobs that do not say which pod they are for until the pod is known
}

// New returns a Cluster that follows the API server once it is started.
func New(config *rest.Config, client kubernetes.Interface) (*Cluster, error) {
	reader, err := kube.NewClient(config)
	if err != nil {
		return nil, err
	}
	c, none := empty(), cache.Indexers{}
	c.Pods = coreinformers.NewPodInformer(client, metav1.NamespaceAll, 0, none)
	c.Nodes = coreinformers.NewNodeInformer(client, 0, none)
	c.Jobs = kube.NewMigrationInformer(reader)
	c.lookup.discovery, c.lookup.reader = client.Discovery(), reader
	namespaces := coreinformers.NewNamespaceInformer(client, 0, none)
	budgets := policyinformers.NewPodDisruptionBudgetInformer(client, metav1.NamespaceAll, 0, none)
	scalers := autoscalinginformers.NewHorizontalPodAutoscalerInformer(client, metav1.NamespaceAll, 0, none)
	c.others = []cache.SharedIndexInformer{namespaces, budgets, scalers}
	var failed []error
	synced := func(source string, registration cache.ResourceEventHandlerRegistration, err error) {
		if failed = append(failed, err); err == nil {
			c.synced[source] = append(c.synced[source], registration.HasSynced)
		}
	}
	follow := func(source string, i cache.SharedIndexInformer, h cache.ResourceEventHandler) {
		registration, err := i.AddEventHandler(h)
		synced(source, registration, err)
	}
	for _, i := range []cache.SharedIndexInformer{c.Pods, c.Nodes, namespaces, budgets, scalers} {
		failed = append(failed, i.SetTransform(kube.WithoutManagedFields))
	}
	follow("Pods", kube.ByUID(c.Pods), kube.Handler(c.PutPod, c.RemovePod))
	follow("Nodes", c.Nodes, kube.Handler(c.PutNode, c.RemoveNode))
	follow("Namespaces", namespaces, kube.Handler(c.PutNamespace, c.RemoveNamespace))
	follow("PodDisruptionBudgets", budgets, kube.Handler(c.PutBudget, c.RemoveBudget))
	follow("HorizontalPodAutoscalers", scalers, kube.Handler(c.PutScaler, c.RemoveScaler))
	follow("PodMigrationJobs", kube.ByUID(c.Jobs), kube.Handler(c.PutJob, c.RemoveJob))
	groups := c.accounts.Of("PodGroup")
	for _, s := range groups.Sources {
		i := s.Informer(reader)
		c.others = append(c.others, i)
		registration, err := groups.Follow(i)
		synced("PodGroups", registration, err)
	}
	for _, k := range kinds {
		i := kube.NewObjectInformer(reader, k.resource(), k.kind, keepOwner)
		c.others = append(c.others, i)
		follow(k.kind+"s", kube.ByUID(i), kube.Handler(c.PutOwner, c.RemoveOwner))
	}
	if err := errors.Join(failed...); err != nil {
		return nil, fmt.Errorf("follow pods and their owners: %w", err)
	}
	return c, nil
}

// NewUnconnected returns a Cluster that follows no API server: its caller puts all objects. Owners of kinds that are
// not in the table are of unknown kinds.
func NewUnconnected() *Cluster {
	c := empty()
	c.lookup.off = true
	return c
}

// empty returns a Cluster without objects and informers.
func empty() *Cluster {
	c := &Cluster{
		Gangs: kube.NewGangs().UseDefaults(), state: evict.NewState(), synced: map[string][]cache.InformerSynced{},
		pods:    map[string]map[types.UID]*corev1.Pod{},
		budgets: map[string]map[string]*policyv1.PodDisruptionBudget{}, counted: map[string]*kube.Budgets{},
		owners: map[ownerKey]owner{}, jobs: map[types.UID]*migration.PodMigrationJob{}, changed: map[string]bool{},
		stale: map[types.UID]*corev1.Pod{}, unresolved: map[types.UID]bool{},
		lookup: lookup{known: map[schema.GroupVersionKind]*found{}, wake: make(chan struct{}, 1)},
	}
	c.Gangs.Inform(func(id string, b gang.Bond) { c.lock(func() { c.state.SetGang(id, b) }) })
	c.accounts = accounts.Accounts{Gangs: c.Gangs}.Table()
	return c
}

func (c *Cluster) lock(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Start runs the informers until ctx ends.
func (c *Cluster) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for _, i := range append(slices.Clone(c.others), c.Pods, c.Nodes, c.Jobs) {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	running.Go(func() { c.followUnknown(ctx, running.Go) })
	running.Wait()
	return nil
}

// NeedLeaderElection is false: a replica that begins to lead knows its cluster already.
func (*Cluster) NeedLeaderElection() bool { return false }

// Unsynced returns the kinds of which the caches are not synced, in ascending order.
func (c *Cluster) Unsynced() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsynced()
}

func (c *Cluster) unsynced() []string {
	for source, all := range c.synced {
		if !slices.ContainsFunc(all, func(synced cache.InformerSynced) bool { return !synced() }) {
			delete(c.synced, source)
			c.state.SetFault(source, "")
		}
	}
	return slices.Sorted(maps.Keys(c.synced))
}

// Read calls f with a State that has all events so far. f must be short and must not keep the State. It may set jobs
// that it is about to write: the next event of the job counts again.
func (c *Cluster) Read(f func(*evict.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, source := range c.unsynced() {
		c.state.SetFault(source, "the cache is not synced")
	}
	c.refresh()
	f(c.state)
}

// Pod returns a pod; nil if it is not known.
func (c *Cluster) Pod(namespace string, uid types.UID) *corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[namespace][uid]
}

// PodsOf returns the pods of a namespace, in no order.
func (c *Cluster) PodsOf(namespace string) []*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.pods[namespace]))
}

// refresh converts what has changed.
func (c *Cluster) refresh() {
	for namespace := range c.changed {
		c.counted[namespace] = kube.NewBudgets(slices.Collect(maps.Values(c.budgets[namespace])))
		for _, p := range c.pods[namespace] {
			c.stale[p.UID] = p
		}
	}
	clear(c.changed)
	for _, p := range c.stale {
		c.state.SetPod(c.convert(p))
	}
	clear(c.stale)
	for uid := range c.unresolved {
		c.setJob(c.jobs[uid])
	}
}

// put adds to a map of maps, or takes away what is nil.
func put[K, L comparable, V any](all map[K]map[L]V, key K, name L, value *V) {
	if value == nil {
		if delete(all[key], name); len(all[key]) == 0 {
			delete(all, key)
		}
		return
	}
	if all[key] == nil {
		all[key] = map[L]V{}
	}
	all[key][name] = *value
}

// PutGroup records a PodGroup.
func (c *Cluster) PutGroup(g *v1alpha1.PodGroup) { c.accounts.Put(g) }

// PutPod records a pod, in its gang first.
func (c *Cluster) PutPod(p *corev1.Pod) {
	c.accounts.Put(p)
	c.lock(func() {
		put(c.pods, p.Namespace, p.UID, &p)
		c.stale[p.UID] = p
	})
}

// RemovePod forgets a pod.
func (c *Cluster) RemovePod(p *corev1.Pod) {
	c.accounts.Remove(p)
	c.lock(func() {
		put(c.pods, p.Namespace, p.UID, nil)
		delete(c.stale, p.UID)
		c.state.DeletePod(string(p.UID))
	})
}

// PutNode records a node.
func (c *Cluster) PutNode(n *corev1.Node) { c.lock(func() { c.state.SetNode(n.Name, n.Labels) }) }

// RemoveNode forgets a node.
func (c *Cluster) RemoveNode(n *corev1.Node) { c.lock(func() { c.state.DeleteNode(n.Name) }) }

// PutNamespace records a namespace.
func (c *Cluster) PutNamespace(n *corev1.Namespace) {
	c.lock(func() { c.state.SetNamespace(n.Name, n.Labels) })
}

// RemoveNamespace forgets a namespace.
func (c *Cluster) RemoveNamespace(n *corev1.Namespace) {
	c.lock(func() { c.state.DeleteNamespace(n.Name) })
}

// PutBudget records a PodDisruptionBudget.
func (c *Cluster) PutBudget(b *policyv1.PodDisruptionBudget) { c.putBudget(b, &b) }

// RemoveBudget forgets one.
func (c *Cluster) RemoveBudget(b *policyv1.PodDisruptionBudget) { c.putBudget(b, nil) }

func (c *Cluster) putBudget(b *policyv1.PodDisruptionBudget, value **policyv1.PodDisruptionBudget) {
	c.lock(func() {
		put(c.budgets, b.Namespace, b.Name, value)
		c.changed[b.Namespace] = true
	})
}

// PutScaler records a HorizontalPodAutoscaler.
func (c *Cluster) PutScaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	target := a.Spec.ScaleTargetRef
	c.lock(func() {
		c.state.SetScaler(a.Namespace+"/"+a.Name, evict.Scaler{
			Workload: keyOf(ownerKey{groupOf(target.APIVersion), target.Kind, a.Namespace, target.Name}),
			Current:  int(a.Status.CurrentReplicas), Desired: int(a.Status.DesiredReplicas),
		})
	})
}

// RemoveScaler forgets one.
func (c *Cluster) RemoveScaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	c.lock(func() { c.state.DeleteScaler(a.Namespace + "/" + a.Name) })
}

// PutOwner records an object that may own pods.
func (c *Cluster) PutOwner(u *unstructured.Unstructured) {
	key, o := readOwner(u)
	c.lock(func() {
		if was, known := c.owners[key]; !known || was.uid != o.uid || was.workload != o.workload {
			c.changed[key.namespace] = true // pods may have come before it
		}
		c.owners[key] = o
		if o.state.Key != "" {
			c.state.SetWorkload(o.state)
		}
	})
}

// RemoveOwner forgets one.
func (c *Cluster) RemoveOwner(u *unstructured.Unstructured) {
	key, o := readOwner(u)
	c.lock(func() {
		delete(c.owners, key)
		c.changed[key.namespace] = true
		if o.state.Key != "" {
			c.state.DeleteWorkload(o.state.Key)
		}
	})
}

// PutJob records a job, unless a later state of it is known. The answer to a write may be put before its event comes.
func (c *Cluster) PutJob(j *migration.PodMigrationJob) {
	c.lock(func() {
		if was := c.jobs[j.UID]; was == nil || version(was) <= version(j) {
			c.jobs[j.UID] = j
			c.setJob(j)
		}
	})
}

// version is the resource version, which grows with each write; 0 for an object without one.
func version(j *migration.PodMigrationJob) uint64 {
	n, _ := strconv.ParseUint(j.ResourceVersion, 10, 64)
	return n
}

// RemoveJob forgets a job.
func (c *Cluster) RemoveJob(j *migration.PodMigrationJob) {
	c.lock(func() {
		delete(c.jobs, j.UID)
		delete(c.unresolved, j.UID)
		c.state.DeleteJob(string(j.UID))
	})
}

func (c *Cluster) setJob(j *migration.PodMigrationJob) {
	job := readJob(j, c.pods[refOf(j).Namespace])
	if delete(c.unresolved, j.UID); job.PodUID == "" && !j.Status.Phase.IsFinal() {
		c.unresolved[j.UID] = true
	}
	c.state.SetJob(*job)
}

// convert returns what the State has of a pod.
func (c *Cluster) convert(p *corev1.Pod) evict.Pod {
	out := readPod(p)
	out.Gang = c.Gangs.GangOf(p)
	if b := c.counted[p.Namespace]; b != nil {
		out.Budgets = b.Of(p)
	}
	ref := metav1.GetControllerOf(p)
	if ref == nil || out.Fixed != "" {
		return out
	}
	key := ownerKey{groupOf(ref.APIVersion), ref.Kind, p.Namespace, ref.Name}
	o, known := c.owners[key]
	switch {
	case known && o.uid == ref.UID:
		out.Workload = o.workload
	case known:
		out.Workload, out.Fault = o.workload, fmt.Sprintf("%s of the pod has another uid", keyOf(key))
	case kindOf(key) != nil:
		out.Workload, out.Fault = keyOf(key), keyOf(key)+" is not known"
	default:
		scaled, fault := c.lookup.find(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		switch out.Workload = keyOf(key); {
		case fault != "":
			out.Fault = fault
		case scaled:
			out.Fault = keyOf(key) + " is not known"
		default:
			c.state.SetWorkload(evict.Workload{
				Key: out.Workload, Kind: evict.Unknown, Batch: key.group == "batch" && key.kind == "Job",
			})
		}
	}
	return out
}

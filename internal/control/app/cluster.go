package app

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	policyinformers "k8s.io/client-go/informers/policy/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	colocation "github.com/tenon-project/tenon/api/colocation/v1alpha1"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/control/gangstatus"
	"github.com/tenon-project/tenon/internal/control/grouping"
	"github.com/tenon-project/tenon/internal/control/nodescaling"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// cluster is what a manager knows of its cluster: one set of informers, from which the webhooks of every replica answer
// and the controllers of the leader work.
type cluster struct {
	store                *kube.Quotas
	schedulers           *convert.Schedulers
	gangs                *kube.Gangs
	reserved             *kube.Reservations                   // of which resizes find the room taken
	quotas               map[string]cache.SharedIndexInformer // by group
	pods, nodes, budgets cache.SharedIndexInformer            // of pods that have ended, what gangstatus.Trim keeps
	groups               []cache.SharedIndexInformer          // PodGroups, and CompositePodGroups last
	made                 cache.SharedIndexInformer            // of groups, that of the PodGroups of operators' objects
	devices, claims      cache.SharedIndexInformer
	topologies           cache.SharedIndexInformer
	reservations         cache.SharedIndexInformer
	metrics, slos        cache.SharedIndexInformer
	strategy             cache.SharedIndexInformer // of a ConfigMap; nil where another manager follows it
	profiles, namespaces cache.SharedIndexInformer
	kinds                kube.Kinds // of devices
	synced               []cache.InformerSynced
	gathered             []cache.InformerSynced // and of gangs, devices and use, which webhooks do without
}

func newCluster(config *rest.Config, client kubernetes.Interface, store *kube.Quotas, schedulers *convert.Schedulers,
	sloNamespace string,
) (*cluster, error) {
	reader, err := kube.NewClient(config)
	if err != nil {
		return nil, err
	}
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	c := &cluster{
		store: store, schedulers: schedulers, gangs: kube.NewGangs().UseDefaults(),
		reserved: kube.NewReservations(reader, time.Now),
		quotas:   map[string]cache.SharedIndexInformer{},
		pods:     coreinformers.NewPodInformer(client, metav1.NamespaceAll, 0, byNamespace),
		nodes:    coreinformers.NewNodeInformer(client, 0, cache.Indexers{}),
		devices:  kube.NewDeviceInformer(reader), topologies: kube.NewTopologyInformer(reader),
		reservations: kube.NewReservationInformer(reader), profiles: kube.NewColocationProfileInformer(reader),
		namespaces: coreinformers.NewNamespaceInformer(client, 0, cache.Indexers{}),
		budgets:    policyinformers.NewPodDisruptionBudgetInformer(client, metav1.NamespaceAll, 0, byNamespace),
	}
	resource := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	c.claims = kube.NewOptionalInformer(client.Discovery(), resource,
		client.ResourceV1().ResourceClaims(metav1.NamespaceAll), &resourcev1.ResourceClaim{})
	c.gangs.Inform(store.SetGang)
	counted := accounts.Accounts{Quotas: store, Reservations: c.reserved}.Table() // by webhooks too
	others := accounts.Accounts{Gangs: c.gangs, Kinds: &c.kinds}.Table()          // no reserve pod is of a PodGroup
	failed := []error{
		c.pods.AddIndexers(gangstatus.IndexPods()),
		c.pods.AddIndexers(cache.Indexers{byNode: indexByNode}),
	}
	failed = append(failed, c.budgets.SetTransform(kube.WithoutManagedFields),
		c.namespaces.SetTransform(kube.WithoutManagedFields), c.nodes.SetTransform(
			func(object any) (any, error) {
				if o, err := meta.Accessor(object); err == nil {
					convert.WithOwned(o)
				}
				return object, nil
			}))
	failed = append(failed, c.pods.SetTransform(func(object any) (any, error) {
		if p, ok := object.(*corev1.Pod); ok && convert.Ended(p) {
			return gangstatus.Trim(p), nil
		}
		return kube.WithoutManagedFields(object)
	}))
	follow := func(k accounts.Kind, i cache.SharedIndexInformer) {
		registration, err := k.Follow(i)
		if failed = append(failed, err); err == nil {
			c.synced = append(c.synced, registration.HasSynced)
		}
	}
	follow(counted.Of("Pod"), c.pods)
	follow(counted.Of("Node"), c.nodes)
	follow(counted.Of("Reservation"), c.reservations)
	quotas := counted.Of("ElasticQuota")
	for _, s := range quotas.Sources {
		i := s.Informer(reader)
		c.quotas[s.At[0].Group] = i
		follow(quotas, i)
	}
	c.synced = append(c.synced, c.budgets.HasSynced)
	webhooks := len(c.synced)
	follow(others.Of("Pod"), c.pods)
	follow(counted.Of("ResourceClaim"), c.claims)
	groups := others.Of("PodGroup")
	for _, s := range groups.Sources {
		i := s.Informer(reader)
		if c.groups = append(c.groups, i); s.At[0].Group == v1alpha1.GroupName {
			c.made = i
		}
		follow(groups, i)
	}
	follow(others.Of("Device"), c.devices)
	c.gathered = slices.Concat(c.synced, []cache.InformerSynced{c.devices.HasSynced, c.topologies.HasSynced})
	if sloNamespace != "" {
		c.metrics, c.slos = kube.NewNodeMetricInformer(reader), kube.NewNodeSLOInformer(reader)
		c.strategy = coreinformers.NewFilteredConfigMapInformer(client, sloNamespace, 0, cache.Indexers{},
			func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, sloconfig.Name).String()
			})
		c.gathered = append(c.gathered, c.metrics.HasSynced, c.slos.HasSynced, c.strategy.HasSynced)
	}
	c.synced = c.synced[:webhooks:webhooks]
	failed = append(failed, c.made.AddIndexers(grouping.IndexGroups()),
		c.reservations.AddIndexers(nodescaling.IndexReservations()))
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
	others := append(slices.Clone(c.groups), c.pods, c.nodes, c.budgets, c.devices, c.claims, c.topologies,
		c.reservations, c.profiles, c.namespaces)
	if c.strategy != nil {
		others = append(others, c.metrics, c.slos, c.strategy)
	}
	for _, i := range others {
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

// check returns an error until the webhooks know what they decide by: before, they refuse all that needs it.
func (c *cluster) check(*http.Request) error {
	if !c.hasSynced() || !c.profiles.HasSynced() || !c.namespaces.HasSynced() {
		return errors.New("pods, nodes, quotas and profiles have not been read yet")
	}
	return nil
}

// quota returns an ElasticQuota as it was shown last; nil where there is none.
func (c *cluster) quota(group, namespace, name string) *v1alpha1.ElasticQuota {
	if i := c.quotas[group]; i != nil {
		return kube.Get[v1alpha1.ElasticQuota](i, namespace+"/"+name)
	}
	return nil
}

// pod returns a pod as it was shown last; nil where there is none.
func (c *cluster) pod(namespace, name string) *corev1.Pod {
	return kube.Get[corev1.Pod](c.pods, namespace+"/"+name)
}

// PodGroups returns the PodGroups of a name, of all API groups.
func (c *cluster) PodGroups(namespace, name string) (all []*v1alpha1.PodGroup) {
	for _, i := range c.groups[:len(c.groups)-1] {
		if g := kube.Get[v1alpha1.PodGroup](i, namespace+"/"+name); g != nil {
			all = append(all, g)
		}
	}
	return all
}

// Members returns the pods that name a gang, ended ones too.
func (c *cluster) Members(gang string) (pods []*corev1.Pod) {
	objects, _ := c.pods.GetIndexer().ByIndex(gangstatus.ByGang, gang) // fails only without the index
	for _, o := range objects {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods
}

// NamespaceLabels returns the labels of a namespace; false for one that is not known.
func (c *cluster) NamespaceLabels(name string) (map[string]string, bool) {
	n := kube.Get[corev1.Namespace](c.namespaces, name)
	if n == nil {
		return nil, false
	}
	return n.Labels, true
}

// byNode is the index of the pods by the node that they are bound to.
const byNode = "node"

func indexByNode(object any) ([]string, error) {
	if p, ok := object.(*corev1.Pod); ok && p.Spec.NodeName != "" {
		return []string{p.Spec.NodeName}, nil
	}
	return nil, nil
}

// colocation returns the profiles that can be used, sorted by name, and the labels of a namespace.
func (c *cluster) colocation(namespace string) (profiles []*admission.Profile, l labels.Set, err error) {
	if !c.profiles.HasSynced() || !c.namespaces.HasSynced() {
		return nil, nil, errors.New("the manager has not read profiles and namespaces yet: try again")
	}
	keys := c.profiles.GetStore().ListKeys()
	slices.Sort(keys)
	for _, key := range keys {
		if p := kube.Get[colocation.ClusterColocationProfile](c.profiles, key); p != nil {
			profile, err := admission.NewProfile(p)
			if err != nil {
				profile = admission.Unusable(p, err)
			}
			profiles = append(profiles, profile)
		}
	}
	if n := kube.Get[corev1.Namespace](c.namespaces, namespace); n != nil {
		return profiles, n.Labels, nil
	}
	if len(profiles) > 0 {
		err = fmt.Errorf("namespace %s is not known yet: try again", namespace)
	}
	return profiles, nil, err
}

// podsOn returns the pods that are bound to a node, without the keys that do not count.
func (c *cluster) podsOn(node string) (pods []*corev1.Pod) {
	onNode, _ := c.pods.GetIndexer().ByIndex(byNode, node) // fails only without the index
	for _, object := range onNode {
		if p, ok := object.(*corev1.Pod); ok {
			pods = append(pods, c.schedulers.Trusted(p))
		}
	}
	return pods
}

// room returns what the node of a pod has beside it.
func (c *cluster) room(pod *corev1.Pod) (room admission.Room) {
	name := pod.Spec.NodeName
	if n := kube.Get[corev1.Node](c.nodes, name); n != nil {
		room.Has, room.Others = n.Status.Allocatable, corev1.ResourceList{}
	}
	kept, own := c.reservedOn(name, convert.UsedReservation(pod))
	room.Reserved, room.Own = convert.ResourceList(kept), convert.ResourceList(own)
	others := c.othersOn(name, pod)
	for _, p := range others {
		for resource, n := range convert.ResourceList(convert.PodAmounts(p)) {
			sum := room.Others[resource]
			sum.Add(n)
			if room.Others != nil {
				room.Others[resource] = sum
			}
		}
	}
	store := c.accountOf(name, convert.DefaultArgs(), append(others, pod))
	room.Account = store.View(name)
	return room
}

// othersOn returns the pods on a node that have not ended, but for one; nil leaves out none.
func (c *cluster) othersOn(node string, but *corev1.Pod) (pods []*corev1.Pod) {
	onNode, _ := c.pods.GetIndexer().ByIndex(byNode, node) // fails only without the index
	for _, object := range onNode {
		if p, ok := object.(*corev1.Pod); ok && (but == nil || p.UID != but.UID) && !convert.Ended(p) {
			pods = append(pods, p)
		}
	}
	return pods
}

// reservedOn returns what the Reservations on a node hold, that with the UID used apart.
func (c *cluster) reservedOn(node, used string) (kept, own amount.List) {
	kept = amount.List{}
	for r, reserve := range c.reservePods(node) {
		if amounts := convert.PodAmounts(reserve); string(r) == used {
			own = amounts
		} else {
			kept.Add(amounts)
		}
	}
	return kept, own
}

// reservePods returns the reserve pods of the Reservations on a node, by the UID of the Reservation.
func (c *cluster) reservePods(node string) iter.Seq2[types.UID, *corev1.Pod] {
	return func(yield func(types.UID, *corev1.Pod) bool) {
		for _, r := range c.reserved.On(node) {
			_, reserve := c.reserved.Find(r.UID)
			if reserve != nil && convert.IsReservePod(reserve) && !yield(r.UID, reserve) {
				return
			}
		}
	}
}

// accountOf returns a store with the account of a node and pods on it. It is made anew: resizes and plans of helpers
// are rare.
func (c *cluster) accountOf(node string, args convert.Args, pods []*corev1.Pod, objects ...any) *kube.Store {
	store := kube.NewStore()
	store.Trust(c.schedulers)
	_ = store.Configure(args) // fails only if it was configured before
	table := accounts.Accounts{Nodes: store}.Table()
	if n := kube.Get[corev1.Node](c.nodes, node); n != nil {
		table.Put(n)
	}
	if t := kube.Get[v1alpha2.NodeResourceTopology](c.topologies, node); t != nil {
		table.Put(t)
	}
	for _, o := range objects {
		table.Put(o)
	}
	for _, reserve := range c.reservePods(node) {
		table.Put(reserve)
	}
	for _, p := range pods {
		table.Put(p)
	}
	return store
}

// scaled is the cluster as helpers for autoscalers are planned by it. Requests for devices count.
type scaled struct{ *cluster }

func (c scaled) args() convert.Args {
	args := convert.DefaultArgs()
	args.Devices, args.Kinds, args.Schedulers = true, c.kinds.Load(), c.schedulers
	return args
}

// Account returns the account of a node with the pods on it.
func (c scaled) Account(node string) *ledger.View {
	var devices []any
	if d := kube.Get[devicev1alpha1.Device](c.devices, node); d != nil {
		devices = append(devices, d)
	}
	return c.accountOf(node, c.args(), c.othersOn(node, nil), devices...).View(node)
}

// Reserved returns what Reservations hold on a node beside the pods that use them.
func (c scaled) Reserved(node string) amount.List {
	kept, _ := c.reservedOn(node, "")
	return kept
}

// Request returns what a pod asks of a node; nil if no node can take it as it is written.
func (c scaled) Request(pod *corev1.Pod) *place.Request {
	request, reason, _ := convert.Request(pod, c.args())
	if !reason.OK() {
		return nil
	}
	return request
}

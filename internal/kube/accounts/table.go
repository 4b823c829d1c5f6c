package accounts

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Accounts are what a program knows of its cluster. A nil account follows nothing. Quotas and Gangs follow nothing
// before Configure, Loads nothing before Enable.
type Accounts struct {
	Nodes        *kube.Store
	Quotas       *kube.Quotas
	Gangs        *kube.Gangs
	Reservations *kube.Reservations
	Loads        *kube.Loads
	Kinds        *kube.Kinds // of devices
	Claims       *kube.Claims
}

// Table returns the kinds that the accounts follow. Reserve pods reach the accounts from then on, so Table is called
// once for each set of accounts.
func (a Accounts) Table() Table {
	nodes, quotas, gangs, reservations, loads, kinds := a.Nodes, a.Quotas, a.Gangs, a.Reservations, a.Loads, a.Kinds
	claims := a.Claims

	// Gangs come before Quotas, which then know what a gang holds together when they count its pod. Reservations come
	// before the accounts that count room: a Reservation shrinks before its user counts.
	pods := kindOf("Pod", nil, nil,
		to(gangs, gangs.PutPod, gangs.RemovePod),
		to(reservations, reservations.PutPod, reservations.RemovePod),
		to(loads, loads.PutPod, func(p *corev1.Pod) { loads.RemovePod(p.UID) }),
		to(quotas, quotas.PutPod, quotas.RemovePod),
		to(nodes, nodes.PutPod, nodes.RemovePod))
	pods.apart = kube.ByUID
	if reservations != nil {
		pods.behind = reservations.WithReservePods
		reservations.Deliver(pods.accounts)
	}

	// Reservations and Quotas subtract by themselves what is reserved on a node.
	machines := kindOf("Node", nil, nil,
		to(gangs, gangs.PutNode, gangs.RemoveNode),
		to(reservations, reservations.PutNode, reservations.RemoveNode),
		to(quotas, quotas.PutNode, quotas.RemoveNode),
		byName(nodes, func(n *corev1.Node) { nodes.PutNode(convert.Schedulable(n)) }, nodes.RemoveNode))
	machines.behind = func(i cache.SharedIndexInformer) cache.SharedIndexInformer {
		return kube.Mapped(i, convert.Schedulable)
	}

	topology := v1alpha2.Resource()
	return Table{
		pods,
		machines,
		kindOf("NodeResourceTopology",
			from(kube.NewTopologyInformer, decode[v1alpha2.NodeResourceTopology],
				topology, topology.GroupResource().WithVersion("v1alpha1")),
			nil, byName(nodes, nodes.PutTopology, nodes.RemoveTopology)),
		kindOf("Numatopology",
			from(kube.NewNumatopologyInformer, readNumatopology, nodeinfo.Resource()),
			nil, byName(nodes, nodes.PutNumatopology, nodes.RemoveNumatopology)),
		kindOf("Device",
			from(kube.NewDeviceInformer, kube.ReadDevice, devicev1alpha1.Resource()),
			nil, to(kinds, kinds.PutDevice, kinds.RemoveDevice), byName(nodes, nodes.PutDevice, nodes.RemoveDevice)),
		kindOf("Reservation",
			from(kube.NewReservationInformer, kube.ReadReservation, reservation.Resource()),
			nil, to(reservations, reservations.Put, reservations.Remove)),
		kindOf("ElasticQuota", quotaSources(),
			kube.SameQuota, to(quotas, quotas.PutQuota, quotas.RemoveQuota)),
		kindOf("PodGroup", groupSources(),
			kube.SamePodGroup, to(gangs, gangs.PutGroup, gangs.RemoveGroup)),
		kindOf("ClusterNetworkTopology",
			from(kube.NewNetworkInformer, decode[devicev1alpha1.ClusterNetworkTopology],
				devicev1alpha1.NetworkResource()),
			kube.SameNetwork, to(gangs, gangs.PutNetwork, gangs.RemoveNetwork)),
		kindOf("NodeMetric",
			from(kube.NewUsageInformer, readMetric, slo.NodeMetrics()),
			nil, to(loads, loads.PutMetric, loads.RemoveMetric)),
		kindOf("ResourceClaim", nil, nil, to(quotas, quotas.PutClaim, quotas.RemoveClaim),
			to(claims, claims.PutClaim, claims.RemoveClaim)),
		kindOf("ResourceSlice", nil, nil,
			to(claims, claims.PutSlice, func(s *resourcev1.ResourceSlice) { claims.RemoveSlice(s.Name) })),
	}
}

// quotaSources are the API groups that have ElasticQuotas.
func quotaSources() (all []Source) {
	for _, group := range v1alpha1.Groups() {
		informer := func(client rest.Interface) cache.SharedIndexInformer {
			return kube.NewQuotaInformer(client, group)
		}
		all = append(all, from(informer, kube.ReadQuota, v1alpha1.Resource(group))...)
	}
	return all
}

// groupSources are the resources that describe gangs, CompositePodGroups last.
func groupSources() (all []Source) {
	for _, kind := range v1alpha1.GangKinds() {
		informer := func(client rest.Interface) cache.SharedIndexInformer {
			return kube.NewPodGroupInformer(client, kind)
		}
		all = append(all, from(informer, func(text []byte) (*v1alpha1.PodGroup, error) {
			return kube.ReadPodGroup(kind.At[0].GroupVersion().WithKind(kind.Kind), text)
		}, kind.At...)...)
	}
	return all
}

// decode reads an object whose fields fit its type.
func decode[T any](text []byte) (*T, error) {
	o := new(T)
	return o, json.Unmarshal(text, o)
}

func readNumatopology(text []byte) (*nodeinfo.Numatopology, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return kube.ReadNumatopology(u), nil
}

func readMetric(text []byte) (*kube.NodeMetric, error) { return kube.ReadNodeMetric(text), nil }

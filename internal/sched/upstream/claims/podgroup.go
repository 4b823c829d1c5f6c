package claims

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/sched/upstream/inside"
)

// serveGroups lets the plugin in a framework reserve the claims of a Kubernetes PodGroup for the PodGroup. Upstream's
// feature gate for it needs GenericWorkload, which queues a PodGroup as one.
func (s *Sharing) serveGroups(f framework.Framework) error {
	plugins, err := inside.Field[map[string]fwk.Plugin](f, "pluginsMap")
	if err != nil {
		return err
	}
	plugin := (*plugins)[names.DynamicResources]
	if plugin == nil {
		return nil
	}
	features, err := inside.Field[feature.Features](plugin, "fts")
	if err != nil {
		return err
	}
	handle, err := inside.Field[fwk.Handle](plugin, "fh")
	if err != nil {
		return err
	}
	if *handle == nil { // the feature gate of claims is off
		return nil
	}
	features.EnableDRAWorkloadResourceClaims = true
	*handle = groupHandle{*handle, s.gangs}
	return nil
}

// groupHandle is the handle of the plugin. Its snapshot has the PodGroups that are known of gangs.
type groupHandle struct {
	fwk.Handle
	gangs Gangs
}

func (h groupHandle) SnapshotSharedLister() fwk.SharedLister {
	return groupSnapshot{h.Handle.SnapshotSharedLister(), h.gangs}
}

type groupSnapshot struct {
	fwk.SharedLister
	gangs Gangs
}

func (s groupSnapshot) PodGroups() fwk.PodGroupLister { return groupLister{s.gangs} }

type groupLister struct{ gangs Gangs }

// Get returns what the plugin reads of a PodGroup; nil for one that is not known, whose pods have claims of their own.
func (l groupLister) Get(namespace, name string) (*schedulingv1beta1.PodGroup, error) {
	known := l.gangs.PodGroup(namespace, name)
	if known == nil {
		return nil, nil //nolint:nilnil // the plugin's own answer for a pod of no PodGroup
	}
	group := &schedulingv1beta1.PodGroup{ObjectMeta: known.ObjectMeta}
	for _, c := range known.Claims {
		group.Spec.ResourceClaims = append(group.Spec.ResourceClaims, schedulingv1beta1.PodGroupResourceClaim(c))
	}
	return group, nil
}

// postFilter frees devices of PodGroups.
type postFilter struct {
	fwk.PostFilterPlugin
	s *Sharing
	f framework.Framework
}

// PostFilter also frees claims of the pod's PodGroup: the plugin does so at the end of a PodGroup's cycle alone.
func (f *postFilter) PostFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	result, status := f.PostFilterPlugin.PostFilter(ctx, cs, pod, nodes)
	if pod.Spec.SchedulingGroup == nil || status.Code() != fwk.Unschedulable || status.Message() != "" ||
		f.s.gangs.IsTrial(cs) || f.s.Free(ctx, f.f, pod) == 0 {
		return result, status
	}
	return result, fwk.NewStatus(fwk.Unschedulable, "deallocation of ResourceClaims of the PodGroup completed")
}

// Free deallocates the claims of pods that fit nowhere together, so that they may get devices of other nodes, and
// returns how many: those that are reserved for these pods or their PodGroups alone, that no pod on a node uses, and
// that can be used on some nodes alone. A scheduler that stops between the write of a claim and the first Binding
// leaves such claims behind.
func (s *Sharing) Free(ctx context.Context, f framework.Framework, pods ...*corev1.Pod) (freed int) {
	if s == nil || f.SharedDRAManager() == nil || !slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return len(p.Spec.ResourceClaims) > 0
	}) {
		return 0
	}
	dra, own := f.SharedDRAManager(), sets.New[types.UID]()
	for _, pod := range pods {
		own.Insert(pod.UID)
		if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
			if known := s.gangs.PodGroup(pod.Namespace, *g.PodGroupName); known != nil {
				own.Insert(known.UID)
			}
		}
	}
	seen := sets.New[types.UID]()
	for _, pod := range pods {
		for _, claim := range claimsOf(dra, pod) {
			a := claim.Status.Allocation
			users := reservedFor(claim)
			if seen.Has(claim.UID) || a == nil || a.NodeSelector == nil || len(users) == 0 || !own.HasAll(users...) ||
				isUsed(f, claim) {
				continue
			}
			seen.Insert(claim.UID)
			free := claim.DeepCopy()
			free.Status = resourcev1.ResourceClaimStatus{}
			_, err := f.ClientSet().ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, free,
				metav1.UpdateOptions{})
			log := klog.FromContext(ctx).WithValues("resourceClaim", klog.KObj(claim), "pod", klog.KObj(pod))
			if err != nil { // another attempt follows
				log.Error(err, "Could not deallocate a claim that no pod uses")
				continue
			}
			log.Info("Deallocated a claim that no pod uses and whose pods fit nowhere")
			freed++
		}
	}
	return freed
}

// isUsed reports whether a pod on a node uses a claim: a reservation for a PodGroup does not name its pods.
func isUsed(f framework.Framework, claim *resourcev1.ResourceClaim) bool {
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	isClaim := func(c *resourcev1.ResourceClaim) bool { return c.UID == claim.UID }
	uses := func(p fwk.PodInfo) bool {
		return slices.ContainsFunc(claimsOf(f.SharedDRAManager(), p.GetPod()), isClaim)
	}
	return err != nil || slices.ContainsFunc(nodes, func(node fwk.NodeInfo) bool {
		return slices.ContainsFunc(node.GetPods(), uses)
	})
}

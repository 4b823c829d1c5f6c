package claims

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/claim"
)

// victimsKey is where a dry run of preemption has its victims.
const victimsKey fwk.StateKey = "TenonClaimVictims"

// victims are the pods that a dry run has taken from a node.
type victims map[types.UID]*corev1.Pod

// Clone copies the victims for a dry run.
func (v victims) Clone() fwk.StateData { return maps.Clone(v) }

// victimsOf returns the victims of a dry run; nil for none.
func victimsOf(cs fwk.CycleState) victims {
	data, err := cs.Read(victimsKey)
	if err != nil {
		return nil
	}
	return data.(victims)
}

// PreFilterExtensions returns f: devices of victims can be given to the pod that evicts them.
func (f *chosenFirst) PreFilterExtensions() fwk.PreFilterExtensions { return f }

// RemovePod notes a victim.
func (f *chosenFirst) RemovePod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, victim fwk.PodInfo,
	_ fwk.NodeInfo,
) *fwk.Status {
	if pod := victim.GetPod(); planOf(cs) != nil && len(pod.Spec.ResourceClaims) > 0 {
		next := victims{pod.UID: pod}
		maps.Copy(next, victimsOf(cs))
		cs.Write(victimsKey, next)
	}
	return nil
}

// AddPod takes a victim back that is spared.
func (f *chosenFirst) AddPod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	delete(victimsOf(cs), added.GetPod().UID)
	return nil
}

// resolvable is a refusal by the plugin, which knows no preemption: pods of the node may have the devices that lack.
func resolvable(status *fwk.Status, node fwk.NodeInfo) *fwk.Status {
	claims := func(p fwk.PodInfo) bool { return len(p.GetPod().Spec.ResourceClaims) > 0 }
	if status.Code() == fwk.UnschedulableAndUnresolvable && status.Message() == notAllocated &&
		slices.ContainsFunc(node.GetPods(), claims) {
		return fwk.NewStatus(fwk.Unschedulable, notAllocated)
	}
	return status
}

// without returns what is allocated once pods are gone: a claim is deallocated when its last pod is, whether it came
// from a template or not. It returns nil if none of their claims is.
func (p *plan) without(gone victims) *structured.AllocatedState {
	var freed *structured.AllocatedState
	isGone := func(uid types.UID) bool { return gone[uid] != nil }
	seen := map[types.UID]bool{}
	for _, pod := range gone {
		for _, c := range claimsOf(p.dra, pod) {
			if seen[c.UID] || c.Status.Allocation == nil || !claim.EndsWith(reservedFor(c), isGone) {
				continue
			}
			if seen[c.UID] = true; freed == nil {
				p.read()
				if p.state == nil {
					return nil
				}
				freed = &structured.AllocatedState{
					AllocatedDevices:         p.state.AllocatedDevices.Clone(),
					AllocatedSharedDeviceIDs: p.state.AllocatedSharedDeviceIDs.Clone(),
					AggregatedCapacity:       p.state.AggregatedCapacity.Clone(),
				}
			}
			release(freed, c)
		}
	}
	return freed
}

// reservedFor returns the pods, or groups of pods, that a claim is reserved for.
func reservedFor(c *resourcev1.ResourceClaim) []types.UID {
	users := make([]types.UID, len(c.Status.ReservedFor))
	for i := range users {
		users[i] = c.Status.ReservedFor[i].UID
	}
	return users
}

// release takes the devices of a claim out of what is allocated.
func release(state *structured.AllocatedState, c *resourcev1.ResourceClaim) {
	for i := range c.Status.Allocation.Devices.Results {
		d := &c.Status.Allocation.Devices.Results[i]
		id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
		switch {
		case ptr.Deref(d.AdminAccess, false):
		case d.ShareID == nil:
			state.AllocatedDevices.Delete(id)
		default:
			state.AllocatedSharedDeviceIDs.Delete(structured.MakeSharedDeviceID(id, d.ShareID))
			if d.ConsumedCapacity != nil {
				state.AggregatedCapacity.Remove(structured.NewDeviceConsumedCapacity(id, d.ConsumedCapacity))
			}
		}
	}
}

package claims

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/claim"
)

// victimsKey is where a dry run of preemption, or an attempt of a plan, has its victims.
const victimsKey fwk.StateKey = "TenonClaimVictims"

// victims are the pods that have left their nodes in a dry run or an attempt. They do not change.
type victims struct {
	pods map[types.UID]*corev1.Pod

	once  sync.Once
	freed *structured.AllocatedState // what is allocated without them; nil where they free nothing
}

// Clone returns v.
func (v *victims) Clone() fwk.StateData { return v }

// victimsOf returns the victims of a dry run; nil for none.
func victimsOf(cs fwk.CycleState) *victims {
	data, err := cs.Read(victimsKey)
	if err != nil {
		return nil
	}
	return data.(*victims)
}

// has reports whether a pod is a victim.
func (v *victims) has(uid types.UID) bool { return v != nil && v.pods[uid] != nil }

// with returns the victims with others.
func (v *victims) with(pods ...*corev1.Pod) *victims {
	next := &victims{pods: map[types.UID]*corev1.Pod{}}
	if v != nil {
		maps.Copy(next.pods, v.pods)
	}
	for _, p := range pods {
		next.pods[p.UID] = p
	}
	return next
}

// Depart says which pods have left their nodes in an attempt.
func Depart(cs fwk.CycleState, pods []*corev1.Pod) {
	if len(pods) > 0 {
		cs.Write(victimsKey, victimsOf(cs).with(pods...))
	}
}

// PreFilterExtensions returns f: devices of victims can be given to the pod that evicts them.
func (f *chosenFirst) PreFilterExtensions() fwk.PreFilterExtensions { return f }

// RemovePod notes a victim.
func (f *chosenFirst) RemovePod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, victim fwk.PodInfo,
	_ fwk.NodeInfo,
) *fwk.Status {
	if pod := victim.GetPod(); anyPlanOf(cs) != nil && f.c.mayHold(pod) {
		Depart(cs, []*corev1.Pod{pod})
	}
	return nil
}

// AddPod takes a victim back that is spared. Any other pod is one that the node is kept for.
func (f *chosenFirst) AddPod(_ context.Context, cs fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	pod, gone := added.GetPod(), victimsOf(cs)
	switch {
	case gone.has(pod.UID):
		gone = gone.with()
		delete(gone.pods, pod.UID)
		cs.Write(victimsKey, gone)
	case anyPlanOf(cs) != nil && f.c.mayHold(pod):
		cs.Write(startersKey, append(slices.Clip(startersOf(cs)), pod))
	}
	return nil
}

// resolvable is a refusal by the plugin, which knows no preemption: pods of the node may have the devices that lack.
func (c *choice) resolvable(status *fwk.Status, node fwk.NodeInfo) *fwk.Status {
	if status.Code() == fwk.UnschedulableAndUnresolvable && status.Message() == notAllocated &&
		slices.ContainsFunc(node.GetPods(), func(p fwk.PodInfo) bool { return c.mayHold(p.GetPod()) }) {
		return fwk.NewStatus(fwk.Unschedulable, notAllocated)
	}
	return status
}

// without returns what is allocated once pods are gone; nil if none of their claims is free then.
func (p *plan) without(gone *victims) *structured.AllocatedState {
	if gone == nil {
		return nil
	}
	gone.once.Do(func() { gone.freed = p.free(gone) })
	return gone.freed
}

// free returns what is allocated without victims: a claim is deallocated when its last pod is gone, whether it came
// from a template or not.
func (p *plan) free(gone *victims) (freed *structured.AllocatedState) {
	seen := map[types.UID]bool{}
	for _, pod := range gone.pods {
		for _, c := range heldBy(p.dra, pod) {
			if seen[c.UID] || c.Status.Allocation == nil || !claim.EndsWith(reservedFor(c), gone.has) {
				continue
			}
			if seen[c.UID] = true; freed == nil {
				if p.read(); p.state == nil {
					return nil
				}
				freed = copied(p.state)
			}
			release(freed, c.Status.Allocation)
		}
	}
	if freed == nil {
		return nil
	}
	freed.AllocatedDevices.Insert(p.promises()...) // the victims may have some of them
	return freed
}

// promises returns the whole devices that claims were promised, of pods before this one in an attempt for example.
// Shares of devices have names of their own.
func (p *plan) promises() []structured.DeviceID {
	p.asked.Do(func() {
		all, _ := p.dra.ResourceClaims().List() // without it, a promised device may count as free
		for _, c := range all {
			a := p.dra.ResourceClaims().GetPendingAllocation(c.UID)
			if a == nil || c.Status.Allocation != nil {
				continue
			}
			for i := range a.Devices.Results {
				if d := &a.Devices.Results[i]; d.ShareID == nil && !ptr.Deref(d.AdminAccess, false) {
					p.promised = append(p.promised, structured.MakeDeviceID(d.Driver, d.Pool, d.Device))
				}
			}
		}
	})
	return p.promised
}

func copied(state *structured.AllocatedState) *structured.AllocatedState {
	return &structured.AllocatedState{
		AllocatedDevices:         state.AllocatedDevices.Clone(),
		AllocatedSharedDeviceIDs: state.AllocatedSharedDeviceIDs.Clone(),
		AggregatedCapacity:       state.AggregatedCapacity.Clone(),
	}
}

// reservedFor returns the pods, or groups of pods, that a claim is reserved for.
func reservedFor(c *resourcev1.ResourceClaim) []types.UID {
	users := make([]types.UID, len(c.Status.ReservedFor))
	for i := range users {
		users[i] = c.Status.ReservedFor[i].UID
	}
	return users
}

// charge adds the devices of a claim to what is allocated, release takes them out.
func charge(state *structured.AllocatedState, a *resourcev1.AllocationResult) {
	eachDevice(a, func(id structured.DeviceID) { state.AllocatedDevices.Insert(id) },
		func(id structured.SharedDeviceID) { state.AllocatedSharedDeviceIDs.Insert(id) },
		state.AggregatedCapacity.Insert)
}

func release(state *structured.AllocatedState, a *resourcev1.AllocationResult) {
	eachDevice(a, func(id structured.DeviceID) { state.AllocatedDevices.Delete(id) },
		func(id structured.SharedDeviceID) { state.AllocatedSharedDeviceIDs.Delete(id) },
		state.AggregatedCapacity.Remove)
}

// eachDevice calls whole with each device of an allocation that is allocated as a whole, and part and amount with each
// share of one. Admin access allocates nothing.
func eachDevice(a *resourcev1.AllocationResult, whole func(structured.DeviceID), part func(structured.SharedDeviceID),
	amount func(structured.DeviceConsumedCapacity),
) {
	for i := range a.Devices.Results {
		d := &a.Devices.Results[i]
		id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
		switch {
		case ptr.Deref(d.AdminAccess, false):
		case d.ShareID == nil:
			whole(id)
		default:
			part(structured.MakeSharedDeviceID(id, d.ShareID))
			if d.ConsumedCapacity != nil {
				amount(structured.NewDeviceConsumedCapacity(id, d.ConsumedCapacity))
			}
		}
	}
}

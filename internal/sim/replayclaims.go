package sim

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/journal"
)

// Why decisions about some pods are not made again. Such pods are placed as recorded.
const (
	lacksVolumes = "their pods have PersistentVolumeClaims, which a journal does not have"
	lacksClaims  = "their pods have ResourceClaims that the journal does not have"
	lacksSharing = "their pods share ResourceClaims that pods were promised before the journal begins"
)

// lacks returns why a decision cannot be made again; "" for no reason.
func (r *replay) lacks(d *journal.Decision) string {
	pod, dra := r.pod(types.UID(d.UID)), r.dra()
	switch {
	case pod == nil:
		return ""
	case hasVolumes(pod):
		return lacksVolumes
	case dra == nil && len(pod.Spec.ResourceClaims) > 0:
		return lacksClaims
	}
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err == nil && name == nil {
			continue // the pod needs no claim of this name
		}
		if err != nil {
			return lacksClaims // older programs recorded no claims, and a pod without its claims is not tried
		}
		claim, err := dra.ResourceClaims().Get(pod.Namespace, *name)
		if err != nil {
			return lacksClaims
		}
		if r.isPromised(claim) {
			return lacksSharing
		}
	}
	return ""
}

// hasVolumes reports whether a pod has volumes that others provide.
func hasVolumes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes,
		func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

// dra returns the claims, slices and classes as plugins read them; nil where no profile does.
func (r *replay) dra() fwk.SharedDRAManager {
	for _, f := range r.engine.core.Profiles { // all have those of the cluster
		if dra := f.SharedDRAManager(); dra != nil {
			return dra
		}
	}
	return nil
}

// isPromised reports whether a pod that is reserved as recorded was promised the devices of a claim.
func (r *replay) isPromised(claim *resourcev1.ResourceClaim) bool {
	if claim.Status.Allocation != nil {
		return false
	}
	for _, list := range r.promised {
		if slices.ContainsFunc(list, func(p journal.Promise) bool { return p.UID == string(claim.UID) }) {
			return true
		}
	}
	return false
}

// promise gives the claims of a pod the devices that a decision has promised them.
func (r *replay) promise(d *journal.Decision) {
	dra := r.dra()
	if dra == nil {
		return
	}
	for i := range d.Claims {
		claim := d.Claims[i].Object(d.UID)
		if dra.ResourceClaims().SignalClaimPendingAllocation(claim.UID, claim) == nil {
			r.promised[types.UID(d.UID)] = append(r.promised[types.UID(d.UID)], d.Claims[i])
		}
	}
}

// unpromise ends promise.
func (r *replay) unpromise(pod types.UID) {
	for _, p := range r.promised[pod] {
		r.dra().ResourceClaims().MaybeRemoveClaimPendingAllocation(types.UID(p.UID), false)
	}
	delete(r.promised, pod)
}

// written applies what the binding of a pod has written of a claim, before the event of the API server.
func (r *replay) written(claim *resourcev1.ResourceClaim) {
	dra := r.dra()
	if dra == nil || dra.ResourceClaims().AssumeClaimAfterAPICall(claim) != nil {
		return // a newer state is known, or the claim is gone
	}
	if claim.Status.Allocation == nil {
		return
	}
	// Its share of a device would count twice. A claim for extended resources had another UID in memory.
	dra.ResourceClaims().MaybeRemoveClaimPendingAllocation(claim.UID, true)
	if owner := metav1.GetControllerOfNoCopy(claim); owner != nil && convert.IsMade(claim) {
		for _, pending := range r.engine.claims.PendingOf(owner.UID) {
			if convert.IsMade(pending) {
				dra.ResourceClaims().MaybeRemoveClaimPendingAllocation(pending.UID, true)
			}
		}
	}
}

// follows reports whether caches of the scheduler follow the events of an object, beside those of pods and nodes.
func (e *engine) follows(o journal.Object) bool {
	switch o.(type) {
	case *resourcev1.ResourceClaim, *resourcev1.ResourceSlice, *resourcev1.DeviceClass, *resourcev1.DeviceTaintRule:
		return true
	}
	return false
}

// putFollowed applies the event of such an object. Its version is the recorded one, by which that of a write counts.
func (e *engine) putFollowed(o journal.Object, gone bool) {
	i := informerOf(o, e.factory).(*informer)
	old, known, err := i.GetStore().Get(o)
	utilruntime.Must(err) // it has a name
	switch {
	case gone && known:
		e.api.drop(i, old.(metav1.Object))
	case gone:
	case known:
		utilruntime.Must(i.GetStore().Update(o))
		for _, h := range i.handlers {
			h.OnUpdate(old, o)
		}
	default:
		utilruntime.Must(i.GetStore().Add(o))
		for _, h := range i.handlers {
			h.OnAdd(o, true)
		}
	}
}

// devicesOf returns the devices of promised claims. The names of shares are random, so they are left out.
func devicesOf(claims []journal.Promise) (list []string) {
	for i := range claims {
		var devices []string
		for _, d := range claims[i].Allocation.Devices.Results {
			devices = append(devices, d.Request+"="+convert.DeviceName(d.Driver, d.Pool, d.Device))
		}
		list = append(list, fmt.Sprintf("%s: %s", claims[i].Claim, strings.Join(devices, ", ")))
	}
	return list
}

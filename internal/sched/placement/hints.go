package placement

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// NodeResourceTopology, Volcano's Numatopology and Device as the framework names resources: <plural>.<version>.<group>.
const (
	topologies     fwk.EventResource = "noderesourcetopologies.v1alpha2.topology.node.k8s.io"
	numatopologies fwk.EventResource = "numatopologies.v1alpha1.nodeinfo.volcano.sh"
	devices        fwk.EventResource = "devices.v1alpha1.scheduling.koordinator.sh"
)

// EventsToRegister names the events that change accounts. Each event is about one node, and its hint wakes a pod only
// if that node would accept the pod now. The framework asks only the name that refused a pod, so each name registers
// all events.
func (d *decision) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	on := func(r fwk.EventResource, actions fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
		return fwk.ClusterEventWithHint{
			Event: fwk.ClusterEvent{Resource: r, ActionType: actions}, QueueingHintFn: hint,
		}
	}
	return []fwk.ClusterEventWithHint{
		on(fwk.Node, fwk.Add|fwk.UpdateNodeLabel|fwk.UpdateNodeAnnotation|fwk.UpdateNodeTaint|fwk.UpdateNodeCondition,
			d.afterNode),
		on(topologies, fwk.Add|fwk.Update, after(d, kube.SameTopology)),
		on(numatopologies, fwk.Add|fwk.Update, after(d, kube.SameNumatopology)),
		// Deleted too: whole GPUs are left to the kubelet on nodes without a Device.
		on(devices, fwk.Add|fwk.Update|fwk.Delete, after(d, kube.SameDevice)),
		// Update, not a narrower event: annotations of the refused pod itself count.
		on(fwk.Pod, fwk.Delete|fwk.Update, d.afterPod),
		on(fwk.Node, fwk.UpdateNodeAllocatable, d.afterNode), // of what is counted
		on(fwk.ResourceClaim, fwk.Update|fwk.Delete, d.afterClaim),
	}, nil
}

// afterNode is the hint for a change of a Node: it asks the account of that node.
func (d *decision) afterNode(_ klog.Logger, pod *corev1.Pod, _, obj any) (fwk.QueueingHint, error) {
	if n, ok := obj.(*corev1.Node); ok {
		return d.hint(pod, n.Name)
	}
	return fwk.QueueSkip, nil
}

// after asks the node that an object of its name describes, unless the account reads the same from it as before: the
// agent reported what was known, or only the time has moved.
// An object of an unknown type queues the pod, because nothing can be concluded from it.
func after[T metav1.Object](d *decision, same func(was, now T) bool) fwk.QueueingHintFn {
	return func(_ klog.Logger, pod *corev1.Pod, old, obj any) (fwk.QueueingHint, error) {
		was, had := old.(T)
		now, has := obj.(T)
		switch {
		case has && had && same(was, now):
			return fwk.QueueSkip, nil
		case has:
			return d.hint(pod, now.GetName())
		case had && obj == nil:
			return d.hint(pod, was.GetName())
		}
		return fwk.Queue, nil // another owner's cache: its objects are not ours to read
	}
}

// afterPod is the hint for a change of a pod. A pod that released something wakes the refused pod if their node accepts
// it. A change of the refused pod itself counts if a person or a controller made it: its status does not.
func (d *decision) afterPod(_ klog.Logger, pod *corev1.Pod, old, obj any) (fwk.QueueingHint, error) {
	was, _ := old.(*corev1.Pod)
	now, _ := obj.(*corev1.Pod)
	switch {
	case now != nil && now.UID == pod.UID:
		if was != nil && !kube.IsEdited(was, now) {
			return fwk.QueueSkip, nil // its status: our own refusal, most often
		}
		return fwk.Queue, nil
	case now != nil && was != nil && !moved(was, now):
		return fwk.QueueSkip, nil
	case now != nil:
		return d.hint(pod, now.Spec.NodeName)
	case was != nil:
		node := cmp.Or(was.Spec.NodeName, was.Status.NominatedNodeName)
		if node != "" && node == pod.Status.NominatedNodeName {
			return fwk.Queue, nil // it may have waited for this pod: its nomination ends if it does not fit now either
		}
		return d.hint(pod, node)
	}
	return fwk.QueueSkip, nil
}

// afterClaim is the hint for a change of a ResourceClaim: one that has lost its devices wakes the pod if their node
// accepts it.
func (d *decision) afterClaim(_ klog.Logger, pod *corev1.Pod, old, obj any) (fwk.QueueingHint, error) {
	was, _ := old.(*resourcev1.ResourceClaim)
	now, _ := obj.(*resourcev1.ResourceClaim)
	if was == nil || was.Status.Allocation == nil || now != nil && now.Status.Allocation != nil {
		return fwk.QueueSkip, nil
	}
	return d.hint(pod, convert.OnlyNode(was.Status.Allocation.NodeSelector))
}

// moved reports whether the record of what a pod holds has changed.
func moved(was, now *corev1.Pod) bool {
	return slices.ContainsFunc([]string{
		annotation.ResourceStatusKey, annotation.PredictedPlacementKey, annotation.DeviceAllocatedKey,
	}, func(key string) bool { return was.Annotations[key] != now.Annotations[key] })
}

// hint wakes the pod if the node accepts it: the account has room, no back-off holds, the node's labels match the pod's
// selectors, and the agent can enforce what the pod asks for. The store has every event before the queue has it.
func (d *decision) hint(pod *corev1.Pod, node string) (fwk.QueueingHint, error) {
	if node == "" {
		return fwk.QueueSkip, nil
	}
	known, _ := d.store.Node(node)
	r, refused := d.request(pod)
	if refused == nil && place.Fits(d.store.View(node), r).OK() && d.tracker.Accepts(node, r) &&
		admits(known.Object, pod) && d.enforced(known.Object, r).OK() &&
		(!leftToKubelet(d.store.View(node).Facts()) || d.offers(known.Object, pod, r)) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// admits reports whether the pod's selectors allow the node; one that has not appeared yet wakes the pod when it does.
func admits(node *corev1.Node, pod *corev1.Pod) bool {
	if node == nil {
		return false
	}
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return ok || err != nil // an affinity that cannot be read is its own plugin's to refuse
}

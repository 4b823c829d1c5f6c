package upstream

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// Patient adds to the rules by which a profile preempts that a pod has no more victims while its first ones go.
// Kubernetes sees that they do by the status of the pod, which is written beside the scheduling cycles here, and by the
// victims in the snapshot, which may have been taken when the first one was gone and the last one was not yet deleted.
func (e *Events) Patient(h fwk.Handle, rules preemption.Interface) preemption.Interface {
	return patient{rules, e, h, h.SharedInformerFactory().Core().V1().Pods().Lister()}
}

type patient struct {
	preemption.Interface
	events *Events
	handle fwk.Handle
	pods   corelisters.PodLister
}

func (p patient) PodEligibleToPreemptOthers(ctx context.Context, pod *corev1.Pod, nominated *fwk.Status,
) (bool, string) {
	if node := p.events.Nominated(pod.UID); node != pod.Status.NominatedNodeName {
		is := *pod
		pod, nominated = &is, nil // what the filters say of that node is not known
		pod.Status.NominatedNodeName = node
	}
	may, reason := p.Interface.PodEligibleToPreemptOthers(ctx, pod, nominated)
	node, err := p.handle.SnapshotSharedLister().NodeInfos().Get(pod.Status.NominatedNodeName)
	if !may || err != nil || nominated.Code() == fwk.UnschedulableAndUnresolvable {
		return may, reason
	}
	priority := corev1helpers.PodPriority(pod)
	for _, info := range node.GetPods() {
		if victim := info.GetPod(); corev1helpers.PodPriority(victim) < priority && p.goes(victim) {
			return false, "not eligible due to a pod on the nominated node that terminates since the snapshot."
		}
	}
	return true, ""
}

// goes reports whether a pod of the snapshot has been preempted, or is gone, since.
func (p patient) goes(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	is, err := p.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	for _, c := range is.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler {
			return is.DeletionTimestamp != nil
		}
	}
	return is.UID != pod.UID
}

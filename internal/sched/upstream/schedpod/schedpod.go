package schedpod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// PatchStatus writes what differs between the status of a pod and the wanted one, and no other field. It tries again
// where Retriable says so. It sends nothing where nothing differs.
func PatchStatus(ctx context.Context, client clientset.Interface, pod *corev1.Pod, want *corev1.PodStatus) error {
	return util.PatchPodStatus(ctx, client, pod.Name, pod.Namespace, &pod.Status, want)
}

// Retriable reports whether a request may succeed if it is sent again: after a conflict, and where the API server is
// not ready or does not answer.
func Retriable(err error) bool { return util.RetriableWithConflict(err) }

// HostPorts returns the ports of the node that a pod uses, those of its sidecar containers included.
func HostPorts(pod *corev1.Pod) []corev1.ContainerPort { return util.GetHostPorts(pod) }

// Tolerates reports whether a pod tolerates all taints of a node that keep pods from being scheduled.
func Tolerates(ctx context.Context, pod *corev1.Pod, node *corev1.Node) bool {
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.FromContext(ctx), node.Spec.Taints,
		pod.Spec.Tolerations, helper.DoNotScheduleTaintsFilterFunc(), true)
	return !untolerated
}

// NamespaceLabels returns the labels of a namespace as InterPodAffinity reads them; none for one that is unknown.
func NamespaceLabels(ctx context.Context, namespace string, known corelisters.NamespaceLister) labels.Set {
	return interpodaffinity.GetNamespaceLabelsSnapshot(klog.FromContext(ctx), namespace, known)
}

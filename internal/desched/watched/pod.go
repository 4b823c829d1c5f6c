package watched

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// readPod reads what a pod itself says.
func readPod(p *corev1.Pod) evict.Pod {
	out := evict.Pod{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Labels: p.Labels,
		Created: p.CreationTimestamp.Time, Terminating: p.DeletionTimestamp != nil,
		Succeeded: p.Status.Phase == corev1.PodSucceeded, Failed: p.Status.Phase == corev1.PodFailed,
		Fixed: fixed(p),
	}
	if p.Spec.Priority != nil {
		out.Priority = *p.Spec.Priority
	}
	out.QoS, _ = convert.ParseClass(p.Labels[annotation.QoSClass])
	out.EvictionCost = readCost(p, annotation.EvictionCost, &out.Fault)
	out.DeletionCost = readCost(p, corev1.PodDeletionCost, &out.Fault)
	_, out.Evictable = p.Annotations[annotation.Evictable]
	for _, c := range p.Status.Conditions {
		out.Ready = out.Ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue &&
			p.Status.Phase == corev1.PodRunning
	}
	for _, v := range p.Spec.Volumes {
		switch {
		case out.LocalVolume == "" && (v.EmptyDir != nil || v.HostPath != nil):
			out.LocalVolume = v.Name
		case out.ClaimedVolume == "" && v.PersistentVolumeClaim != nil:
			out.ClaimedVolume = v.PersistentVolumeClaim.ClaimName
		case out.ClaimedVolume == "" && v.Ephemeral != nil:
			out.ClaimedVolume = p.Name + "-" + v.Name
		}
	}
	return out
}

// fixed returns why a pod belongs to its node; empty if it does not.
func fixed(p *corev1.Pod) string {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return "it is a static pod of its node"
	}
	switch ref := metav1.GetControllerOf(p); {
	case ref == nil:
	case ref.Kind == "Node" && ref.APIVersion == "v1":
		return "it is a static pod of its node"
	case ref.Kind == "DaemonSet":
		return "it is of a DaemonSet"
	}
	return ""
}

func readCost(p *corev1.Pod, key string, fault *string) int32 {
	text, set := p.Annotations[key]
	if !set {
		return 0
	}
	cost, _, err := annotation.ParseEvictionCost(text)
	if err != nil {
		*fault = fmt.Sprintf("annotation %s of pod %s/%s: %s", key, p.Namespace, p.Name, err)
	}
	return cost
}

// refOf returns the pod of a job.
func refOf(j *migration.PodMigrationJob) corev1.ObjectReference {
	if j.Spec.PodRef == nil {
		return corev1.ObjectReference{}
	}
	return *j.Spec.PodRef
}

// readJob reads a job. pods are those of the namespace of its pod.
func readJob(j *migration.PodMigrationJob, pods map[types.UID]*corev1.Pod) *move.Job {
	out := convert.MigrationJob(j)
	for _, p := range pods {
		if refOf(j).UID == "" && p.Name == out.PodName {
			out.PodUID = string(p.UID)
		}
	}
	return out
}

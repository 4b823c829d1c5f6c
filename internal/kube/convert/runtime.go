package convert

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/forecast"
)

// Declared returns what a pod and its Job declare about the pod's run time. job is nil for a pod of none. What cannot
// be read declares nothing.
func Declared(pod *corev1.Pod, job *batchv1.Job) (d forecast.Declaration) {
	d.Pod, _, _ = parse(pod.Annotations, annotation.ExpectedRuntime, annotation.ParseExpectedRuntime)
	d.PodDeadline = deadline(pod.Spec.ActiveDeadlineSeconds)
	if job == nil {
		return d
	}
	d.Owner, _, _ = parse(job.Annotations, annotation.ExpectedRuntime, annotation.ParseExpectedRuntime)
	d.JobDeadline = deadline(job.Spec.ActiveDeadlineSeconds)
	// The deadline of a Job counts from the start of the Job, which may be before that of the pod.
	if started := Started(pod); d.JobDeadline > 0 && !started.IsZero() && job.Status.StartTime != nil {
		d.JobDeadline = max(d.JobDeadline-max(0, started.Sub(job.Status.StartTime.Time)), forecast.Shortest)
	}
	return d
}

// deadline reads activeDeadlineSeconds; 0 for none.
func deadline(seconds *int64) time.Duration {
	if seconds == nil || *seconds <= 0 {
		return 0
	}
	return time.Duration(min(*seconds, int64(forecast.Longest/time.Second))) * time.Second
}

// Started returns when a pod started on its node, or was bound; zero for a pod without a node.
func Started(pod *corev1.Pod) time.Time {
	if pod.Spec.NodeName != "" && pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return boundAt(pod)
}

// Ran returns when a pod started that has succeeded, and when its last container ended; zero for any other pod.
func Ran(pod *corev1.Pod) (started, ended time.Time) {
	if pod.Status.Phase != corev1.PodSucceeded {
		return started, ended
	}
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(ended) {
			ended = t.FinishedAt.Time
		}
	}
	if ended.IsZero() {
		return started, ended
	}
	return Started(pod), ended
}

// generated matches what Kubernetes appends to generateName, CronJobs to the names of their Jobs, and people to a
// series.
var generated = regexp.MustCompile(`-([bcdfghjklmnpqrstvwxz2456789]{5}|[0-9]+)$`)

// Workload identifies what a pod is a run of: pods of one namespace whose owners have a kind and, without its generated
// part, a name in common, and whose containers run the same.
func Workload(pod *corev1.Pod) string {
	kind, name := "Pod", pod.Name
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		kind, name = owner.Kind, strings.TrimSuffix(owner.Name, "-"+pod.Labels["pod-template-hash"])
	}
	hash := fnv.New64a()
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		text, _ := json.Marshal([]any{c.Name, c.Image, c.Command, c.Args, c.Resources}) // it came as JSON
		_, _ = hash.Write(text)
	}
	return fmt.Sprintf("%s/%s/%s/%x", pod.Namespace, kind, generated.ReplaceAllString(name, ""), hash.Sum64())
}

// OwnerName names the controller of a pod, or the pod without one: "job/NAMESPACE/NAME".
func OwnerName(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return strings.ToLower(owner.Kind) + "/" + pod.Namespace + "/" + owner.Name
	}
	return "pod/" + pod.Namespace + "/" + pod.Name
}

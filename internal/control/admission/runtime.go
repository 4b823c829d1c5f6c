package admission

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// DeclareRunTime returns a pod that is created with the run time that its Job declares, as an annotation: schedulers
// decide by what the pod says. The deadline of the Job counts from the Job's start, so it bounds the pod's run time
// from above. A pod that has the annotation, or whose Job declares nothing, is returned as it is.
func DeclareRunTime(pod *corev1.Pod, job *batchv1.Job) (*corev1.Pod, Answer) {
	if _, declares := pod.Annotations[annotation.ExpectedRuntime]; declares || job == nil {
		return pod, Answer{}
	}
	a := JobRunTime(job.Annotations, "Job "+job.Name+": ")
	declared := convert.Declared(pod, job).RunTime()
	if declared == convert.Declared(pod, nil).RunTime() {
		return pod, a
	}
	out := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, annotation.ExpectedRuntime, declared.Late.String())
	return out, a
}

// JobRunTime warns of a run time among the annotations of a Job that cannot be read. at is where these are.
func JobRunTime(annotations map[string]string, at string) (a Answer) {
	if text, has := annotations[annotation.ExpectedRuntime]; has {
		if _, _, err := annotation.ParseExpectedRuntime(text); err != nil {
			a.warn(at+annotationField(annotation.ExpectedRuntime), "%v; it has no effect", err)
		}
	}
	return a
}

package admission

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// tuning warns about annotations by which the agent isolates exclusive CPUs. Their keys are CRI-O's, which ignores
// other values: they refuse no pod.
func (a *Answer) tuning(pod *corev1.Pod, class qos.Class) {
	noted(a, pod, class, annotation.InterruptsKey, annotation.ParseInterrupts)
	noted(a, pod, class, annotation.SleepKey, annotation.ParseSleep)
}

func noted[T any](a *Answer, pod *corev1.Pod, class qos.Class, key string,
	parse func(string) (T, []annotation.Warning, error),
) {
	text, ok := pod.Annotations[key]
	if !ok {
		return
	}
	_, warnings, err := parse(text)
	switch {
	case err != nil:
		a.warn(annotationField(key), "%v; the annotation is ignored", err)
	case class != qos.LSE && class != qos.LSR:
		a.warn(annotationField(key), "Tenon follows it for pods of the classes LSE and LSR alone")
	default:
		a.values(annotationField(key), warnings)
	}
}

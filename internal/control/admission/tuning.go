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

// burst checks how far the pod may exceed its CPU limits.
func (a *Answer) burst(pod *corev1.Pod, class qos.Class) {
	c, ok := parsed(a, pod.Annotations, annotation.CPUBurstKey, annotation.ParseCPUBurst)
	if !ok {
		return
	}
	field := annotationField(annotation.CPUBurstKey)
	for _, name := range c.Unread() {
		a.warn(field, "no effect: %s", name)
	}
	switch class {
	case qos.BE:
		a.warn(field, "no effect on a batch pod, which keeps within its limits")
	case qos.LSE, qos.LSR:
		a.warn(field, "no effect on a pod of class %s: a pod with exclusive CPUs has no CPU quota", class)
	}
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

package object

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
)

// PodOption changes a pod that Pod builds.
type PodOption func(*corev1.Pod)

// Pod returns a pod without containers, named "namespace/name", or "name" in the namespace default. Its UID is its
// name; its labels and annotations are maps without entries. Options apply in their order.
func Pod(name string, options ...PodOption) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name)}
	p.UID = types.UID(p.Name)
	for _, o := range options {
		o(p)
	}
	return p
}

// meta returns the metadata of an object named "namespace/name", or "name" in the namespace default.
func meta(name string) metav1.ObjectMeta {
	namespace, own, ok := strings.Cut(name, "/")
	if !ok {
		namespace, own = metav1.NamespaceDefault, name
	}
	return metav1.ObjectMeta{
		Namespace: namespace, Name: own, Labels: map[string]string{}, Annotations: map[string]string{},
	}
}

// UID sets the UID.
func UID(uid string) PodOption { return func(p *corev1.Pod) { p.UID = types.UID(uid) } }

// On binds the pod to a node; "" leaves it unbound.
func On(node string) PodOption { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

// Scheduler names the scheduler.
func Scheduler(name string) PodOption { return func(p *corev1.Pod) { p.Spec.SchedulerName = name } }

// Priority sets the priority.
func Priority(value int32) PodOption { return func(p *corev1.Pod) { p.Spec.Priority = &value } }

// Created sets the time of creation.
func Created(at time.Time) PodOption {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(at) }
}

// PriorityClass names the priority class.
func PriorityClass(name string) PodOption {
	return func(p *corev1.Pod) { p.Spec.PriorityClassName = name }
}

// Phase sets the phase.
func Phase(phase corev1.PodPhase) PodOption { return func(p *corev1.Pod) { p.Status.Phase = phase } }

// Label sets a label; an empty value sets none.
func Label(key, value string) PodOption {
	return func(p *corev1.Pod) {
		if value != "" {
			p.Labels[key] = value
		}
	}
}

// Annotation sets an annotation; an empty value sets none.
func Annotation(key, value string) PodOption {
	return func(p *corev1.Pod) {
		if value != "" {
			p.Annotations[key] = value
		}
	}
}

// Class labels the pod with a QoS class, such as LSR; "" sets none.
func Class(class string) PodOption { return Label(annotation.QoSClass, class) }

// Gang makes the pod a member of a gang of at least so many, by annotations.
func Gang(name, least string) PodOption {
	return func(p *corev1.Pod) {
		Annotation(annotation.GangName, name)(p)
		Annotation(annotation.GangMinAvailable, least)(p)
	}
}

// CPUs records which CPUs the pod was given, such as "0-3,8"; "" records none.
func CPUs(list string) PodOption {
	if list == "" {
		return func(*corev1.Pod) {}
	}
	return Annotation(annotation.ResourceStatusKey, annotation.Encode(annotation.ResourceStatus{CPUSet: list}))
}

// Grace sets the grace period of the pod's end, in seconds.
func Grace(seconds int64) PodOption {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

// Probe adds a container named main with the image of the test ladder, which is never pulled.
func Probe(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: "main", Image: "localhost/probe:1", ImagePullPolicy: corev1.PullNever,
	})
}

// Container adds a container.
func Container(name, image string) PodOption {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: image})
	}
}

// last returns the resources of the last container; a pod without containers gets one, named main.
func last(p *corev1.Pod) *corev1.ResourceRequirements {
	if len(p.Spec.Containers) == 0 {
		Container("main", "app")(p)
	}
	return &p.Spec.Containers[len(p.Spec.Containers)-1].Resources
}

// Requests sets the requests of the last container from names and quantities in turn.
func Requests(pairs ...string) PodOption {
	return func(p *corev1.Pod) { last(p).Requests = List(pairs...) }
}

// Limits sets the limits of the last container from names and quantities in turn.
func Limits(pairs ...string) PodOption {
	return func(p *corev1.Pod) { last(p).Limits = List(pairs...) }
}

// Both sets requests and limits of the last container from names and quantities in turn.
func Both(pairs ...string) PodOption {
	return func(p *corev1.Pod) { *last(p) = Equal(pairs...) }
}

// Equal returns requests and limits that are equal, from names and quantities in turn.
func Equal(pairs ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: List(pairs...), Limits: List(pairs...)}
}

// List returns a list of resources from names and quantities in turn, such as "cpu", "500m". It leaves out a name whose
// quantity is "".
func List(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
	}
	return list
}

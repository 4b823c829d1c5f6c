package admission

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// devices checks what a pod asks of devices, by the function that the scheduler reads it with. A pod that is created
// with an allocation would be given devices that were not allocated to it.
func (a *Answer) devices(pod *corev1.Pod, kinds device.Kinds) {
	if _, forged := pod.Annotations[annotation.DeviceAllocatedKey]; forged {
		a.refuse(why.InvalidField, annotationField(annotation.DeviceAllocatedKey), "%s is set by the scheduler",
			annotation.DeviceAllocatedKey)
	}
	before := len(a.Refusals)
	types := kinds.Types()
	_, hinted := parsed(a, pod.Annotations, annotation.DeviceAllocateHintKey,
		annotation.ParseDeviceAllocateHints(types...))
	parsed(a, pod.Annotations, annotation.DeviceJointAllocateKey, annotation.ParseDeviceJointAllocate(types...))
	parsed(a, pod.Annotations, annotation.GPUPartitionSpecKey, annotation.ParseGPUPartitionSpec)
	if len(a.Refusals) > before || !hinted && !convert.AsksForDevices(pod, kinds) {
		return // what an annotation says decides how amounts are read
	}
	p, _, _ := convert.DevicePod(pod, kinds)
	request, faults := device.NewRequest(p, kinds)
	for _, f := range slices.Concat(device.Zeros(p.Containers), faults) {
		a.refuse(why.InvalidDeviceRequest, deviceField(pod, f), "%s", f.Text())
	}
	if request == nil {
		return
	}
	for _, f := range request.Warnings {
		a.warn(deviceField(pod, f), "%s", f.Text())
	}
	if slices.ContainsFunc(request.Parts, isShare) {
		a.visible(pod)
	}
}

// isShare reports whether a part of a request is parts of GPUs, which other containers may share.
func isShare(p device.Part) bool {
	return p.Type == device.GPU && !p.Need.Whole && p.Need.VendorName() == ""
}

// visible refuses variables by which the runtimes of vendors show GPUs to a container: in a pod with parts of GPUs they
// would show cards that are not the pod's, wherever the agent does not set them.
func (a *Answer) visible(pod *corev1.Pod) {
	for field, c := range containers(pod) {
		for i, e := range c.Env {
			vendor := slices.Contains([]string{"NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES"}, e.Name)
			if vendor && (e.ValueFrom != nil || !slices.Contains([]string{"", "void", "none"}, e.Value)) {
				a.refuse(why.InvalidField, indexed(field+".env", i), "%s is set by Tenon's agent in a pod with parts "+
					"of GPUs: remove it, or use the value void or none", e.Name)
			}
		}
	}
}

// deviceField is the path of the field that a fault is about: of a container's request, else of a hint.
func deviceField(pod *corev1.Pod, f device.Fault) string {
	if f.Container == "" {
		return annotationField(annotation.DeviceAllocateHintKey) + ": " + f.Field
	}
	for field, c := range containers(pod) {
		if c.Name == f.Container {
			return field + ".resources.requests[" + f.Field + "]"
		}
	}
	return f.Field
}

// deviceRequest is what a pod asks of devices; nil where it asks for none, and for what Create refuses.
func deviceRequest(pod *corev1.Pod, kinds device.Kinds) *device.Request {
	if !convert.AsksForDevices(pod, kinds) {
		return nil
	}
	p, reason, _ := convert.DevicePod(pod, kinds)
	request, faults := device.NewRequest(p, kinds)
	if !reason.OK() || len(faults) > 0 || len(device.Zeros(p.Containers)) > 0 {
		return nil
	}
	return request
}

// Schedule returns a pod that asks for devices and names no scheduler as one of the named scheduler, which counts
// devices, with a warning that says so.
func Schedule(pod *corev1.Pod, kinds device.Kinds, scheduler string) (*corev1.Pod, Answer) {
	var a Answer
	name := cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
	if name != corev1.DefaultSchedulerName || name == scheduler || !convert.AsksForDevices(pod, kinds) {
		return pod, a
	}
	out := pod.DeepCopy()
	out.Spec.SchedulerName = scheduler
	a.warn("spec.schedulerName", "set to %s: the pod requests devices, and its namespace has the label %s", scheduler,
		annotation.DeviceSchedulingLabel)
	return out, a
}

// Bind checks the Binding of a pod by someone who is not Tenon's scheduler, which serves the named scheduler.
func Bind(pod *corev1.Pod, kinds device.Kinds, scheduler string) (a Answer) {
	if convert.AsksForDevices(pod, kinds) {
		a.refuse(why.InvalidField, "metadata.name", "pod %s requests devices, which only Tenon binds here: its "+
			"spec.schedulerName must be %s, or its namespace must lose the label %s", pod.Name, scheduler,
			annotation.DeviceSchedulingLabel)
	}
	return a
}

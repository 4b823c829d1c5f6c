package oracle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// object is the pod that the API server would hand to the kubelet.
func (p *Pod) object() *corev1.Pod {
	out := &corev1.Pod{}
	out.UID, out.Name, out.Namespace = types.UID(p.UID), p.UID, "default"
	total := corev1.ResourceList{}
	for _, c := range p.Containers {
		spec := corev1.Container{Name: c.Name, Resources: p.resources(&c, total)}
		switch c.Role {
		case RoleApp:
			out.Spec.Containers = append(out.Spec.Containers, spec)
			continue
		case RoleSidecar:
			always := corev1.ContainerRestartPolicyAlways
			spec.RestartPolicy = &always
		}
		out.Spec.InitContainers = append(out.Spec.InitContainers, spec)
	}
	if p.PodLevel {
		out.Spec.Resources = &corev1.ResourceRequirements{Requests: total}
		if p.Guaranteed {
			out.Spec.Resources.Limits = total.DeepCopy()
		}
	}
	return out
}

// resources are those of a container, of which CPU and memory are added to total. Limits equal requests for a
// Guaranteed pod; else there are limits where the API demands them.
func (p *Pod) resources(c *Container, total corev1.ResourceList) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	set := func(name corev1.ResourceName, q *resource.Quantity, limited bool) {
		r.Requests[name] = *q
		if limited {
			r.Limits[name] = *q
		}
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			sum := total[name]
			sum.Add(*q)
			total[name] = sum
		}
	}
	if c.CPU > 0 {
		set(corev1.ResourceCPU, resource.NewMilliQuantity(c.CPU, resource.DecimalSI), p.Guaranteed)
	}
	for name, bytes := range c.Memory {
		limited := p.Guaranteed || corev1.ResourceName(name) != corev1.ResourceMemory
		set(corev1.ResourceName(name), resource.NewQuantity(bytes, resource.BinarySI), limited)
	}
	for name, count := range c.Devices {
		set(corev1.ResourceName(name), resource.NewQuantity(count, resource.DecimalSI), true)
	}
	return r
}

// read is the pod as the scheduler reads it; one of which no manager of the kubelet takes notice has no containers.
func read(pod *corev1.Pod) (*kubelet.Pod, error) {
	r, reason, detail := convert.Request(pod, convert.DefaultArgs())
	if !reason.OK() {
		return nil, fmt.Errorf("pod %s: %v: %s", pod.UID, reason, detail)
	}
	if r.Kubelet == nil {
		return &kubelet.Pod{UID: string(pod.UID)}, nil
	}
	return r.Kubelet, nil
}

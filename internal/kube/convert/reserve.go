package convert

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Schedulable returns the node as pods may use it: without the amounts that its reservation and exclusive CPUs of the
// class SYSTEM take off allocatable. It is the node itself where nothing is taken off. What cannot be read takes
// nothing.
func Schedulable(node *corev1.Node) *corev1.Node {
	taken := takenOff(node)
	if len(taken) == 0 {
		return node
	}
	reduced := *node
	reduced.Status.Allocatable = maps.Clone(node.Status.Allocatable)
	for name, amount := range taken {
		left, ok := reduced.Status.Allocatable[name]
		if !ok {
			continue
		}
		if left.Sub(amount); left.Sign() < 0 {
			left = resource.Quantity{Format: left.Format}
		}
		reduced.Status.Allocatable[name] = left
	}
	return &reduced
}

// RawAllocatable returns what a Node can allocate: where another program has amplified an amount, what it was before.
// An annotation that cannot be read, and one that says more than the Node shows, change nothing.
func RawAllocatable(node *corev1.Node) corev1.ResourceList {
	raw, amplified, err := parse(node.Annotations, annotation.RawAllocatableKey, annotation.ParseRawAllocatable)
	if !amplified || err != nil {
		return node.Status.Allocatable
	}
	all := maps.Clone(node.Status.Allocatable)
	for name, was := range raw {
		if shown, ok := all[name]; ok && was.Sign() > 0 && was.Cmp(shown) < 0 {
			all[name] = was
		}
	}
	return all
}

func takenOff(node *corev1.Node) corev1.ResourceList {
	_, reserves := node.Annotations[annotation.NodeReservation]
	_, gives := node.Annotations[annotation.NodeSystemQoSResource]
	if !reserves && !gives {
		return nil
	}
	taken := corev1.ResourceList{}
	var reserved []int
	r, _, _ := parse(node.Annotations, annotation.NodeReservation, annotation.ParseReservation)
	if r.ApplyPolicy != annotation.ApplyReservedCPUsOnly {
		maps.Copy(taken, r.Resources)
		reserved, _ = cpuset.ParseIDs(r.ReservedCPUs)
		if cpus := resource.NewQuantity(int64(len(reserved)), resource.DecimalSI); cpus.Cmp(*taken.Cpu()) > 0 {
			taken[corev1.ResourceCPU] = *cpus
		}
	}
	s, _, _ := parse(node.Annotations, annotation.NodeSystemQoSResource, annotation.ParseSystemQoSResource)
	if ids, err := cpuset.ParseIDs(s.CPUSet); err == nil && s.Exclusive() {
		ids = slices.DeleteFunc(ids, func(id int) bool { return slices.Contains(reserved, id) })
		cpus := taken.Cpu().DeepCopy()
		cpus.Add(*resource.NewQuantity(int64(len(ids)), resource.DecimalSI))
		taken[corev1.ResourceCPU] = cpus
	}
	if taken.Cpu().IsZero() {
		delete(taken, corev1.ResourceCPU)
	}
	return taken
}

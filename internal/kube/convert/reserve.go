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

// takenOff returns the amounts that leave a node's allocatable for all pods.
func takenOff(node *corev1.Node) corev1.ResourceList {
	taken := corev1.ResourceList{}
	var reserved []int
	if text, ok := node.Annotations[annotation.NodeReservation]; ok {
		r, _, err := annotation.ParseReservation(text)
		if err == nil && r.ApplyPolicy != annotation.ApplyReservedCPUsOnly {
			maps.Copy(taken, r.Resources)
			reserved, _ = cpuset.ParseIDs(r.ReservedCPUs)
			if cpus := resource.NewQuantity(int64(len(reserved)), resource.DecimalSI); cpus.Cmp(*taken.Cpu()) > 0 {
				taken[corev1.ResourceCPU] = *cpus
			}
		}
	}
	if text, ok := node.Annotations[annotation.NodeSystemQoSResource]; ok {
		s, _, err := annotation.ParseSystemQoSResource(text)
		if ids, errIDs := cpuset.ParseIDs(s.CPUSet); err == nil && errIDs == nil && s.Exclusive() {
			cpus := taken.Cpu().DeepCopy()
			cpus.Add(*resource.NewQuantity(int64(countWithout(ids, reserved)), resource.DecimalSI))
			taken[corev1.ResourceCPU] = cpus
		}
	}
	if taken.Cpu().IsZero() {
		delete(taken, corev1.ResourceCPU)
	}
	return taken
}

// countWithout counts the ids that others does not have.
func countWithout(ids, others []int) int {
	n := 0
	for _, id := range ids {
		if !slices.Contains(others, id) {
			n++
		}
	}
	return n
}

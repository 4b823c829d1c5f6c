package simoperator

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/api/annotation"
)

// spark returns the driver of a SparkApplication, and when it runs the executors that it creates. With a batch
// scheduler the operator creates a PodGroup as well, whose resources must be free before the driver starts.
func (o *Operator) spark(u *unstructured.Unstructured) (out []child, err error) {
	driver, cpu, memory, err := sparkPod(u, "driver")
	if err != nil {
		return nil, err
	}
	executor, executorCPU, executorMemory, err := sparkPod(u, "executor")
	if err != nil {
		return nil, err
	}
	instances := max(numberAt(u, "spec", "executor", "instances"), 1)
	if scheduler, _, _ := unstructured.NestedString(u.Object, "spec", "batchScheduler"); scheduler != "" {
		group := "spark-" + u.GetName() + "-pg"
		for range instances {
			cpu.Add(executorCPU)
			memory.Add(executorMemory)
		}
		c := o.childOf(u, map[string]any{
			"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": map[string]any{
				"minMember":    int64(1),
				"minResources": map[string]any{"cpu": cpu.String(), "memory": memory.String()},
			},
		})
		c.SetName(group)
		out = append(out, c)
		for _, pod := range []*unstructured.Unstructured{driver, executor} {
			labels := pod.GetLabels()
			labels[annotation.CommunityPodGroup] = group
			pod.SetLabels(labels)
			if err := unstructured.SetNestedField(pod.Object, scheduler, "spec", "schedulerName"); err != nil {
				return nil, err
			}
		}
	}
	driver.SetName(u.GetName() + "-driver")
	out = append(out, child{driver, u, false})
	running := o.find(driver)
	if running == nil || !isUp(running) {
		return out, nil
	}
	for i := range instances {
		pod := executor.DeepCopy()
		pod.SetName(fmt.Sprintf("%s-exec-%d", u.GetName(), i+1))
		labels := pod.GetLabels()
		labels["spark-exec-id"] = strconv.FormatInt(i+1, 10)
		pod.SetLabels(labels)
		out = append(out, child{pod, running, false})
	}
	return out, nil
}

// sparkPod returns the pod of a role, with what it requests.
func sparkPod(u *unstructured.Unstructured, role string) (pod *unstructured.Unstructured, cpu, memory resource.Quantity,
	err error,
) {
	fail := func(err error) (*unstructured.Unstructured, resource.Quantity, resource.Quantity, error) {
		return nil, cpu, memory, fmt.Errorf("spec.%s: %w", role, err)
	}
	spec, _, err := unstructured.NestedMap(u.Object, "spec", role)
	if err != nil {
		return fail(err)
	}
	text := func(field, otherwise string) string {
		s, _, _ := unstructured.NestedString(spec, field)
		return cmp.Or(s, otherwise)
	}
	cores, _, _ := unstructured.NestedInt64(spec, "cores")
	if cpu, err = annotation.ParseQuantity(text("coreRequest", strconv.FormatInt(max(cores, 1), 10))); err != nil {
		return fail(fmt.Errorf("coreRequest: %w", err))
	}
	if memory, err = sparkMemory(text("memory", "1g")); err != nil {
		return fail(err)
	}
	overhead := resource.NewQuantity(max(memory.Value()/10, 384<<20), resource.BinarySI)
	if own := text("memoryOverhead", ""); own != "" {
		given, err := sparkMemory(own)
		if err != nil {
			return fail(err)
		}
		overhead = &given
	}
	memory.Add(*overhead)
	object, _, err := unstructured.NestedMap(spec, "template")
	if err != nil {
		return fail(err)
	}
	if object == nil {
		object = map[string]any{}
	}
	object["apiVersion"], object["kind"] = "v1", "Pod"
	pod = &unstructured.Unstructured{Object: object}
	pod.SetNamespace(u.GetNamespace())
	labels := pod.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, map[string]string{
		"spark-role": role, "spark-app-selector": "spark-" + string(u.GetUID()),
		"sparkoperator.k8s.io/app-name":                   u.GetName(),
		"sparkoperator.k8s.io/launched-by-spark-operator": "true",
	})
	pod.SetLabels(labels)
	err = unstructured.SetNestedSlice(object, []any{map[string]any{
		"name": "spark-kubernetes-" + role, "image": "spark", "resources": map[string]any{
			"requests": map[string]any{"cpu": cpu.String(), "memory": memory.String()},
			"limits":   map[string]any{"memory": memory.String()},
		},
	}}, "spec", "containers")
	if err != nil {
		return fail(err)
	}
	for from, to := range map[string]string{"schedulerName": text("schedulerName", ""), "restartPolicy": "Never"} {
		if to != "" {
			if err := unstructured.SetNestedField(object, to, "spec", from); err != nil {
				return fail(err)
			}
		}
	}
	return pod, cpu, memory, nil
}

// sparkMemory reads an amount as the JVM writes it, such as 512m: a number of MiB or of another unit of 1024.
func sparkMemory(text string) (resource.Quantity, error) {
	lower := strings.TrimSuffix(strings.ToLower(text), "b")
	units := map[string]string{"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}
	for unit, suffix := range units {
		if number, ok := strings.CutSuffix(lower, unit); ok {
			return annotation.ParseQuantity(number + suffix)
		}
	}
	return annotation.ParseQuantity(lower + "Mi")
}

package simoperator

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// child is what an operator creates of an object. It is not created while it waits.
type child struct {
	*unstructured.Unstructured
	owner *unstructured.Unstructured
	waits bool
}

// running is how long the pods of a Job run: those of a Job that nothing is said about end after a second.
const running = `{"runFor":"1h"}`

const lwsLabel = "leaderworkerset.sigs.k8s.io/"

// wanted returns what an object should have.
func (o *Operator) wanted(u *unstructured.Unstructured) (out []child, err error) {
	kind := u.GroupVersionKind()
	rule := o.table.Find(kind.Group, kind.Version, kind.Kind)
	if rule == nil {
		return nil, nil // it is only read, such as a runtime of TrainJobs
	}
	plan, err := rule.Plan(u.Object, convert.WorkloadTerms(nil))
	if err != nil || plan.Suspended {
		return nil, err
	}
	objects, err := rule.Objects(u.Object)
	if kind.Kind == "TrainJob" {
		objects, err = o.jobSetOf(u)
	}
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		out = append(out, o.childOf(u, object))
	}
	var more []child
	switch kind.Kind {
	case "SparkApplication":
		more, err = o.spark(u)
	case "LeaderWorkerSet":
		more, err = o.statefulSets(u, &plan)
	default:
		return o.inOrder(u, &plan, out)
	}
	return append(out, more...), err
}

// inOrder adds the pods or Jobs of each role. Those that the operator creates later wait until the others run.
func (o *Operator) inOrder(u *unstructured.Unstructured, plan *workload.Plan, out []child) ([]child, error) {
	earlier := len(out) // children that run before a later one
	for _, isLater := range []bool{false, true} {
		for i := range plan.Pods {
			set := &plan.Pods[i]
			if set.Later != isLater {
				continue
			}
			more, err := o.ofRole(u, set)
			if err != nil {
				return nil, err
			}
			waits := (isLater || plan.Ordered) && !o.allRun(out[:earlier])
			for _, c := range more {
				c.waits = waits
				out = append(out, c)
			}
			if !isLater {
				earlier = len(out)
			}
		}
	}
	return out, nil
}

func (o *Operator) childOf(owner *unstructured.Unstructured, object map[string]any) child {
	u := &unstructured.Unstructured{Object: object}
	u.SetNamespace(owner.GetNamespace())
	return child{u, owner, false}
}

// ofRole returns the pods of a role, or the Jobs that make them.
func (o *Operator) ofRole(u *unstructured.Unstructured, set *workload.PodSet) (out []child, err error) {
	switch kind := u.GroupVersionKind(); {
	case kind.Kind == "JobSet":
		return o.jobs(u, set)
	case kind.Kind == "RayJob":
		return o.job(u, u.GetName(), map[string]any{}, set, set.Labels(0))
	case kind.Kind == "MPIJob" && kind.Version == "v2beta1" && set.Role == "launcher":
		return o.job(u, u.GetName()+"-launcher", map[string]any{}, set, set.Labels(0))
	}
	for i := range set.Count {
		pod, err := templateOf(set, set.Labels(i))
		if err != nil {
			return nil, err
		}
		pod["apiVersion"], pod["kind"] = "v1", "Pod"
		c := o.childOf(u, pod)
		c.SetName(set.Name(i))
		out = append(out, c)
	}
	return out, nil
}

// templateOf returns a template with more labels.
func templateOf(set *workload.PodSet, labels map[string]string) (map[string]any, error) {
	content, err := set.Content()
	if err != nil {
		return nil, err
	}
	t := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	if t.Object["metadata"] == nil {
		t.Object["metadata"] = map[string]any{}
	}
	all := t.GetLabels()
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	t.SetLabels(all)
	return t.Object, nil
}

// job returns a Job with a spec whose template is that of a role.
func (o *Operator) job(u *unstructured.Unstructured, name string, spec map[string]any, set *workload.PodSet,
	labels map[string]string,
) ([]child, error) {
	template, err := templateOf(set, labels)
	if err != nil {
		return nil, err
	}
	pod := &unstructured.Unstructured{Object: template}
	annotations := pod.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[annotation.SimulateKey] == "" {
		annotations[annotation.SimulateKey] = running
		pod.SetAnnotations(annotations)
	}
	if policy, _, _ := unstructured.NestedString(template, "spec", "restartPolicy"); policy == "" {
		if err := unstructured.SetNestedField(template, "OnFailure", "spec", "restartPolicy"); err != nil {
			return nil, err
		}
	}
	spec["template"] = template
	c := o.childOf(u, map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": spec})
	c.SetName(name)
	c.SetLabels(labels)
	return []child{c}, nil
}

// jobs returns the Jobs of a role of a JobSet, one for each index.
func (o *Operator) jobs(u *unstructured.Unstructured, set *workload.PodSet) (out []child, err error) {
	roles, _, err := unstructured.NestedSlice(u.Object, "spec", "replicatedJobs")
	if err != nil {
		return nil, err
	}
	spec := map[string]any{}
	for _, one := range roles {
		if role, _ := one.(map[string]any); role["name"] == set.Role {
			if spec, _, err = unstructured.NestedMap(role, "template", "spec"); err != nil {
				return nil, err
			}
		}
	}
	for key, value := range map[string]any{
		"parallelism": int64(1), "completionMode": "Indexed", "completions": spec["parallelism"],
	} {
		if spec[key] == nil && value != nil {
			spec[key] = value
		}
	}
	if spec["completions"] == nil {
		spec["completions"] = spec["parallelism"]
	}
	made := map[string]bool{}
	for i := range set.Count {
		labels := set.Labels(i)
		delete(labels, "batch.kubernetes.io/job-completion-index") // the Job's controller sets it
		index := labels["jobset.sigs.k8s.io/job-index"]
		if made[index] {
			continue
		}
		made[index] = true
		more, err := o.job(u, fmt.Sprintf("%s-%s-%s", u.GetName(), set.Role, index), maps.Clone(spec), set, labels)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// statefulSets returns the StatefulSet of the leaders of a LeaderWorkerSet, and for each leader that exists that of its
// workers. The policy in definitions gives the pods the labels that depend on their index.
func (o *Operator) statefulSets(u *unstructured.Unstructured, plan *workload.Plan) (out []child, err error) {
	leaders := int64(0)
	for i := range plan.Pods {
		if plan.Pods[i].Role == "leader" {
			leaders++
		}
	}
	waitsForLeader := false
	if policy, _, _ := unstructured.NestedString(u.Object, "spec", "startupPolicy"); policy == "LeaderReady" {
		waitsForLeader = true
	}
	for i := range plan.Pods {
		set := &plan.Pods[i]
		labels := set.Labels(0)
		c := child{owner: u}
		name, replicas, first, missing := u.GetName(), leaders, int64(0), lwsLabel+"group-index"
		if set.Role != "leader" {
			pod := o.podNamed(u, u.GetName()+"-"+labels[lwsLabel+"group-index"])
			if c.owner = pod; pod == nil {
				continue
			}
			c.waits = waitsForLeader && !isUp(pod)
			name, replicas, first, missing = pod.GetName(), set.Count, 1, lwsLabel+"worker-index"
		} else if len(out) > 0 {
			continue // one has all leaders
		}
		delete(labels, missing)
		template, err := templateOf(set, labels)
		if err != nil {
			return nil, err
		}
		selector := map[string]any{}
		for key, value := range labels {
			selector[key] = value
		}
		c.Unstructured = o.childOf(c.owner, map[string]any{
			"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": map[string]any{
				"replicas": replicas, "serviceName": u.GetName(), "podManagementPolicy": "Parallel",
				"ordinals": map[string]any{"start": first}, "selector": map[string]any{"matchLabels": selector},
				"template": template,
			},
		}).Unstructured
		c.SetName(name)
		out = append(out, c)
	}
	return out, nil
}

// jobSetOf returns the JobSet of a TrainJob.
func (o *Operator) jobSetOf(u *unstructured.Unstructured) ([]map[string]any, error) {
	kind, name, err := convert.TrainingRuntime(u.Object)
	if err != nil {
		return nil, err
	}
	wanted := &unstructured.Unstructured{}
	wanted.SetGroupVersionKind(schema.GroupVersionKind{
		Group: u.GroupVersionKind().Group, Version: "v1alpha1", Kind: kind,
	})
	wanted.SetName(name)
	key := name
	if kind != convert.ClusterTrainingRuntime {
		key = u.GetNamespace() + "/" + name
	}
	informer := o.informers[wanted.GroupVersionKind().GroupKind()]
	if informer == nil {
		return nil, fmt.Errorf("spec.runtimeRef.kind: %q is not allowed", kind)
	}
	found, exists, err := informer.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil, fmt.Errorf("%s %s does not exist", kind, name)
	}
	jobSet, err := convert.TrainJobSet(u.Object, found.(*unstructured.Unstructured).Object)
	return []map[string]any{jobSet}, err
}

// podNamed returns a pod in the namespace of an object.
func (o *Operator) podNamed(u *unstructured.Unstructured, name string) *unstructured.Unstructured {
	pod := o.childOf(u, map[string]any{"apiVersion": "v1", "kind": "Pod"})
	pod.SetName(name)
	return o.find(pod.Unstructured)
}

// allRun reports whether all pods of children run, or have ended well.
func (o *Operator) allRun(children []child) bool {
	for _, c := range children {
		if c.waits || !o.runs(c.Unstructured) {
			return false
		}
	}
	return true
}

func (o *Operator) runs(u *unstructured.Unstructured) bool {
	existing := o.find(u)
	if existing == nil {
		return false
	}
	switch existing.GetKind() {
	case "Pod":
		return isUp(existing)
	case "Job":
		up := int64(0)
		for _, pod := range o.childrenOf(existing) {
			if isUp(pod) {
				up++
			}
		}
		return up >= max(numberAt(existing, "spec", "parallelism"), 1)
	}
	children, err := o.wanted(existing)
	return err == nil && o.allRun(children)
}

func isUp(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return phase == "Running" || phase == "Succeeded"
}

package sim

import (
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	deploymentutil "k8s.io/kubernetes/pkg/controller/deployment/util"

	"github.com/tenon-project/tenon/internal/view"
)

// replaceStored leaves out the objects of a cluster that the input has in another state, as kubectl apply changes them.
// The new state keeps the identity and, unless it has one, the status of the stored object.
func replaceStored(objects []object) []object {
	type key struct {
		kind            reflect.Type
		namespace, name string
	}
	keyOf := func(o object) key {
		meta := o.Object.(metav1.Object)
		return key{reflect.TypeOf(o.Object), meta.GetNamespace(), meta.GetName()}
	}
	given := map[key]object{}
	for _, o := range objects {
		if o.file != clusterName {
			given[keyOf(o)] = o
		}
	}
	return slices.DeleteFunc(slices.Clone(objects), func(o object) bool {
		now, changed := given[keyOf(o)]
		if o.file != clusterName || !changed {
			return false
		}
		if _, isMetric := now.Object.(*nodeMetric); isMetric {
			return true
		}
		stored, meta := o.Object.(metav1.Object), now.Object.(metav1.Object)
		if meta.GetUID() == "" {
			meta.SetUID(stored.GetUID())
			meta.SetCreationTimestamp(stored.GetCreationTimestamp())
		}
		status := reflect.ValueOf(now.Object).Elem().FieldByName("Status")
		if status.IsValid() && status.IsZero() {
			status.Set(reflect.ValueOf(o.Object).Elem().FieldByName("Status"))
		}
		if p, isPod := now.Object.(*corev1.Pod); isPod && p.Spec.NodeName == "" {
			p.Spec.NodeName = o.Object.(*corev1.Pod).Spec.NodeName
		}
		return true
	})
}

// child is an object of the input that names its controller.
type child struct {
	metav1.Object
	owner metav1.OwnerReference
}

// objectName is that of an object of the input.
type objectName struct{ kind, namespace, name string }

// index notes the controllers of objects, and the names of pods and Deployments.
func (w *world) index(objects []object) {
	w.names = map[objectName]bool{}
	for _, o := range objects {
		meta := o.Object.(metav1.Object)
		switch o.Object.(type) {
		case *corev1.Pod:
			w.names[objectName{"Pod", meta.GetNamespace(), meta.GetName()}] = true
		case *appsv1.Deployment:
			w.names[objectName{"Deployment", meta.GetNamespace(), meta.GetName()}] = true
		}
		if ref := metav1.GetControllerOf(meta); ref != nil {
			w.children = append(w.children, child{meta, *ref})
		}
	}
}

// childrenOf returns the objects of a kind that an owner controls. An owner without UID controls those that name it.
func childrenOf[T metav1.Object](w *world, parent owner) (out []T) {
	for _, c := range w.children {
		o, ok := c.Object.(T)
		if ok && o.GetNamespace() == parent.namespace && c.owner.Kind == parent.kind && c.owner.Name == parent.name &&
			(parent.apiVersion == "" || c.owner.APIVersion == parent.apiVersion) &&
			(parent.uid() == parent.madeUID() || c.owner.UID == parent.given) {
			out = append(out, o)
		}
	}
	return out
}

// activePods returns the pods that count for replicas: those that neither have ended nor terminate.
func activePods(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
		return podutil.IsPodPhaseTerminal(p.Status.Phase) || p.DeletionTimestamp != nil
	})
}

// note keeps a warning about an object of the input.
func (w *world) note(kind string, o metav1.Object, format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf("warning: %s %s/%s: ", kind, o.GetNamespace(), o.GetName())+
		fmt.Sprintf(format, args...))
}

// deploy adds the pods that a Deployment lacks. They belong to its ReplicaSet with the same template, if the input has
// one.
func (w *world) deploy(o object, t *appsv1.Deployment, p *problems) {
	parent := ownedBy(t, "Deployment")
	sets := childrenOf[*appsv1.ReplicaSet](w, parent)
	var pods []*corev1.Pod
	for _, c := range w.children { // a dump may have the pods without the ReplicaSet that names both
		member, isPod := c.Object.(*corev1.Pod)
		if isPod && member.Namespace == t.Namespace && c.owner.Kind == "ReplicaSet" &&
			(c.owner.Name == t.Name+"-"+member.Labels[appsv1.DefaultDeploymentUniqueLabelKey] ||
				slices.ContainsFunc(sets, func(s *appsv1.ReplicaSet) bool { return s.Name == c.owner.Name })) {
			pods = append(pods, member)
		}
	}
	has := len(activePods(pods))
	current := deploymentutil.FindNewReplicaSet(t, sets)
	if current == nil {
		if len(sets) > 0 && has > 0 {
			w.note("Deployment", t, "its template is not that of its ReplicaSets: a rollout is not simulated, and its "+
				"%d pods count as they are", has)
		}
		// Its pods belong to a ReplicaSet, which default spread constraints look up.
		current = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name}}
		current.Spec.Selector = t.Spec.Selector
		current.UID = ownedBy(current, "ReplicaSet").uid()
		current.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(t,
			appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		w.listed = append(w.listed, current)
		w.addOwner(current, "ReplicaSet")
	}
	n := w.missing("Deployment", t, t.Spec.Replicas, has)
	w.replicate(o.origin, ownedBy(current, "ReplicaSet"), t.Spec.Template, n, p)
}

// missing returns how many pods an owner has too few, and warns about those that it has too many.
func (w *world) missing(kind string, o metav1.Object, want *int32, has int) int {
	n := int(*want)
	if n < has {
		w.note(kind, o, "has %s for %s: those that its controller will delete remain",
			view.Count(has, "pod"), view.Count(n, "replica"))
	}
	return max(n-has, 0)
}

// finished reports whether a Job makes no more pods.
func finished(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

func isUnfinished(j *batchv1.Job) bool { return !finished(j) }

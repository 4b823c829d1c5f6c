package sim

import (
	"fmt"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	daemonutil "k8s.io/kubernetes/pkg/controller/daemon/util"
	"k8s.io/utils/ptr"
)

// expand adds the pods of a workload, named OWNER-0, OWNER-1….
func (w *world) expand(o object, p *problems) {
	inCluster := o.file == clusterName // its pods are there already
	switch t := o.Object.(type) {
	case *appsv1.Deployment:
		if w.addOwner(t, "Deployment"); inCluster {
			return
		}
		// Its pods belong to a ReplicaSet, which default spread constraints look up.
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name}}
		set.Spec.Selector = t.Spec.Selector
		w.listed = append(w.listed, set)
		set.UID = ownedBy(t, "ReplicaSet").uid()
		set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(t,
			appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		w.addOwner(set, "ReplicaSet")
		w.replicate(o.origin, ownedBy(t, "ReplicaSet"), t.Spec.Template, 0, t.Spec.Replicas, p)
	case *appsv1.ReplicaSet:
		if inCluster {
			w.addOwner(t, "ReplicaSet")
			return
		}
		t.UID = ownedBy(t, "ReplicaSet").uid()
		w.addOwner(t, "ReplicaSet")
		w.listed = append(w.listed, t)
		w.replicate(o.origin, ownedBy(t, "ReplicaSet"), t.Spec.Template, 0, t.Spec.Replicas, p)
	case *corev1.ReplicationController:
		if !inCluster {
			w.listed = append(w.listed, t)
			w.replicate(o.origin, ownedBy(t, "ReplicationController"), *t.Spec.Template, 0, t.Spec.Replicas, p)
		}
	case *appsv1.StatefulSet:
		if inCluster {
			w.addOwner(t, "StatefulSet")
			return
		}
		t.UID = ownedBy(t, "StatefulSet").uid()
		w.addOwner(t, "StatefulSet")
		first := ptr.Deref(t.Spec.Ordinals, appsv1.StatefulSetOrdinals{}).Start
		w.listed = append(w.listed, t)
		before := len(w.pending)
		w.replicate(o.origin, ownedBy(t, "StatefulSet"), t.Spec.Template, first, t.Spec.Replicas, p)
		for _, member := range w.pending[before:] {
			w.claimTemplatesOf(t, member.Pod)
		}
	case *appsv1.DaemonSet:
		w.daemons(o.origin, t, p)
	case *batchv1.Job:
		w.job(o.origin, ownedBy(t, "Job"), t.Spec, p)
	case *batchv1.CronJob:
		if !ptr.Deref(t.Spec.Suspend, false) {
			w.job(o.origin, ownedBy(t, "Job"), t.Spec.JobTemplate.Spec, p)
		}
	}
}

type owner struct{ namespace, name, kind string }

func ownedBy(o metav1.Object, kind string) owner { return owner{o.GetNamespace(), o.GetName(), kind} }

// uid is what the pods of the owner say it has. It can be the value of a label.
func (o owner) uid() types.UID {
	return types.UID(uuid.NewSHA1(uuid.Nil, []byte(o.kind+"/"+o.namespace+"/"+o.name)).String())
}

func (w *world) job(at origin, parent owner, spec batchv1.JobSpec, p *problems) {
	if ptr.Deref(spec.Suspend, false) {
		return
	}
	n := ptr.Deref(spec.Parallelism, 1)
	n = min(n, ptr.Deref(spec.Completions, n))
	w.replicate(at, parent, spec.Template, 0, &n, p)
}

// maxPods bounds the pods of one input: more are likely to be a typing error.
const maxPods = 200_000

func (w *world) replicate(at origin, parent owner, template corev1.PodTemplateSpec, first int32, replicas *int32,
	p *problems,
) {
	completeTemplate(&template)
	n := int(ptr.Deref(replicas, 1))
	if total := len(w.existing) + len(w.pending) + n; total > maxPods {
		p.add(at, "%d replicas are too many: %d pods in all, at most %d are simulated", n, total, maxPods)
		return
	}
	for i := range n {
		w.member(at, parent, template, int(first)+i, p)
	}
}

func (w *world) member(at origin, parent owner, template corev1.PodTemplateSpec, i int, p *problems) {
	t := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	t.Namespace, t.Name = parent.namespace, fmt.Sprintf("%s-%d", parent.name, i)
	group := appsv1.SchemeGroupVersion
	switch parent.kind {
	case "Job":
		group = batchv1.SchemeGroupVersion
	case "ReplicationController":
		group = corev1.SchemeGroupVersion
	}
	t.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: group.String(), Kind: parent.kind, Name: parent.name, Controller: ptr.To(true),
		UID: parent.uid(),
	}}
	at.object += fmt.Sprintf(", pod %d", i)
	if t.Spec.NodeName != "" {
		p.add(at, "spec.template.spec.nodeName: a template that names a node is not supported")
		return
	}
	if w.claim(at, fmt.Sprintf("%T", t), t.Namespace, t.Name, p) {
		w.addPod(at, t, p)
	}
}

// daemons adds a pod for every node that the DaemonSet selects, by the controller's rules.
func (w *world) daemons(at origin, t *appsv1.DaemonSet, p *problems) {
	i := 0
	for _, node := range w.nodes {
		template := *t.Spec.Template.DeepCopy()
		completeTemplate(&template)
		daemonutil.AddOrUpdateDaemonPodTolerations(&template.Spec)
		if !wantsDaemon(node, &template) {
			continue
		}
		template.Spec.Affinity = daemonutil.ReplaceDaemonSetPodNodeNameNodeAffinity(template.Spec.Affinity, node.Name)
		w.member(at, ownedBy(t, "DaemonSet"), template, i, p)
		i++
	}
}

func wantsDaemon(node *corev1.Node, template *corev1.PodTemplateSpec) bool {
	probe := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(probe).Match(node); err != nil || !matches {
		return false
	}
	_, untolerated := v1helper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, probe.Spec.Tolerations,
		func(taint *corev1.Taint) bool {
			return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
		}, false)
	return !untolerated
}

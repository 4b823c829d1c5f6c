package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	daemonutil "k8s.io/kubernetes/pkg/controller/daemon/util"
	"k8s.io/utils/ptr"
)

// expand adds the pods that a workload lacks, named OWNER-0, OWNER-1…. Pods of the input that it controls count.
func (w *world) expand(o object, p *problems) {
	inCluster := o.file == clusterName // its pods are there already
	switch t := o.Object.(type) {
	case *appsv1.Deployment:
		if w.addOwner(t, "Deployment"); !inCluster {
			w.deploy(o, t, p)
		}
	case *appsv1.ReplicaSet:
		parent := ownedBy(t, "ReplicaSet")
		t.UID = parent.uid()
		w.addOwner(t, "ReplicaSet")
		w.listed = append(w.listed, t)
		ref := metav1.GetControllerOf(t)
		if inCluster || ref != nil && w.names[objectName{"Deployment", t.Namespace, ref.Name}] {
			return // the Deployment has the number of pods
		}
		has := len(activePods(childrenOf[*corev1.Pod](w, parent)))
		w.replicate(o.origin, parent, t.Spec.Template, w.missing("ReplicaSet", t, t.Spec.Replicas, has), p)
	case *corev1.ReplicationController:
		if !inCluster {
			w.listed = append(w.listed, t)
			parent := ownedBy(t, "ReplicationController")
			has := len(activePods(childrenOf[*corev1.Pod](w, parent)))
			w.replicate(o.origin, parent, *t.Spec.Template, w.missing(parent.kind, t, t.Spec.Replicas, has), p)
		}
	case *appsv1.StatefulSet:
		parent := ownedBy(t, "StatefulSet")
		t.UID = parent.uid()
		w.addOwner(t, "StatefulSet")
		w.listed = append(w.listed, t)
		if !inCluster {
			w.stateful(o.origin, parent, t, p)
			w.noteGangs(t, nil)
		}
	case *appsv1.DaemonSet:
		w.daemons(o.origin, t, p)
	case *unstructured.Unstructured:
		w.operate(o, t, p)
	case *batchv1.Job:
		before := len(w.pending)
		w.jobs[t.Namespace+"/"+t.Name] = t
		switch {
		case inCluster:
		case finished(t):
			w.idle(t, " has finished and creates no pods")
		case ptr.Deref(t.Spec.Suspend, false):
			w.idle(t, " is suspended and creates no pods")
		default:
			w.job(o.origin, ownedBy(t, "Job"), t.Spec, t.Status.Succeeded, p)
			w.noteGangs(t, w.pending[before:])
		}
	case *batchv1.CronJob:
		switch template := t.Spec.JobTemplate.Spec; {
		case ptr.Deref(t.Spec.Suspend, false):
			w.idle(t, " is suspended and creates no Jobs")
		case ptr.Deref(template.Suspend, false):
			w.idle(t, ": its Jobs are suspended and create no pods")
		case slices.ContainsFunc(childrenOf[*batchv1.Job](w, ownedBy(t, "CronJob")), isUnfinished):
			w.idle(t, ": one of its Jobs has not finished, so no other one is added")
		default:
			w.jobs[t.Namespace+"/"+t.Name] = &batchv1.Job{ObjectMeta: t.Spec.JobTemplate.ObjectMeta, Spec: template}
			w.job(o.origin, owner{namespace: t.Namespace, name: t.Name, kind: "Job"}, template, 0, p)
		}
	}
}

// owner is a controller of pods. given is its UID in the input; "" for none.
type owner struct {
	namespace, name, kind string
	given                 types.UID
	apiVersion            string // of a kind that is not Kubernetes'; "" for others
}

func ownedBy(o metav1.Object, kind string) owner {
	return owner{namespace: o.GetNamespace(), name: o.GetName(), kind: kind, given: o.GetUID()}
}

// uid is what the pods of the owner say it has.
func (o owner) uid() types.UID { return cmp.Or(o.given, o.madeUID()) }

// madeUID is the UID of an owner that has none in the input. It can be the value of a label.
func (o owner) madeUID() types.UID {
	return types.UID(uuid.NewSHA1(uuid.Nil, []byte(o.apiVersion+o.kind+"/"+o.namespace+"/"+o.name)).String())
}

// job adds the pods that a Job lacks, of which succeeded have ended.
func (w *world) job(at origin, parent owner, spec batchv1.JobSpec, succeeded int32, p *problems) {
	pods, n := childrenOf[*corev1.Pod](w, parent), ptr.Deref(spec.Parallelism, 1)
	if most := spec.Completions; most != nil {
		ended := int32(0)
		for _, c := range pods {
			if c.Status.Phase == corev1.PodSucceeded {
				ended++
			}
		}
		n = min(n, *most-max(succeeded, ended))
	}
	w.replicate(at, parent, spec.Template, int(n)-len(activePods(pods)), p)
}

// jobOf returns the Job that controls a pod; nil for a pod of none.
func (w *world) jobOf(p *corev1.Pod) *batchv1.Job {
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil && owner.Kind == "Job" {
		return w.jobs[p.Namespace+"/"+owner.Name]
	}
	return nil
}

// stateful adds the pods of a StatefulSet whose names no pod has.
func (w *world) stateful(at origin, parent owner, t *appsv1.StatefulSet, p *problems) {
	first, has := ptr.Deref(t.Spec.Ordinals, appsv1.StatefulSetOrdinals{}).Start, map[string]bool{}
	for _, c := range childrenOf[*corev1.Pod](w, parent) {
		has[c.Name] = true
	}
	w.missing("StatefulSet", t, t.Spec.Replicas, len(has))
	if !w.fits(at, int(*t.Spec.Replicas), p) {
		return
	}
	template := *t.Spec.Template.DeepCopy()
	completeTemplate(&template)
	for i := first; i < first+*t.Spec.Replicas; i++ {
		if before := len(w.pending); !has[fmt.Sprintf("%s-%d", t.Name, i)] {
			w.member(at, parent, template, int(i), p)
			for _, member := range w.pending[before:] {
				w.claimTemplatesOf(t.Spec.VolumeClaimTemplates, member.Pod)
			}
		}
	}
}

// maxPods bounds the pods of one input: more are likely to be a typing error.
const maxPods = 200_000

// fits reports whether the input may have n more pods.
func (w *world) fits(at origin, n int, p *problems) bool {
	total := len(w.existing) + len(w.pending) + n
	if total > maxPods {
		p.add(at, "%d replicas are too many: %d pods in all, at most %d are simulated", n, total, maxPods)
	}
	return total <= maxPods
}

// replicate adds n pods whose names no pod has.
func (w *world) replicate(at origin, parent owner, template corev1.PodTemplateSpec, n int, p *problems) {
	if !w.fits(at, n, p) {
		return
	}
	completeTemplate(&template)
	for i := 0; n > 0; i++ {
		if !w.names[objectName{"Pod", parent.namespace, fmt.Sprintf("%s-%d", parent.name, i)}] {
			w.member(at, parent, template, i, p)
			n--
		}
	}
}

func (w *world) member(at origin, parent owner, template corev1.PodTemplateSpec, i int, p *problems) {
	template.Name = fmt.Sprintf("%s-%d", parent.name, i)
	w.createMember(at, parent, template, i, p)
}

// reference returns the reference that the pods of the owner have.
func (o owner) reference() metav1.OwnerReference {
	group := appsv1.SchemeGroupVersion.String()
	switch o.kind {
	case "Job":
		group = batchv1.SchemeGroupVersion.String()
	case "ReplicationController":
		group = corev1.SchemeGroupVersion.String()
	}
	return metav1.OwnerReference{
		APIVersion: cmp.Or(o.apiVersion, group), Kind: o.kind, Name: o.name, Controller: ptr.To(true), UID: o.uid(),
	}
}

// createMember adds the pod of an owner that a template with the pod's name describes.
func (w *world) createMember(at origin, parent owner, template corev1.PodTemplateSpec, i int, p *problems) {
	t := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	t.Namespace, t.OwnerReferences = parent.namespace, []metav1.OwnerReference{parent.reference()}
	at.object += fmt.Sprintf(", pod %d", i)
	if t.Spec.NodeName != "" {
		p.add(at, "spec.template.spec.nodeName: a template that names a node is not supported")
		return
	}
	at.stored = false // whether or not its owner is
	if w.claim(at, fmt.Sprintf("%T", t), t.Namespace, t.Name, p) {
		w.addPod(at, t, p)
	}
}

// daemons adds a pod for every node that the DaemonSet selects and that has none, by the controller's rules.
func (w *world) daemons(at origin, t *appsv1.DaemonSet, p *problems) {
	i, parent, has := 0, ownedBy(t, "DaemonSet"), map[string]bool{}
	for _, c := range activePods(childrenOf[*corev1.Pod](w, parent)) {
		target, _ := daemonutil.GetTargetNodeName(c) // "" for a pod of no node
		has[target] = true
	}
	for _, node := range w.nodes {
		if has[node.Name] {
			continue
		}
		template := *t.Spec.Template.DeepCopy()
		completeTemplate(&template)
		daemonutil.AddOrUpdateDaemonPodTolerations(&template.Spec)
		if !wantsDaemon(node, &template) {
			continue
		}
		template.Spec.Affinity = daemonutil.ReplaceDaemonSetPodNodeNameNodeAffinity(template.Spec.Affinity, node.Name)
		for w.names[objectName{"Pod", t.Namespace, fmt.Sprintf("%s-%d", t.Name, i)}] {
			i++
		}
		w.member(at, parent, template, i, p)
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

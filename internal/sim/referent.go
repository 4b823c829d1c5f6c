package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	quotav1alpha1 "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// addReferent adds an object that pods refer to: upstream's plugins look it up.
func (w *world) addReferent(o runtime.Object) {
	meta := o.(metav1.Object)
	key := meta.GetNamespace() + "/" + meta.GetName()
	if meta.GetUID() == "" {
		meta.SetUID(types.UID(fmt.Sprintf("simulated/%T/%s", o, key)))
	}
	switch t := o.(type) {
	case *corev1.PersistentVolumeClaim:
		w.claims[key] = t
	case *corev1.PersistentVolume:
		if t.Status.Phase == "" || t.Status.Phase == corev1.VolumePending { // what the volume controller would write
			t.Status.Phase = corev1.VolumeAvailable
			if t.Spec.ClaimRef != nil {
				t.Status.Phase = corev1.VolumeBound
			}
		}
		w.volumes[t.Name] = t
	case *storagev1.StorageClass:
		w.storageClasses[t.Name] = t
	case *resourcev1.ResourceClaim:
		w.resourceClaims[key] = t
	case *resourcev1.ResourceClaimTemplate:
		w.claimTemplates[key] = t
		return // no plugin looks it up
	case *resourcev1.DeviceClass:
		w.deviceClasses[t.Name] = true
	case *resourcev1.ResourceSlice:
		w.slices = true
	}
	w.listed = append(w.listed, o)
}

// claimTemplatesOf gives a pod of a StatefulSet the volumes of the set's claim templates, and creates the claims that
// the input lacks, as the StatefulSet controller does.
func (w *world) claimTemplatesOf(templates []corev1.PersistentVolumeClaim, member *corev1.Pod) {
	for i := range templates {
		w.templated = append(w.templated, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: member.Namespace, Name: addClaimVolume(&templates[i], member, member.Name),
				Labels: templates[i].Labels,
			},
			Spec: *templates[i].Spec.DeepCopy(),
		})
	}
}

// addClaimVolume gives a pod the volume of a claim template, and returns the name of its claim: that of the template
// with the name of the claim's object, which is the pod or one above it.
func addClaimVolume(template *corev1.PersistentVolumeClaim, member *corev1.Pod, object string) (claim string) {
	claim = template.Name + "-" + object
	member.Spec.Volumes = slices.DeleteFunc(member.Spec.Volumes,
		func(v corev1.Volume) bool { return v.Name == template.Name })
	member.Spec.Volumes = append(member.Spec.Volumes, corev1.Volume{
		Name: template.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		},
	})
	return claim
}

// mounts reports whether a container of a pod mounts a volume.
func mounts(p *corev1.Pod, volume string) bool {
	return slices.ContainsFunc(append(slices.Clone(p.Spec.InitContainers), p.Spec.Containers...),
		func(c corev1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
		})
}

// createClaims creates the claims that controllers would create and the input lacks: those of StatefulSets, of
// ephemeral volumes, and of pods' resource claim templates. Claims without a storage class get the default one.
func (w *world) createClaims() {
	for _, entry := range w.pending {
		for i := range entry.Spec.Volumes {
			v := &entry.Spec.Volumes[i]
			if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
				continue
			}
			w.templated = append(w.templated, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: entry.Namespace, Name: entry.Name + "-" + v.Name, OwnerReferences: ownedByPod(entry.Pod),
				},
				Spec: *v.Ephemeral.VolumeClaimTemplate.Spec.DeepCopy(),
			})
		}
		w.createResourceClaims(entry.Pod)
	}
	for _, c := range w.templated {
		if key := c.Namespace + "/" + c.Name; w.claims[key] == nil {
			w.addReferent(c)
			w.created.Insert(key)
		}
	}
	name := w.defaultStorageClass()
	for _, c := range w.claims {
		switch {
		case c.Spec.VolumeName != "": // the volume controller has completed what the manifest begins
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnBindCompleted, "yes")
		case c.Spec.StorageClassName == nil && name != "":
			c.Spec.StorageClassName = &name
		}
	}
}

func ownedByPod(p *corev1.Pod) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true),
	}}
}

func (w *world) createResourceClaims(p *corev1.Pod) {
	for _, ref := range p.Spec.ResourceClaims {
		if ref.ResourceClaimTemplateName == nil ||
			slices.ContainsFunc(p.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool {
				return s.Name == ref.Name
			}) {
			continue
		}
		template := w.claimTemplates[p.Namespace+"/"+*ref.ResourceClaimTemplateName]
		if template == nil {
			continue
		}
		name, owner := p.Name+"-"+ref.Name, ownedByPod(p)
		if group := w.sharing(p, ref); group != nil {
			name, owner = group.Name+"-"+ref.Name, []metav1.OwnerReference{*metav1.NewControllerRef(group,
				group.GroupVersionKind())}
		}
		if w.resourceClaims[p.Namespace+"/"+name] == nil {
			w.addReferent(&resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, OwnerReferences: owner},
				Spec:       *template.Spec.Spec.DeepCopy(),
			})
		}
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses,
			corev1.PodResourceClaimStatus{Name: ref.Name, ResourceClaimName: &name})
	}
}

// sharing returns the PodGroup of Kubernetes whose pods share a claim of a pod; nil where the claim is the pod's own.
func (w *world) sharing(p *corev1.Pod, ref corev1.PodResourceClaim) *quotav1alpha1.PodGroup {
	if p.Spec.SchedulingGroup == nil {
		return nil
	}
	for _, group := range w.podGroups {
		if group.GroupVersionKind().Group == quotav1alpha1.NativeGroupName && group.Namespace == p.Namespace &&
			group.Name == ptr.Deref(p.Spec.SchedulingGroup.PodGroupName, "") &&
			slices.ContainsFunc(group.Claims, func(c corev1.PodResourceClaim) bool {
				return equality.Semantic.DeepEqual(c, ref)
			}) {
			return group
		}
	}
	return nil
}

// defaultStorageClass returns the name of the default class, the newest of several; "" for none.
func (w *world) defaultStorageClass() string {
	var out *storagev1.StorageClass
	for _, name := range slices.Sorted(maps.Keys(w.storageClasses)) {
		c := w.storageClasses[name]
		if c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" &&
			(out == nil || c.CreationTimestamp.After(out.CreationTimestamp.Time)) {
			out = c
		}
	}
	if out == nil {
		return ""
	}
	return out.Name
}

// missingObject says which object the decision about a pod needs and the input lacks; "" for none.
func (w *world) missingObject(p *corev1.Pod) string {
	if g, ok := convert.GangPod(p); ok && w.unread.Has("PodGroup "+g.Gang) {
		return fmt.Sprintf("PodGroup %s cannot be read", g.Gang)
	}
	if name := p.Labels[annotation.QuotaName]; name != "" {
		for object := range w.unread {
			if strings.HasPrefix(object, "ElasticQuota ") && strings.HasSuffix(object, "/"+name) {
				return fmt.Sprintf("%s cannot be read", object)
			}
		}
	}
	for _, key := range claimsOf(p) {
		if text := w.missingForVolume(key); text != "" {
			return text
		}
	}
	for _, ref := range p.Spec.ResourceClaims {
		if text := w.missingForDevices(p, ref); text != "" {
			return text
		}
	}
	return ""
}

// claimsOf returns the claims that a pod uses, as namespace/name.
func claimsOf(p *corev1.Pod) (keys []string) {
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			keys = append(keys, p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			keys = append(keys, p.Namespace+"/"+p.Name+"-"+v.Name)
		}
	}
	return keys
}

func (w *world) missingForVolume(key string) string {
	claim := w.claims[key]
	if claim == nil {
		return fmt.Sprintf("PersistentVolumeClaim %s is not in the input", key)
	}
	if name := claim.Spec.VolumeName; name != "" {
		if w.volumes[name] == nil {
			return fmt.Sprintf("PersistentVolume %s, to which claim %s is bound, is not in the input", name, key)
		}
		return ""
	}
	name := volume.GetPersistentVolumeClaimClass(claim)
	class := w.storageClasses[name]
	switch {
	case name == "":
		return fmt.Sprintf("PersistentVolumeClaim %s is not bound and has no storage class", key)
	case class == nil:
		return fmt.Sprintf("StorageClass %s of claim %s is not in the input", name, key)
	case ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingImmediate:
		return fmt.Sprintf("PersistentVolumeClaim %s is not bound, and its StorageClass %s binds a volume before "+
			"pods are "+
			"scheduled: give the claim with spec.volumeName, and that PersistentVolume", key, name)
	}
	return ""
}

func (w *world) missingForDevices(p *corev1.Pod, ref corev1.PodResourceClaim) string {
	if t := ref.ResourceClaimTemplateName; t != nil && w.claimTemplates[p.Namespace+"/"+*t] == nil {
		return fmt.Sprintf("ResourceClaimTemplate %s/%s is not in the input", p.Namespace, *t)
	}
	name, _, err := resourceclaim.Name(p, &ref)
	if err != nil || name == nil {
		return fmt.Sprintf("spec.resourceClaims: the claim for %s is not created", ref.Name)
	}
	claim := w.resourceClaims[p.Namespace+"/"+*name]
	if claim == nil {
		return fmt.Sprintf("ResourceClaim %s/%s is not in the input", p.Namespace, *name)
	}
	if claim.Status.Allocation != nil {
		return ""
	}
	for _, r := range claim.Spec.Devices.Requests {
		var classes []string
		if r.Exactly != nil {
			classes = append(classes, r.Exactly.DeviceClassName)
		}
		for _, sub := range r.FirstAvailable {
			classes = append(classes, sub.DeviceClassName)
		}
		for _, class := range classes {
			if !w.deviceClasses[class] {
				return fmt.Sprintf("DeviceClass %s of ResourceClaim %s/%s is not in the "+
					"input", class, p.Namespace, *name)
			}
		}
	}
	if !w.slices && len(claim.Spec.Devices.Requests) > 0 {
		return "no ResourceSlice is in the input"
	}
	return ""
}

// applyRuntimeClasses gives pods the overhead, node selector and tolerations of their RuntimeClass, as the API server's
// admission does. It refuses pods that contradict their class.
func (w *world) applyRuntimeClasses() {
	unknown := map[string]bool{}
	for i := range w.pending {
		entry := &w.pending[i]
		name := ptr.Deref(entry.Spec.RuntimeClassName, "")
		if name == "" || entry.stored {
			continue
		}
		class := w.runtimeClasses[name]
		if class == nil {
			unknown[name] = true
			continue
		}
		if problem := contradiction(entry.Pod, class); problem != "" {
			entry.refused = []Reason{{Code: why.InvalidField, Message: problem}}
			continue
		}
		if class.Overhead != nil {
			entry.Spec.Overhead = class.Overhead.PodFixed
		}
		if class.Scheduling == nil {
			continue
		}
		for key, value := range class.Scheduling.NodeSelector {
			if entry.Spec.NodeSelector == nil {
				entry.Spec.NodeSelector = map[string]string{}
			}
			entry.Spec.NodeSelector[key] = value
		}
		for _, t := range class.Scheduling.Tolerations {
			if !slices.Contains(entry.Spec.Tolerations, t) {
				entry.Spec.Tolerations = append(entry.Spec.Tolerations, t)
			}
		}
	}
	w.unknownClasses = slices.Sorted(maps.Keys(unknown))
}

// contradiction returns what a pod itself says against its RuntimeClass; "" for nothing.
func contradiction(p *corev1.Pod, class *nodev1.RuntimeClass) string {
	fixed := corev1.ResourceList{}
	if class.Overhead != nil {
		fixed = class.Overhead.PodFixed
	}
	if len(p.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(p.Spec.Overhead, fixed) {
		return fmt.Sprintf("spec.overhead: must be absent or that of RuntimeClass %s, %s: it is %s", class.Name,
			amountsText(fixed), amountsText(p.Spec.Overhead))
	}
	if class.Scheduling == nil {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		own, ok := p.Spec.NodeSelector[key]
		if value := class.Scheduling.NodeSelector[key]; ok && own != value {
			return fmt.Sprintf("spec.nodeSelector[%s]: must be absent or that of RuntimeClass %s, %q: it is %q", key,
				class.Name, value, own)
		}
	}
	return ""
}

// amountsText returns amounts by name, such as "cpu 250m, memory 64Mi"; "none" without any.
func amountsText(list corev1.ResourceList) string {
	var all []string
	for name, q := range list {
		all = append(all, string(name)+" "+q.String())
	}
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

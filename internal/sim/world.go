package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	schedulingrules "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	profiles "github.com/tenon-project/tenon/api/quota/v1alpha1"
	quotav1alpha1 "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

type pod struct {
	origin
	*corev1.Pod
	given map[string]string // the annotations before the webhooks; nil until then
}

// world is the checked input. Invariant: names are unique, and referenced objects exist.
type world struct {
	nodes      []*corev1.Node
	topologies []*v1alpha2.NodeResourceTopology
	// numatopologies describe nodes whose NodeResourceTopology has no CPU topology.
	numatopologies []*nodeinfo.Numatopology
	devices        []*devicev1alpha1.Device
	// quotas are sorted parents first. rules decide about the quotas of pods; nil until admitQuotas.
	quotas     []elasticQuota
	profiles   []quotaProfile
	podGroups  []*quotav1alpha1.PodGroup
	networks   []*devicev1alpha1.ClusterNetworkTopology
	rules      *quota.Checker
	namespaces map[string]*corev1.Namespace
	classes    map[string]*schedulingv1.PriorityClass
	// listed are objects about whose events no plugin is notified: those of default spread constraints, and
	// PodDisruptionBudgets.
	listed   []runtime.Object
	existing []pod
	pending  []pod
	// resources are the resources, besides memory, that are counted by NUMA node.
	resources *convert.Resources

	seen map[string]origin
}

func newWorld(objects []object, p *problems) *world {
	w := &world{namespaces: map[string]*corev1.Namespace{}, classes: builtinClasses(), seen: map[string]origin{}}
	for _, o := range objects { // nodes first, for the pods of DaemonSets
		if n, ok := o.Object.(*corev1.Node); ok {
			w.nodes = append(w.nodes, n)
		}
	}
	slices.SortFunc(w.nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, o := range objects {
		w.add(o, p)
	}
	for _, p := range slices.Concat(w.existing, w.pending) {
		w.namespace(p.Namespace)
	}
	return w
}

func (w *world) add(o object, p *problems) {
	meta := o.Object.(metav1.Object)
	if namespaced(o.Object) && meta.GetNamespace() == "" {
		meta.SetNamespace(metav1.NamespaceDefault)
	}
	invalid := validate(o.Object)
	for _, err := range invalid {
		p.add(o.origin, "%s", err.Error())
	}
	if len(invalid) > 0 || !w.claim(o.origin, fmt.Sprintf("%T", o.Object), meta.GetNamespace(), meta.GetName(), p) {
		return
	}
	switch t := o.Object.(type) {
	case *corev1.Node: // newWorld has added it
	case *policyv1.PodDisruptionBudget, *corev1.Service:
		w.listed = append(w.listed, o.Object)
	case *corev1.Namespace:
		w.namespaces[t.Name] = t
	case *schedulingv1.PriorityClass:
		w.classes[t.Name] = t
	case *v1alpha2.NodeResourceTopology:
		w.topologies = append(w.topologies, t)
	case *nodeinfo.Numatopology:
		w.numatopologies = append(w.numatopologies, t)
	case *devicev1alpha1.Device:
		w.devices = append(w.devices, t)
	case *quotav1alpha1.ElasticQuota:
		w.quotas = append(w.quotas, elasticQuota{o.origin, t})
	case *profiles.ElasticQuotaProfile:
		w.profiles = append(w.profiles, quotaProfile{o.origin, t})
	case *quotav1alpha1.PodGroup:
		if o.file != clusterName {
			answer := admission.PodGroup(t, nil)
			for _, r := range answer.Refusals {
				p.add(o.origin, "%s", r.String())
			}
		}
		w.podGroups = append(w.podGroups, t)
	case *devicev1alpha1.ClusterNetworkTopology:
		w.networks = append(w.networks, t)
	case *corev1.Pod:
		w.addPod(o.origin, t, p)
	default:
		w.expand(o, p)
	}
}

func namespaced(o runtime.Object) bool {
	switch o.(type) {
	case *corev1.Node, *corev1.Namespace, *schedulingv1.PriorityClass, *v1alpha2.NodeResourceTopology,
		*nodeinfo.Numatopology, *devicev1alpha1.Device, *devicev1alpha1.ClusterNetworkTopology:
		return false
	}
	return true
}

func (w *world) claim(at origin, kind, namespace, name string, p *problems) bool {
	key := kind + " " + namespace + "/" + name
	if first, taken := w.seen[key]; taken {
		p.add(at, "metadata.name: Duplicate value %q: it is also %s", name, first)
		return false
	}
	w.seen[key] = at
	return true
}

func (w *world) addPod(at origin, t *corev1.Pod, p *problems) {
	if t.UID == "" {
		t.UID = types.UID("simulated/" + t.Namespace + "/" + t.Name)
	}
	if !w.claim(at, "uid", "", string(t.UID), p) {
		return
	}
	entry := pod{origin: at, Pod: t}
	if t.Spec.NodeName != "" {
		w.existing = append(w.existing, entry)
		return
	}
	unsupported := unsupportedFields(&t.Spec)
	for _, text := range unsupported {
		p.add(at, "%s", text)
	}
	if len(unsupported) == 0 {
		w.pending = append(w.pending, entry)
	}
}

// unsupportedFields names the fields that need objects which the input cannot contain.
func unsupportedFields(s *corev1.PodSpec) []string {
	var out []string
	for i, v := range s.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			out = append(out, fmt.Sprintf("spec.volumes[%d]: persistent volumes are not supported yet", i))
		}
	}
	if len(s.ResourceClaims) > 0 {
		out = append(out, "spec.resourceClaims: dynamic resource allocation is not supported yet")
	}
	if s.RuntimeClassName != nil {
		out = append(out, "spec.runtimeClassName: RuntimeClass is not supported yet")
	}
	return out
}

// namespace returns a namespace of the input, and adds one that is only used.
func (w *world) namespace(name string) *corev1.Namespace {
	n := w.namespaces[name]
	if n == nil {
		n = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.namespaces[name] = n
	}
	metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, name)
	return n
}

func builtinClasses() map[string]*schedulingv1.PriorityClass {
	classes := map[string]*schedulingv1.PriorityClass{}
	for _, c := range schedulingrules.SystemPriorityClasses() {
		classes[c.Name] = c
	}
	for _, text := range deploy.PriorityClasses() {
		c := &schedulingv1.PriorityClass{}
		utilruntime.Must(yaml.UnmarshalStrict(text, c)) // it is part of the program
		classes[c.Name] = c
	}
	return classes
}

// prioritize sets the priority of every pod as the API server's admission does. A pod with a node keeps its own.
func (w *world) prioritize(p *problems) {
	fallback := w.fallbackClass()
	for _, entry := range slices.Concat(w.existing, w.pending) {
		if entry.Spec.NodeName != "" && entry.Spec.Priority != nil {
			continue
		}
		if text := w.priority(entry.Pod, fallback); text != "" {
			p.add(entry.origin, "%s", text)
		}
	}
}

func informerOf(o runtime.Object, f informers.SharedInformerFactory) cache.SharedIndexInformer {
	switch o.(type) {
	case *corev1.Service:
		return f.Core().V1().Services().Informer()
	case *appsv1.ReplicaSet:
		return f.Apps().V1().ReplicaSets().Informer()
	case *appsv1.StatefulSet:
		return f.Apps().V1().StatefulSets().Informer()
	case *policyv1.PodDisruptionBudget:
		return f.Policy().V1().PodDisruptionBudgets().Informer()
	}
	return f.Core().V1().Namespaces().Informer()
}

// latest returns the latest time in a pod of the input. The simulation starts at this time.
func (w *world) latest() time.Time {
	out := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, p := range w.existing {
		for _, t := range []*metav1.Time{&p.CreationTimestamp, p.Status.StartTime} {
			if t != nil && t.After(out) {
				out = t.Time
			}
		}
	}
	return out
}

// fallbackClass returns the global default with the lowest value; nil if there is none.
func (w *world) fallbackClass() *schedulingv1.PriorityClass {
	var out *schedulingv1.PriorityClass
	for _, c := range w.classes {
		if c.GlobalDefault && (out == nil || c.Value < out.Value || c.Value == out.Value && c.Name < out.Name) {
			out = c
		}
	}
	return out
}

func (w *world) priority(t *corev1.Pod, fallback *schedulingv1.PriorityClass) (problem string) {
	name := t.Spec.PriorityClassName
	class := w.classes[name]
	switch {
	case name != "" && class == nil:
		return fmt.Sprintf("spec.priorityClassName: Not found: %q: no PriorityClass of that name is in the input", name)
	case name == "" && t.Spec.Priority != nil:
		return ""
	case name == "" && fallback != nil:
		t.Spec.PriorityClassName, class = fallback.Name, fallback
	case name == "":
		class = &schedulingv1.PriorityClass{}
	}
	if given := t.Spec.Priority; given != nil && *given != class.Value {
		return fmt.Sprintf("spec.priority: Invalid value: %d: PriorityClass %s has %d", *given, class.Name, class.Value)
	}
	t.Spec.Priority = ptr.To(class.Value)
	if t.Spec.PreemptionPolicy == nil {
		t.Spec.PreemptionPolicy = class.PreemptionPolicy
	}
	return ""
}

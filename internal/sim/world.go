package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/informers"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	schedulingrules "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	colocation "github.com/tenon-project/tenon/api/colocation/v1alpha1"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	profiles "github.com/tenon-project/tenon/api/quota/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	quotav1alpha1 "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/limits"
)

type pod struct {
	origin
	*corev1.Pod
	given map[string]string // the annotations before the webhooks
	// operator are the labels that the operator of its owner sets; nil for other pods.
	operator map[string]string
	// refused is why the pod is refused before webhooks.admit; empty where it is not.
	refused []Reason
}

// world is the checked input. Invariant: names are unique, and referenced objects exist.
type world struct {
	nodes      []*corev1.Node
	topologies []*v1alpha2.NodeResourceTopology
	// numatopologies describe nodes whose NodeResourceTopology has no CPU topology.
	numatopologies []*nodeinfo.Numatopology
	devices        []*devicev1alpha1.Device
	// quotas are sorted parents first. rules decide about the quotas of pods; nil until admitQuotas.
	quotas       []elasticQuota
	profiles     []quotaProfile
	podGroups    []*quotav1alpha1.PodGroup
	reservations []*reservation.Reservation
	migrations   []*migration.PodMigrationJob
	owners       []*unstructured.Unstructured // of pods: workloads
	live         bool                         // objects are those of a cluster
	networks     []*devicev1alpha1.ClusterNetworkTopology
	metrics      []*nodeMetric
	// colocationProfiles change pods that are created; sorted by name from colocate on. config is that of the ConfigMap
	// slo-controller-config; nil without it.
	colocationProfiles []*admission.Profile
	config             *sloconfig.Config
	rules              *quota.Checker
	namespaces         map[string]*corev1.Namespace
	classes            map[string]*schedulingv1.PriorityClass
	// listed are objects about whose events no plugin is notified: those of default spread constraints, and
	// PodDisruptionBudgets.
	listed   []runtime.Object
	existing []pod
	pending  []pod
	jobs     map[string]*batchv1.Job // owners of pods by namespace/name, also those of CronJobs
	// until and scheduler are from the Input. now is when the simulation starts; zero for the latest time in the input.
	until Until
	// estimateEvery is from the Input.
	estimateEvery time.Duration
	scheduler     *config.KubeSchedulerConfiguration
	now           time.Time
	// claims, volumes, storageClasses, resourceClaims, claimTemplates and deviceClasses are what pods may refer to, by
	// namespace and name. Those that upstream's plugins look up are also in listed.
	claims         map[string]*corev1.PersistentVolumeClaim
	volumes        map[string]*corev1.PersistentVolume
	storageClasses map[string]*storagev1.StorageClass
	resourceClaims map[string]*resourcev1.ResourceClaim
	claimTemplates map[string]*resourcev1.ResourceClaimTemplate
	deviceClasses  map[string]bool
	// created are the claims among them that do not exist yet, by namespace/name. refusedClaims has why the API server
	// refuses some of these; nil until countQuotas.
	created       sets.Set[string]
	refusedClaims map[string]string
	// templated are claims that a controller would create unless the input has them.
	templated []*corev1.PersistentVolumeClaim
	// slices reports whether the input has a ResourceSlice.
	slices         bool
	runtimeClasses map[string]*nodev1.RuntimeClass
	// unknownClasses are the RuntimeClasses that pods name and the input lacks, sorted.
	unknownClasses []string
	// unread are stored objects that cannot be read whole, as KIND NAMESPACE/NAME.
	unread sets.Set[string]

	seen map[string]origin
	// children are the objects that name their controller, names those of pods and Deployments.
	children []child
	names    map[objectName]bool
	notes    []string // warnings about objects, a line each
	without  []string // why objects have no pods, a line each
	operated operated
	// limitRanges and resourceQuotas are those of a namespace, from which limits are made when they are asked for.
	limitRanges    map[string][]*corev1.LimitRange
	resourceQuotas map[string][]corev1.ResourceQuota
	limits         map[string]*limits.Limits
}

func newWorld(objects []object, table workload.Table, p *problems) *world {
	w := &world{
		limitRanges: map[string][]*corev1.LimitRange{}, resourceQuotas: map[string][]corev1.ResourceQuota{},
		limits: map[string]*limits.Limits{}, created: sets.New[string](),
		namespaces: map[string]*corev1.Namespace{}, classes: builtinClasses(), seen: map[string]origin{},
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		storageClasses: map[string]*storagev1.StorageClass{}, resourceClaims: map[string]*resourcev1.ResourceClaim{},
		claimTemplates: map[string]*resourcev1.ResourceClaimTemplate{}, deviceClasses: map[string]bool{},
		runtimeClasses: map[string]*nodev1.RuntimeClass{}, jobs: map[string]*batchv1.Job{},
	}
	for _, o := range objects {
		if meta := o.Object.(metav1.Object); namespaced(o.Object) && meta.GetNamespace() == "" {
			meta.SetNamespace(metav1.NamespaceDefault)
		}
	}
	objects = replaceStored(objects)
	w.index(objects)
	w.operated = newOperated(table, objects)
	for _, o := range objects { // nodes first, for the pods of DaemonSets
		if n, ok := o.Object.(*corev1.Node); ok {
			w.nodes = append(w.nodes, n)
		}
	}
	slices.SortFunc(w.nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	w.publishDevices(objects)
	for _, o := range objects {
		w.add(o, p)
	}
	w.createClaims()
	for _, p := range slices.Concat(w.existing, w.pending) {
		w.namespace(p.Namespace)
	}
	return w
}

// publishDevices writes into the Nodes what the manager writes there about their devices: amounts and labels.
func (w *world) publishDevices(objects []object) {
	devices := map[string]*devicev1alpha1.Device{}
	for _, o := range objects {
		if d, ok := o.Object.(*devicev1alpha1.Device); ok {
			devices[d.Name] = d
		}
	}
	for _, n := range w.nodes {
		d := devices[n.Name]
		for key, value := range convert.DeviceLabels(d) {
			metav1.SetMetaDataLabel(&n.ObjectMeta, key, value)
		}
		addAmounts(n, convert.Capacity(d))
	}
}

// addAmounts adds amounts to the status of a Node.
func addAmounts(n *corev1.Node, amounts corev1.ResourceList) {
	for name, amount := range amounts {
		addAmount(&n.Status.Capacity, name, amount)
		addAmount(&n.Status.Allocatable, name, amount)
	}
}

func addAmount(list *corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = amount
}

func (w *world) add(o object, p *problems) {
	meta := o.Object.(metav1.Object)
	w.live = w.live || o.file == clusterName
	if meta.GetName() == "" && meta.GetGenerateName() != "" {
		meta.SetName(w.generatedName(o.Object))
	}
	var invalid field.ErrorList
	if !o.stored {
		invalid = create(o.Object)
	}
	for _, err := range invalid {
		p.add(o.origin, "%s", err.Error())
	}
	if len(invalid) > 0 || !w.claim(o.origin, typeOf(o.Object), meta.GetNamespace(), meta.GetName(), p) {
		return
	}
	switch t := o.Object.(type) {
	case *corev1.Node: // newWorld has added it
	case *policyv1.PodDisruptionBudget, *corev1.Service:
		w.listed = append(w.listed, o.Object)
	case *nodev1.RuntimeClass:
		w.runtimeClasses[t.Name] = t
	case *corev1.PersistentVolumeClaim:
		w.addReferent(t)
		if !o.stored && t.Spec.VolumeName == "" {
			w.created.Insert(t.Namespace + "/" + t.Name)
		}
	case *corev1.PersistentVolume, *storagev1.StorageClass, *storagev1.CSINode,
		*storagev1.CSIDriver, *storagev1.CSIStorageCapacity, *storagev1.VolumeAttachment, *resourcev1.ResourceClaim,
		*resourcev1.ResourceClaimTemplate, *resourcev1.ResourceSlice, *resourcev1.DeviceClass:
		w.addReferent(o.Object)
	case *corev1.LimitRange:
		w.limitRanges[t.Namespace] = append(w.limitRanges[t.Namespace], t)
	case *corev1.ResourceQuota:
		w.resourceQuotas[t.Namespace] = append(w.resourceQuotas[t.Namespace], *t)
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
		if !o.stored {
			answer := admission.PodGroup(t, nil)
			for _, r := range answer.Refusals {
				p.add(o.origin, "%s", r.String())
			}
		}
		w.podGroups = append(w.podGroups, t)
	case *reservation.Reservation:
		w.addReservation(o.origin, t, p)
	case *migration.PodMigrationJob:
		w.addMigration(o.origin, t, p)
	case *devicev1alpha1.ClusterNetworkTopology:
		w.networks = append(w.networks, t)
	case *nodeMetric:
		w.metrics = append(w.metrics, t)
	case *colocation.ClusterColocationProfile:
		w.addColocationProfile(o.origin, t, p)
	case *corev1.ConfigMap:
		w.configure(o.origin, t, p)
	case *corev1.Pod:
		w.addPod(o.origin, t, p)
	default:
		w.expand(o, p)
	}
}

// generatedName returns a name that no object of the kind and namespace has yet, as long as the API server's: the same
// in each simulation.
func (w *world) generatedName(o runtime.Object) string {
	meta := o.(metav1.Object)
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s%05d", meta.GetGenerateName(), i)
		if _, taken := w.seen[keyOf(typeOf(o), meta.GetNamespace(), name)]; !taken {
			return name
		}
	}
}

func namespaced(o runtime.Object) bool {
	switch o.(type) {
	case *corev1.Node, *corev1.Namespace, *schedulingv1.PriorityClass, *v1alpha2.NodeResourceTopology,
		*nodeinfo.Numatopology, *devicev1alpha1.Device, *devicev1alpha1.ClusterNetworkTopology, *nodev1.RuntimeClass,
		*nodeMetric, *colocation.ClusterColocationProfile,
		*reservation.Reservation, *migration.PodMigrationJob, *corev1.PersistentVolume,
		*storagev1.StorageClass, *storagev1.CSINode, *storagev1.CSIDriver, *storagev1.VolumeAttachment,
		*resourcev1.ResourceSlice, *resourcev1.DeviceClass:
		return false
	}
	return true
}

// typeOf distinguishes objects of different kinds that have the same name.
func typeOf(o runtime.Object) string {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.GroupVersionKind().GroupKind().String()
	}
	return fmt.Sprintf("%T", o)
}

func keyOf(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func (w *world) claim(at origin, kind, namespace, name string, p *problems) bool {
	key := keyOf(kind, namespace, name)
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
	w.join(at, t)
	entry := pod{origin: at, Pod: t}
	if t.Spec.NodeName != "" {
		w.existing = append(w.existing, entry)
		return
	}
	w.pending = append(w.pending, entry)
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

// prioritize sets the priority of every pod as the API server's admission does, and refuses pods that it refuses. A pod
// that has a node or that is stored keeps its own.
func (w *world) prioritize(p *problems) {
	fallback := w.fallbackClass()
	for _, entry := range w.existing {
		if entry.Spec.Priority != nil {
			continue
		}
		if text := w.priority(entry.Pod, fallback); text != "" {
			p.add(entry.origin, "%s", text)
		}
	}
	for i := range w.pending {
		entry := &w.pending[i]
		if entry.stored && entry.Spec.Priority != nil {
			continue
		}
		if text := w.priority(entry.Pod, fallback); text != "" {
			entry.refused = append(entry.refused, Reason{Code: why.InvalidField, Message: text})
		}
	}
}

// informerOf returns the informer of an object of Kubernetes' own kinds.
func informerOf(o runtime.Object, f informers.SharedInformerFactory) cache.SharedIndexInformer {
	kinds, _, err := clientscheme.Scheme.ObjectKinds(o)
	utilruntime.Must(err) // the input has no other kinds that are listed
	resource, _ := apimeta.UnsafeGuessKindToResource(kinds[0])
	informer, err := f.ForResource(resource)
	utilruntime.Must(err)
	informer.Informer()          // the factory makes it where it has none
	return f.InformerFor(o, nil) // as it was made, not inside a typed one
}

// epoch is when a simulation starts without any time in its input.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// setStart sets when a simulation starts in which time passes: not before now, and without any time of a pod that runs,
// when the first pod is created.
func (w *world) setStart(now time.Time) {
	if w.until == (Until{}) {
		return
	}
	start := w.latest()
	if start.Equal(epoch) {
		for _, p := range w.pending {
			if at := p.CreationTimestamp.Time; !at.IsZero() && (at.Before(start) || start.Equal(epoch)) {
				start = at
			}
		}
	}
	if w.now = start; now.After(start) {
		w.now = now
	}
}

// latest returns the latest time in a pod of the input. The simulation starts at this time.
func (w *world) latest() time.Time {
	if !w.now.IsZero() {
		return w.now
	}
	out := epoch
	for _, p := range w.existing {
		for _, t := range []*metav1.Time{&p.CreationTimestamp, p.Status.StartTime} {
			if t != nil && t.After(out) {
				out = t.Time
			}
		}
	}
	for _, m := range w.metrics {
		if m.Report.Updated.After(out) {
			out = m.Report.Updated
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

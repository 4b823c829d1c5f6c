package sim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install" // the API server's own defaults and conversions
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/capabilities"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	colocation "github.com/tenon-project/tenon/api/colocation/v1alpha1"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	profiles "github.com/tenon-project/tenon/api/quota/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	quotav1alpha1 "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube"
)

type object struct {
	origin
	runtime.Object
}

// kinds of a group that affect only features that are not built.
var notBuilt = map[string]string{
	"PodGroup":         "gangs of APIs that are not read",
	"ElasticQuotaTree": "quota trees in one object",
	"Workload":         "templates of PodGroups; give the PodGroup",
}

// isIrrelevant reports whether an object cannot change where a pod is placed: it is of a kind that Kubernetes has and
// that is not read, in whatever version.
func isIrrelevant(kind schema.GroupVersionKind, name string) bool {
	switch {
	case kind.Group == "apiextensions.k8s.io" || kind.Group == "apiregistration.k8s.io":
		return true
	case kind.Kind == "ConfigMap":
		return kind.Group == "" && name != sloconfig.Name
	case kind.Group == "extensions": // all its kinds are gone, and some had pods
		return false
	case notBuilt[kind.Kind] != "" || isPodGroup(kind) || !clientscheme.Scheme.Recognizes(kind):
		return false
	}
	for _, version := range clientscheme.Scheme.PrioritizedVersionsForGroup(kind.Group) {
		if o, err := clientscheme.Scheme.New(version.WithKind(kind.Kind)); err == nil && isSupported(o) {
			return false
		}
	}
	return true
}

// supportedKinds is the text about the kinds of isSupported, and Device.
const supportedKinds = "Node, NodeResourceTopology, Numatopology, Device, ClusterNetworkTopology, Pod, " +
	"ReplicationController, LimitRange, ResourceQuota, " +
	"apps/v1 Deployment, ReplicaSet, StatefulSet and DaemonSet, batch/v1 Job and CronJob, " +
	"PersistentVolumeClaim, PersistentVolume, StorageClass, CSINode, CSIDriver, CSIStorageCapacity, " +
	"VolumeAttachment, " +
	"RuntimeClass, resource.k8s.io/v1 ResourceClaim, ResourceClaimTemplate, ResourceSlice and DeviceClass, " +
	"Service, Namespace, ElasticQuota, ElasticQuotaProfile, Reservation, PodMigrationJob, NodeMetric, " +
	"NodeSLO, ClusterColocationProfile, ConfigMap, " +
	"PodGroup of scheduling.k8s.io, " +
	"scheduling.sigs.k8s.io and scheduling.x-k8s.io, CompositePodGroup, " +
	"scheduling.k8s.io/v1 PriorityClass, policy/v1 PodDisruptionBudget and v1 List"

func isSupported(o runtime.Object) bool {
	switch o.(type) {
	case *corev1.Node, *v1alpha1.NodeResourceTopology, *v1alpha2.NodeResourceTopology, *nodeinfo.Numatopology,
		*corev1.Pod, *corev1.Service, *corev1.Namespace, *corev1.ReplicationController,
		*corev1.LimitRange, *corev1.ResourceQuota,
		*appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *appsv1.DaemonSet, *batchv1.Job, *batchv1.CronJob,
		*schedulingv1.PriorityClass, *policyv1.PodDisruptionBudget, *quotav1alpha1.ElasticQuota,
		*quotav1alpha1.PodGroup, *profiles.ElasticQuotaProfile, *devicev1alpha1.ClusterNetworkTopology,
		*reservation.Reservation, *migration.PodMigrationJob, *slo.NodeMetric, *slo.NodeSLO,
		*colocation.ClusterColocationProfile, *corev1.ConfigMap,
		*nodev1.RuntimeClass, *corev1.PersistentVolumeClaim, *corev1.PersistentVolume, *storagev1.StorageClass,
		*storagev1.CSINode, *storagev1.CSIDriver, *storagev1.CSIStorageCapacity, *storagev1.VolumeAttachment,
		*resourcev1.ResourceClaim, *resourcev1.ResourceClaimTemplate, *resourcev1.ResourceSlice,
		*resourcev1.DeviceClass:
		return true
	}
	return false
}

type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
		UID          string `json:"uid"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (h header) String() string {
	name := cmp.Or(h.Metadata.Name, h.Metadata.GenerateName)
	if h.Metadata.Namespace != "" {
		name = h.Metadata.Namespace + "/" + name
	}
	return strings.TrimSpace(h.Kind + " " + name)
}

type decoder struct {
	problems
	strict, lenient runtime.Decoder
	objects         []object
	// pruned are the unknown fields of objects of Tenon's kinds.
	pruned []prunedField
	// unused counts the irrelevant objects by kind.
	unused map[string]int
	table  workload.Table
	// foreign are the objects of groups that neither Kubernetes nor Tenon has.
	foreign []foreignObject
}

// foreignObject is an object that simulate does not read.
type foreignObject struct {
	origin
	kind, apiVersion string
}

// prunedField is an unknown field, which the API server prunes.
type prunedField struct {
	origin
	text string
}

// refuseUnread makes a problem of each foreign object and each pruned field.
func (d *decoder) refuseUnread() {
	for _, o := range d.foreign {
		d.addUnread(o.origin, o.kind, o.apiVersion)
	}
	for _, f := range d.pruned {
		d.add(f.origin, "%s", f.text)
	}
}

// addUnread makes a problem of an object of a kind that is not read.
func (d *decoder) addUnread(at origin, kind, apiVersion string) {
	group, _, _ := strings.Cut(apiVersion, "/")
	if feature := annotation.UnservedKind(kind, group); feature != "" {
		d.add(at, "kind: %s (%s) has no effect in this version: %s", kind, apiVersion, feature)
		return
	}
	d.add(at, "kind: %s (%s) is not known", kind, apiVersion)
}

// isForeign reports whether a group is of custom resources, and no kind of it is read. A group that has other kinds, or
// versions, here is not foreign: the kind may be misspelled.
func isForeign(group string) bool {
	return strings.Contains(group, ".") && !scheme().IsGroupRegistered(group)
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	capabilities.Setup(true, 0) // as API servers of clusters do: their own components are privileged
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, v1alpha2.AddToScheme, nodeinfo.AddToScheme, quotav1alpha1.AddToScheme,
		profiles.AddToScheme, devicev1alpha1.AddToScheme, reservation.AddToScheme, migration.AddToScheme,
		slo.AddToScheme, colocation.AddToScheme,
	} {
		utilruntime.Must(add(legacyscheme.Scheme))
	}
	return legacyscheme.Scheme
})

func newDecoder(table workload.Table) *decoder {
	return &decoder{
		table:   table,
		strict:  serializer.NewCodecFactory(scheme(), serializer.EnableStrict).UniversalDeserializer(),
		lenient: serializer.NewCodecFactory(scheme()).UniversalDeserializer(), unused: map[string]int{},
	}
}

func (d *decoder) document(doc document) {
	text, err := yaml.YAMLToJSONStrict(doc.text)
	if err != nil {
		d.add(doc.origin, "%s", oneLine(err))
		return
	}
	if string(text) == "null" { // kubectl skips it, too
		return
	}
	d.json(doc.origin, text, schema.GroupVersionKind{})
}

// json decodes one object, or the items of a list. want is the kind of the items of a typed list.
func (d *decoder) json(at origin, text []byte, want schema.GroupVersionKind) {
	var h header
	if err := json.Unmarshal(text, &h); err != nil {
		d.add(at, "this is not a Kubernetes object: %s", oneLine(err))
		return
	}
	if h.Kind == "" && want.Kind != "" {
		h.APIVersion, h.Kind = want.ToAPIVersionAndKind()
	}
	switch {
	case h.Kind == "":
		d.add(at, "kind: Required value: this is not a Kubernetes object")
	case h.APIVersion == "":
		d.add(at, "apiVersion: Required value for kind %s", h.Kind)
	case strings.HasSuffix(h.Kind, "List") && h.Items != nil:
		d.list(at, h)
	default:
		at.object, at.stored = h.String(), at.file == clusterName || h.Metadata.UID != ""
		d.one(at, h, text)
	}
}

func (d *decoder) list(at origin, h header) {
	if at.item > 0 {
		d.add(at, "kind: a %s inside of a list is not allowed", h.Kind)
		return
	}
	var want schema.GroupVersionKind
	if h.Kind != "List" {
		want = schema.FromAPIVersionAndKind(h.APIVersion, strings.TrimSuffix(h.Kind, "List"))
	}
	for i, item := range h.Items {
		at.item = i + 1
		d.json(at, item, want)
	}
}

func isPodGroup(k schema.GroupVersionKind) bool {
	return slices.ContainsFunc(quotav1alpha1.GangKinds(), func(kind quotav1alpha1.GangKind) bool {
		return kind.Kind == k.Kind && slices.ContainsFunc(kind.At, func(r schema.GroupVersionResource) bool {
			return r.GroupVersion() == k.GroupVersion()
		})
	})
}

func (d *decoder) one(at origin, h header, text []byte) {
	kind := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	if feature, later := notBuilt[h.Kind]; later && !isPodGroup(kind) && !isForeign(kind.Group) {
		d.add(at, "kind: %s (%s) is not supported yet: it is about %s", h.Kind, h.APIVersion, feature)
		return
	}
	if kind == devicev1alpha1.GroupVersion().WithKind("Device") {
		d.device(at, text)
		return
	}
	if isIrrelevant(kind, h.Metadata.Name) {
		d.unused[h.Kind]++
		return
	}
	if isOperated(d.table, kind) {
		out := &unstructured.Unstructured{}
		if err := out.UnmarshalJSON(text); err != nil {
			d.add(at, "%s", oneLine(err))
			return
		}
		out.SetGroupVersionKind(kind)
		d.objects = append(d.objects, object{at, out})
		return
	}
	var bad []string
	if annotation.HasSlowQuantity(string(text)) { // the decoder would take seconds
		bad = ofKind(kind, text)
	}
	for _, problem := range bad {
		d.add(at, "%s", problem)
	}
	if len(bad) > 0 {
		return
	}
	out, err := d.decode(at, kind, text)
	if isPodGroup(kind) && kind.Group == quotav1alpha1.NativeGroupName &&
		(err == nil || runtime.IsNotRegisteredError(err)) { // the library has no type of v1beta1
		out, err = kube.ReadPodGroup(kind, text)
	}
	if err != nil {
		d.refuse(at, h, kind, text, err)
		return
	}
	if !isSupported(out) {
		d.add(at, "kind: %s (%s) is not supported: the input may hold %s", h.Kind, h.APIVersion, supportedKinds)
		return
	}
	if _, old := out.(*v1alpha1.NodeResourceTopology); old { // its fields are a subset of the newer version's
		out = &v1alpha2.NodeResourceTopology{}
		if err := json.Unmarshal(text, out); err != nil {
			d.add(at, "read version v1alpha1: %v", err)
			return
		}
	}
	switch t := out.(type) {
	case *quotav1alpha1.ElasticQuota:
		t.SetGroupVersionKind(kind) // items of a list of their kind do not name it
	case *quotav1alpha1.PodGroup:
		t.SetGroupVersionKind(kind)
		for _, path := range slices.Sorted(maps.Keys(t.Unread)) {
			d.add(at, "%s: %s", path, t.Unread[path])
		}
	case *slo.NodeMetric:
		m := kube.ReadNodeMetric(text)
		if m.Problem != "" {
			d.add(at, "%s", m.Problem)
			return
		}
		out = &nodeMetric{m, t}
	case *slo.NodeSLO:
		d.unused[h.Kind]++
		return
	}
	scheme().Default(out)
	d.objects = append(d.objects, object{at, out})
}

// decode reads an object of a kind that the scheme has. The API server prunes unknown fields of custom resources, and
// what it stores has none that its version knows.
func (d *decoder) decode(at origin, kind schema.GroupVersionKind, text []byte) (runtime.Object, error) {
	out, _, err := d.strict.Decode(text, &kind, nil)
	unknown, ok := runtime.AsStrictDecodingError(err)
	if !ok || !at.stored && clientscheme.Scheme.IsGroupRegistered(kind.Group) {
		return out, err
	}
	for _, field := range unknown.Errors() {
		if !at.stored {
			d.pruned = append(d.pruned, prunedField{at, oneLine(field)})
		}
	}
	out, _, err = d.lenient.Decode(text, &kind, nil)
	return out, err
}

// device reads a Device in every spelling of its fields. It refuses fields that have no effect or cannot be read.
func (d *decoder) device(at origin, text []byte) {
	out, warnings, err := devicev1alpha1.Decode(text)
	if err != nil {
		d.add(at, "%s", oneLine(err))
		return
	}
	for _, w := range warnings {
		d.add(at, "%s", w)
	}
	for _, path := range slices.Sorted(maps.Keys(out.Unread)) {
		d.add(at, "%s: %s", path, out.Unread[path])
	}
	d.objects = append(d.objects, object{at, out})
}

func (d *decoder) refuse(at origin, h header, kind schema.GroupVersionKind, text []byte, err error) {
	if runtime.IsNotRegisteredError(err) && isForeign(kind.Group) {
		d.foreign = append(d.foreign, foreignObject{at, h.Kind, h.APIVersion})
		return
	}
	if runtime.IsNotRegisteredError(err) {
		d.addUnread(at, h.Kind, h.APIVersion)
		return
	}
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range strict.Errors() {
			d.add(at, "%s", oneLine(e))
		}
		return
	}
	bad := ofKind(kind, text)
	if len(bad) == 0 {
		bad = []string{fieldOf(err)}
	}
	for _, problem := range bad {
		d.add(at, "%s", problem)
	}
}

// ofKind returns the bad quantities of an object.
func ofKind(kind schema.GroupVersionKind, text []byte) []string {
	var value any
	if typed, unknown := scheme().New(kind); unknown == nil && json.Unmarshal(text, &value) == nil {
		return badQuantities(reflect.TypeOf(typed), value, nil)
	}
	return nil
}

// badQuantities returns the fields of a value of type t whose quantities cannot be read. The decoder's error does not
// name them.
func badQuantities(t reflect.Type, value any, path *field.Path) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[resource.Quantity]() {
		given := fmt.Sprint(value)
		if _, err := annotation.ParseQuantity(given); value != nil && err != nil {
			return []string{fmt.Sprintf("%s: Invalid value: %q: %s", path, given, oneLine(err))}
		}
		return nil
	}
	var out []string
	switch v := value.(type) {
	case []any:
		for i := range v {
			if t.Kind() == reflect.Slice {
				out = append(out, badQuantities(t.Elem(), v[i], path.Index(i))...)
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			switch t.Kind() {
			case reflect.Map:
				out = append(out, badQuantities(t.Elem(), v[key], path.Key(key))...)
			case reflect.Struct:
				for _, f := range reflect.VisibleFields(t) {
					if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == key {
						out = append(out, badQuantities(f.Type, v[key], path.Child(key))...)
						break
					}
				}
			}
		}
	}
	return out
}

// fieldOf returns the text of a type error with the path of the field first.
func fieldOf(err error) string {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Sprintf("%s: got %s where %s is expected", wrong.Field, wrong.Value, wrong.Type)
	}
	return oneLine(err)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

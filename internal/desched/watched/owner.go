package watched

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/evict"
)

// ownerKey names an owner of pods.
type ownerKey struct{ group, kind, namespace, name string }

// owner is what is kept of one.
type owner struct {
	uid      types.UID
	workload string         // key of what its pods belong to: its own, or that of its Deployment
	state    evict.Workload // without Key if it belongs to another one
}

// path is the fields to a value.
type path []string

func fields(dotted string) path { return strings.Split(dotted, ".") }

// kind is how a kind of owners is read. A path that is nil is of a field that the kind does not have.
type kind struct {
	group, version, kind, plural    string
	reads                           evict.Kind
	partition, paused               path // of the update
	expected, podsToDelete, reserve path
}

var kinds = []kind{
	{group: "apps", version: "v1", kind: "Deployment", plural: "deployments", reads: evict.Deployment},
	{group: "apps", version: "v1", kind: "ReplicaSet", plural: "replicasets", reads: evict.ReplicaSet},
	{
		group: "apps", version: "v1", kind: "StatefulSet", plural: "statefulsets", reads: evict.StatefulSet,
		partition: fields("spec.updateStrategy.rollingUpdate.partition"),
	},
	{
		group: "apps.kruise.io", version: "v1alpha1", kind: "CloneSet", plural: "clonesets", reads: evict.CloneSet,
		partition: fields("spec.updateStrategy.partition"), paused: fields("spec.updateStrategy.paused"),
		expected:     fields("status.expectedUpdatedReplicas"),
		podsToDelete: fields("spec.scaleStrategy.podsToDelete"),
	},
	{
		group: "apps.kruise.io", version: "v1beta1", kind: "StatefulSet", plural: "statefulsets",
		reads:     evict.StatefulSet,
		partition: fields("spec.updateStrategy.rollingUpdate.partition"),
		paused:    fields("spec.updateStrategy.rollingUpdate.paused"),
		reserve:   fields("spec.reserveOrdinals"),
	},
}

// scaledKind reads the kinds with the scale subresource that are not in the table.
var scaledKind = kind{reads: evict.Scaled}

func (k *kind) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.plural}
}

func kindOf(key ownerKey) *kind {
	for i := range kinds {
		if kinds[i].group == key.group && kinds[i].kind == key.kind {
			return &kinds[i]
		}
	}
	return nil
}

func groupOf(apiVersion string) string {
	return schema.FromAPIVersionAndKind(apiVersion, "").Group
}

// keyOf returns the key of a workload. Kinds of other groups than Kubernetes' own are named with it.
func keyOf(key ownerKey) string {
	name := key.kind
	if strings.Contains(key.group, ".") {
		name += "." + key.group
	}
	return evict.Key(key.namespace, name, key.name)
}

// keepOwner leaves out what is large and not read.
func keepOwner(u *unstructured.Unstructured) *unstructured.Unstructured {
	for _, dotted := range []string{
		"metadata.managedFields", "metadata.annotations", "spec.template", "spec.volumeClaimTemplates",
	} {
		unstructured.RemoveNestedField(u.Object, fields(dotted)...)
	}
	return u
}

// readOwner reads an owner of pods.
func readOwner(u *unstructured.Unstructured) (ownerKey, owner) {
	key := ownerKey{u.GroupVersionKind().Group, u.GetKind(), u.GetNamespace(), u.GetName()}
	o := owner{uid: u.GetUID(), workload: keyOf(key)}
	k := kindOf(key)
	if k == nil {
		k = &scaledKind
	}
	if ref := metav1.GetControllerOf(u); k.reads == evict.ReplicaSet && ref != nil {
		o.workload = keyOf(ownerKey{groupOf(ref.APIVersion), ref.Kind, key.namespace, ref.Name})
		return key, o
	}
	o.state = k.read(u.Object)
	o.state.Key = o.workload
	if o.state.Fault != "" {
		o.state.Fault = o.workload + ": " + o.state.Fault
	}
	return key, o
}

// reader reads fields of an object. The first one that cannot be read is its fault.
type reader struct {
	object map[string]any
	fault  string
}

func (r *reader) refuse(p path, rule string, value any) {
	if r.fault == "" {
		r.fault = fmt.Sprintf("%s %s, is %v", strings.Join(p, "."), rule, value)
	}
}

// find returns a value; false if it is absent.
func (r *reader) find(p path) (any, bool) {
	if p == nil {
		return nil, false
	}
	value, found, err := unstructured.NestedFieldNoCopy(r.object, p...)
	if err != nil {
		r.refuse(p, "must be in objects", err)
	}
	return value, found && value != nil && err == nil
}

// number returns a whole number of 0 or more; 0 if it is absent.
func (r *reader) number(p path) int {
	value, found := r.find(p)
	if !found {
		return 0
	}
	switch n := value.(type) {
	case int64:
		if n >= 0 && n <= math.MaxInt32 {
			return int(n)
		}
	case float64: // encoding/json decodes numbers to it
		if n >= 0 && n <= math.MaxInt32 && n == math.Trunc(n) {
			return int(n)
		}
	}
	r.refuse(p, "must be a whole number that fits int32", value)
	return 0
}

// numberOf returns a number, or a percentage of all, rounded up as Kruise does it.
func (r *reader) numberOf(p path, all int) int {
	value, _ := r.find(p)
	text, isText := value.(string)
	if !isText {
		return r.number(p)
	}
	number, isPercent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || !isPercent || n < 0 || n > 100 {
		r.refuse(p, "must be a whole number or 0% to 100%", text)
	}
	return (all*n + 99) / 100
}

func (r *reader) text(p path) string {
	value, found := r.find(p)
	text, isText := value.(string)
	if found && !isText {
		r.refuse(p, "must be a text", value)
	}
	return text
}

func (r *reader) flag(p path) bool {
	value, found := r.find(p)
	flag, isFlag := value.(bool)
	if found && !isFlag {
		r.refuse(p, "must be true or false", value)
	}
	return flag
}

func (r *reader) list(p path) []any {
	value, found := r.find(p)
	list, isList := value.([]any)
	if found && !isList {
		r.refuse(p, "must be a list", value)
	}
	return list
}

// read reads the numbers of an owner.
func (k *kind) read(object map[string]any) (w evict.Workload) {
	r := &reader{object: object}
	w.Kind = k.reads
	if _, found := r.find(fields("spec.replicas")); !found {
		r.refuse(fields("spec.replicas"), "must be a whole number that fits int32", "absent")
	}
	w.Replicas = r.number(fields("spec.replicas"))
	w.StatusReplicas = r.number(fields("status.replicas"))
	w.Updated = r.number(fields("status.updatedReplicas"))
	w.Ready = r.number(fields("status.readyReplicas"))
	w.Generation = int64(r.number(fields("metadata.generation")))
	w.Observed = int64(r.number(fields("status.observedGeneration")))
	if _, found := r.find(fields("status.observedGeneration")); !found && k.reads == evict.Scaled {
		w.Observed = w.Generation // not every kind has it
	}
	if k.reads == evict.Deployment {
		for _, condition := range r.list(fields("status.conditions")) {
			c, _ := condition.(map[string]any)
			w.Stalled = w.Stalled || c["type"] == "Progressing" && c["status"] == "False"
		}
	}
	if k.reads == evict.StatefulSet {
		w.OnDelete = r.text(fields("spec.updateStrategy.type")) == "OnDelete"
		w.CurrentRevision = r.text(fields("status.currentRevision"))
		w.UpdateRevision = r.text(fields("status.updateRevision"))
	}
	w.Partition, w.PausedUpdate = r.numberOf(k.partition, w.Replicas), r.flag(k.paused)
	if _, found := r.find(k.expected); found {
		n := r.number(k.expected)
		w.ExpectedUpdated = &n
	}
	for _, name := range r.list(k.podsToDelete) {
		w.Leaving = append(w.Leaving, fmt.Sprint(name))
	}
	for _, ordinals := range r.list(k.reserve) {
		w.Leaving = append(w.Leaving, r.reserved(k.reserve, ordinals)...)
	}
	w.Fault = r.fault
	return w
}

// reserved returns the names of pods with reserved ordinals: a number, or a range such as "3-5".
func (r *reader) reserved(p path, ordinals any) (names []string) {
	const most = 10_000
	first, last, isRange := strings.Cut(fmt.Sprint(ordinals), "-")
	if !isRange {
		last = first
	}
	from, err := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	if err != nil || errTo != nil || from < 0 || to < from || to-from >= most {
		r.refuse(p, "must be ordinals or ranges of them", ordinals)
		return nil
	}
	name := r.text(fields("metadata.name"))
	for n := from; n <= to; n++ {
		names = append(names, fmt.Sprintf("%s-%d", name, n))
	}
	return names
}

package watched

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
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

// kind is a kind of owners that is followed from the start.
type kind struct {
	group, version, kind, plural string
	reads                        evict.Kind
}

var kinds = []kind{
	{"apps", "v1", "Deployment", "deployments", evict.Deployment},
	{"apps", "v1", "ReplicaSet", "replicasets", evict.ReplicaSet},
	{"apps", "v1", "StatefulSet", "statefulsets", evict.StatefulSet},
	{"apps.kruise.io", "v1alpha1", "CloneSet", "clonesets", evict.CloneSet},
	{"apps.kruise.io", "v1beta1", "StatefulSet", "statefulsets", evict.StatefulSet},
}

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
		unstructured.RemoveNestedField(u.Object, strings.Split(dotted, ".")...)
	}
	return u
}

// readOwner reads an owner of pods.
func readOwner(u *unstructured.Unstructured) (ownerKey, owner) {
	key := ownerKey{u.GroupVersionKind().Group, u.GetKind(), u.GetNamespace(), u.GetName()}
	o := owner{uid: u.GetUID(), workload: keyOf(key)}
	reads := evict.Scaled
	if k := kindOf(key); k != nil {
		reads = k.reads
	}
	if ref := metav1.GetControllerOf(u); reads == evict.ReplicaSet && ref != nil {
		o.workload = keyOf(ownerKey{groupOf(ref.APIVersion), ref.Kind, key.namespace, ref.Name})
		return key, o
	}
	var err error
	if o.state, err = readWorkload(u, reads); err != nil {
		o.state.Fault = o.workload + ": " + err.Error()
	}
	o.state.Key = o.workload
	return key, o
}

// scaled is what all kinds have that can be scaled.
type scaled struct {
	Metadata struct{ Generation int64 }
	Spec     struct{ Replicas *uint32 }
	Status   struct {
		Replicas, UpdatedReplicas, ReadyReplicas uint32
		ObservedGeneration                       *int64
	}
}

// updated is what the kinds of the table have in addition, each a part of it.
type updated struct {
	Spec struct {
		UpdateStrategy struct {
			Type          string
			Partition     any // of a CloneSet: a number or a percentage
			Paused        bool
			RollingUpdate struct {
				Partition any
				Paused    bool
			}
		}
		ScaleStrategy   struct{ PodsToDelete []string }
		ReserveOrdinals []any
	}
	Status struct {
		Conditions                      []struct{ Type, Status string }
		CurrentRevision, UpdateRevision string
		ExpectedUpdatedReplicas         *int
	}
}

// readWorkload reads the numbers of an owner. The error is about the first field that cannot be read.
func readWorkload(u *unstructured.Unstructured, reads evict.Kind) (w evict.Workload, err error) {
	var all scaled
	if err := decode(u, &all); err != nil {
		return w, err
	} else if all.Spec.Replicas == nil {
		return w, errors.New("spec.replicas must be a whole number, is absent")
	}
	w = evict.Workload{
		Kind: reads, Replicas: int(*all.Spec.Replicas), StatusReplicas: int(all.Status.Replicas),
		Updated: int(all.Status.UpdatedReplicas), Ready: int(all.Status.ReadyReplicas),
		Generation: all.Metadata.Generation,
	}
	if at := all.Status.ObservedGeneration; at != nil {
		w.Observed = *at
	} else if reads == evict.Scaled {
		w.Observed = w.Generation // not every kind has it
	}
	if reads == evict.Scaled {
		return w, nil
	}
	var more updated
	if err := decode(u, &more); err != nil {
		return w, err
	}
	update := more.Spec.UpdateStrategy
	for _, c := range more.Status.Conditions {
		w.Stalled = w.Stalled || c.Type == "Progressing" && c.Status == "False"
	}
	w.OnDelete, w.PausedUpdate = update.Type == "OnDelete", update.Paused || update.RollingUpdate.Paused
	w.CurrentRevision, w.UpdateRevision = more.Status.CurrentRevision, more.Status.UpdateRevision
	w.ExpectedUpdated, w.Leaving = more.Status.ExpectedUpdatedReplicas, more.Spec.ScaleStrategy.PodsToDelete
	partition := cmp.Or(update.Partition, update.RollingUpdate.Partition)
	if w.Partition, err = part(partition, w.Replicas); err != nil {
		return w, err
	}
	for _, ordinals := range more.Spec.ReserveOrdinals {
		names, err := reserved(u.GetName(), fmt.Sprint(ordinals))
		if err != nil {
			return w, err
		}
		w.Leaving = append(w.Leaving, names...)
	}
	return w, nil
}

// decode reads fields of an object.
func decode(u *unstructured.Unstructured, into any) error {
	text, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(into)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		wanted := map[reflect.Kind]string{
			reflect.String: "a text", reflect.Bool: "true or false", reflect.Slice: "a list",
			reflect.Struct: "an object",
		}[wrong.Type.Kind()]
		name := regexp.MustCompile(`\b[A-Z]`).ReplaceAllStringFunc(wrong.Field, strings.ToLower)
		return fmt.Errorf("%s must be %s, is a %s", name, cmp.Or(wanted, "a whole number"), wrong.Value)
	}
	return err
}

// part reads a number, or a percentage of all, rounded up as Kruise does it.
func part(value any, all int) (int, error) {
	if value == nil {
		return 0, nil
	}
	number, isPercent := strings.CutSuffix(fmt.Sprint(value), "%")
	n, err := strconv.Atoi(number)
	if _, isText := value.(string); err != nil || n < 0 || isText != isPercent || isPercent && n > 100 {
		return 0, fmt.Errorf("the partition of the update must be a whole number or 0%% to 100%%, is %v", value)
	}
	if isPercent {
		n = (all*n + 99) / 100
	}
	return n, nil
}

// reserved returns the names of the pods of an owner with reserved ordinals: a number, or a range such as "3-5".
func reserved(owner, ordinals string) (names []string, err error) {
	const most = 10_000
	first, last, isRange := strings.Cut(ordinals, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	if err != nil || errTo != nil || from < 0 || to < from || to-from >= most {
		return nil, fmt.Errorf("spec.reserveOrdinals must be ordinals or ranges of them, is %s", ordinals)
	}
	for n := from; n <= to; n++ {
		names = append(names, fmt.Sprintf("%s-%d", owner, n))
	}
	return names, nil
}

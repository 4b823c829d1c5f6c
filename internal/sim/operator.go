package sim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tenon-project/tenon/api/annotation"
	quotav1alpha1 "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/workload"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// operated are the objects of the input above pods, and the gangs that the table makes of them.
type operated struct {
	table  workload.Table
	owners map[ownerKey]metav1.Object
	plans  map[ownerKey]*planned
	groups map[objectName]*quotav1alpha1.PodGroup // those of the input
	off    sets.Set[string]                       // namespaces without gangs
}

type ownerKey struct{ group, kind, namespace, name string }

// planned is the plan of an object. objects are the names of the PodGroups of its gangs.
type planned struct {
	workload.Plan
	objects map[string]string
	err     error
}

// isOperated reports whether simulate creates the pods of a kind by the table.
func isOperated(table workload.Table, kind schema.GroupVersionKind) bool {
	r := table.Find(kind.Group, kind.Version, kind.Kind)
	return !scheme().Recognizes(kind) && (isRuntime(kind) || isTrainJob(kind) ||
		r != nil && (len(r.Roles) > 0 || len(r.Children) > 0))
}

func newOperated(table workload.Table, objects []object) operated {
	o := operated{
		table: table, owners: map[ownerKey]metav1.Object{}, plans: map[ownerKey]*planned{},
		groups: map[objectName]*quotav1alpha1.PodGroup{}, off: sets.New[string](),
	}
	for _, one := range objects {
		switch t := one.Object.(type) {
		case *quotav1alpha1.PodGroup:
			o.groups[objectName{"PodGroup", t.Namespace, t.Name}] = t
		case *corev1.Namespace:
			if t.Labels[annotation.GangLabel] == "off" {
				o.off.Insert(t.Name)
			}
		}
		o.add(one.Object)
	}
	return o
}

// add adds an object that may be above pods.
func (o *operated) add(object runtime.Object) {
	meta := object.(metav1.Object)
	o.owners[keyOfObject(meta)] = meta
}

// kindOf returns the kind of an object of the input; the zero value for one that is only read here.
func kindOf(object runtime.Object) schema.GroupVersionKind {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u.GroupVersionKind()
	}
	kinds, _, err := scheme().ObjectKinds(object)
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return kinds[0]
}

func keyOfLink(l workload.Link) ownerKey { return ownerKey{l.Group, l.Kind, l.Namespace, l.Name} }

// lookup returns an owner of the input. One without a uid is every object of its name.
func (o *operated) lookup(want workload.Link) (workload.Link, error) {
	found, ok := o.owners[keyOfLink(want)]
	if !ok {
		return workload.Link{}, workload.ErrNotFound
	}
	l := convert.WorkloadLink(schema.GroupVersion{Group: want.Group, Version: want.Version}.String(), want.Kind, found)
	if l.UID = cmp.Or(l.UID, want.UID); l.UID != want.UID {
		return workload.Link{}, workload.ErrNotFound // the input has another object of the name
	}
	return l, nil
}

// join gives a pod the label of the gang that the table puts it in. A pod of a cluster remains as it is there.
func (w *world) join(at origin, t *corev1.Pod) {
	if at.file == clusterName || convert.NamesGang(t) || !slices.Contains(schedulerNames, t.Spec.SchedulerName) ||
		w.operated.off.Has(t.Namespace) {
		return
	}
	rule, link, err := w.operated.table.Match(convert.WorkloadLink("v1", "Pod", t), w.operated.lookup)
	if err != nil && !errors.Is(err, workload.ErrNotFound) {
		w.note("Pod", t, "%v: the pod is in no gang", err)
	}
	if err != nil || rule == nil {
		return
	}
	plan := w.plan(rule, link, w.operated.owners[keyOfLink(link)])
	if gang, _ := plan.GangOf(t.Labels); gang != "" {
		metav1.SetMetaDataLabel(&t.ObjectMeta, annotation.PodGroup, plan.objects[gang])
	}
}

// plan returns the plan of an object, and adds the PodGroups of its gangs when it is made.
func (w *world) plan(rule *workload.Rule, link workload.Link, from metav1.Object) *planned {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	out := &planned{objects: map[string]string{}, err: err}
	if err == nil {
		out.Plan, out.err = rule.Plan(content, convert.WorkloadTerms(schedulerNames))
	}
	key := keyOfLink(link)
	if known := w.operated.plans[key]; known != nil {
		return known
	}
	w.operated.plans[key] = out
	if out.err != nil || w.operated.off.Has(link.Namespace) {
		out.Gangs, out.Pods = nil, withoutGangs(out.Pods)
		return out
	}
	parent := owner{
		namespace: link.Namespace, name: from.GetName(), kind: link.Kind, given: from.GetUID(),
		apiVersion: schema.GroupVersion{Group: link.Group, Version: link.Version}.String(),
	}
	for _, g := range out.Gangs {
		out.objects[g.Name] = workload.ObjectName(g.Name, string(parent.uid()), func(name string) bool {
			existing := w.operated.groups[objectName{"PodGroup", link.Namespace, name}]
			return existing != nil && !isOwnedBy(existing, parent)
		})
	}
	groups, _ := out.Reconcile(out.objects, nil)
	for _, planned := range out.Gangs {
		g := groups[out.objects[planned.Name]]
		at := objectName{"PodGroup", link.Namespace, g.Name}
		wanted := convert.WorkloadGroup(link.Namespace, &g, out.Rule, parent.reference())
		if existing := w.operated.groups[at]; existing == nil {
			w.operated.groups[at] = wanted
			w.podGroups = append(w.podGroups, wanted)
		} else if joined := wanted.Annotations[annotation.GangGroups]; joined != "" {
			// The object made this PodGroup. It keeps its size, and starts with the others all the same.
			metav1.SetMetaDataAnnotation(&existing.ObjectMeta, annotation.GangGroups, joined)
		}
	}
	return out
}

func withoutGangs(sets []workload.PodSet) []workload.PodSet {
	for i := range sets {
		sets[i].Gang = ""
	}
	return sets
}

func isOwnedBy(o metav1.Object, parent owner) bool {
	ref := metav1.GetControllerOfNoCopy(o)
	return ref != nil && ref.Kind == parent.kind && ref.Name == parent.name
}

// operate adds the pods of an object of an operator that the input lacks, and those of the objects that the operator
// makes of it.
func (w *world) operate(o object, u *unstructured.Unstructured, p *problems) {
	kind := u.GroupVersionKind()
	if isRuntime(kind) {
		return // TrainJobs read it
	}
	parent := ownedBy(u, kind.Kind)
	parent.apiVersion = u.GetAPIVersion()
	rule := w.operated.table.Find(kind.Group, kind.Version, kind.Kind)
	if rule == nil {
		rule = &workload.Rule{Group: kind.Group, Kind: kind.Kind, Default: workload.Parent}
	}
	link := convert.WorkloadLink(u.GetAPIVersion(), kind.Kind, u)
	plan := w.plan(rule, link, u)
	if plan.err != nil {
		p.add(o.origin, "%s", plan.err)
		return
	}
	if plan.Suspended {
		w.idle(u, " is suspended and has no pods")
		return
	}
	w.noteUnread(u)
	children, err := rule.Objects(u.Object)
	if isTrainJob(kind) {
		children, err = w.jobSetOf(u)
	}
	if err != nil {
		p.add(o.origin, "%s", err)
		return
	}
	for _, child := range children {
		w.operateChild(o.origin, parent, child, p)
	}
	w.noteGangs(u, nil)
	for _, c := range w.children {
		if _, isPod := c.Object.(*corev1.Pod); !isPod && c.GetNamespace() == parent.namespace && len(rule.Covers) > 0 &&
			isOwnedBy(c.Object, parent) {
			return // the objects that its operator has made have the number of pods
		}
	}
	existing := activePods(childrenOf[*corev1.Pod](w, parent))
	for i := range plan.Pods {
		w.createSet(o.origin, parent, &plan.Pods[i], existing, p)
	}
}

// noteUnread names the fields of an object that change its pods in ways that are not read.
func (w *world) noteUnread(u *unstructured.Unstructured) {
	for _, f := range []struct{ group, kind, field, missing string }{
		{"ray.io", "RayCluster", "enableInTreeAutoscaling", "the head lacks the autoscaler's container"},
		{trainerGroup, "TrainJob", "runtimePatches", "its pods lack what it changes"},
		{trainerGroup, "TrainJob", "podTemplateOverrides", "its pods lack what it changes"},
	} {
		if at := u.GroupVersionKind(); at.Group != f.group || at.Kind != f.kind {
			continue
		}
		value, given, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", f.field)
		if list, isList := value.([]any); given && value != nil && value != false && (!isList || len(list) > 0) {
			w.line(u, ": spec.%s is not read in full: %s", f.field, f.missing)
		}
	}
}

// createSet adds the pods of a role that the input lacks.
func (w *world) createSet(at origin, parent owner, set *workload.PodSet, existing []*corev1.Pod, p *problems) {
	missing := set.Count
	for _, c := range existing {
		if set.Has(c.Labels) {
			missing--
		}
	}
	if missing <= 0 || !w.fits(at, int(missing), p) {
		return
	}
	own, shared, err := setClaims(set)
	if err != nil {
		p.add(at, "%s", oneLine(err))
		return
	}
	template, ok := templateOf(at, parent, set, append(shared, own...), p)
	if !ok {
		return
	}
	w.claimTemplatesOf(shared, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: parent.namespace, Name: parent.name,
	}})
	for i := int64(0); missing > 0; i++ {
		one := *template.DeepCopy()
		one.Name = set.Name(i)
		if i >= set.Count { // pods of the input have names of other roles
			one.Name = fmt.Sprintf("%s-%d", set.Name(0), i)
		}
		if w.names[objectName{"Pod", parent.namespace, one.Name}] {
			continue
		}
		labels := set.Labels(i)
		for key, value := range labels {
			metav1.SetMetaDataLabel(&one.ObjectMeta, key, value)
		}
		before := len(w.pending)
		w.createMember(at, parent, one, int(i), p)
		for k := before; k < len(w.pending); k++ {
			w.pending[k].operator = labels
			w.claimTemplatesOf(own, w.pending[k].Pod)
		}
		missing--
	}
}

// setClaims returns the claim templates of a role: those of each pod, and those that its pods share.
func setClaims(set *workload.PodSet) (own, shared []corev1.PersistentVolumeClaim, err error) {
	text, err := json.Marshal([][]any{set.Claims, set.SharedClaims})
	if err != nil {
		return nil, nil, err
	}
	var both [2][]corev1.PersistentVolumeClaim
	if err := json.Unmarshal(text, &both); err != nil {
		return nil, nil, fmt.Errorf("claim templates of role %s: %w", set.Role, err)
	}
	return both[0], both[1], nil
}

// templateOf returns the template of the pods of a role, complete as that of a pod that is created.
func templateOf(at origin, parent owner, set *workload.PodSet, claims []corev1.PersistentVolumeClaim, p *problems,
) (out corev1.PodTemplateSpec, ok bool) {
	content, err := set.Content()
	if err != nil {
		p.add(at, "%s", err)
		return out, false
	}
	if set.At != "" {
		at.object += ", " + set.At
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": content["metadata"], "spec": content["spec"],
	})
	if err != nil {
		p.add(at, "%s", oneLine(err))
		return out, false
	}
	d := newDecoder(workload.Table{})
	d.problems = *p
	d.one(at, header{APIVersion: "v1", Kind: "Pod"}, text)
	*p = d.problems
	if len(d.objects) != 1 {
		return out, false
	}
	made := d.objects[0].Object.(*corev1.Pod)
	made.ObjectMeta = metav1.ObjectMeta{
		Namespace: parent.namespace, Name: set.Name(0), Labels: made.Labels, Annotations: made.Annotations,
	}
	for key, value := range set.Labels(0) {
		metav1.SetMetaDataLabel(&made.ObjectMeta, key, value)
	}
	for i := range claims {
		if mounts(made, claims[i].Name) {
			addClaimVolume(&claims[i], made, parent.name)
		}
	}
	var invalid field.ErrorList
	if !at.stored {
		invalid = create(made)
	}
	for _, err := range invalid {
		p.add(at, "%s", err.Error())
	}
	return corev1.PodTemplateSpec{ObjectMeta: made.ObjectMeta, Spec: made.Spec}, len(invalid) == 0
}

// operateChild adds an object that an operator makes of another one, unless the input has it.
func (w *world) operateChild(at origin, parent owner, child map[string]any, p *problems) {
	text, err := json.Marshal(child)
	if err != nil {
		p.add(at, "%s", oneLine(err))
		return
	}
	d := newDecoder(w.operated.table)
	d.problems = *p
	d.json(at, text, schema.GroupVersionKind{})
	*p = d.problems
	for _, o := range d.objects {
		meta := o.Object.(metav1.Object)
		for _, c := range w.children {
			if c.GetNamespace() == parent.namespace && isOwnedBy(c.Object, parent) &&
				typeOf(c.Object.(runtime.Object)) == typeOf(o.Object) {
				return
			}
		}
		if namespaced(o.Object) {
			meta.SetNamespace(parent.namespace)
		}
		meta.SetOwnerReferences([]metav1.OwnerReference{parent.reference()})
		w.operated.add(o.Object)
		o.object, o.stored = at.object+", "+o.object, false
		w.add(o, p)
	}
}

// noteGangs keeps a line about the gangs of an object whose pods were added, or about what would start them together.
func (w *world) noteGangs(o metav1.Object, pods []pod) {
	plan := w.operated.plans[keyOfObject(o)]
	switch {
	case plan != nil && len(plan.Gangs) > 0:
		w.line(o, ": gangs %s, by rule %s; label %s=off stops it", plan.Summary(), plan.Rule, annotation.GangLabel)
	case plan != nil && plan.Reason != "":
		w.line(o, ": pods start one by one: %s", plan.Reason)
	case len(pods) > 1 && !convert.NamesGang(pods[0].Pod) &&
		slices.Contains(schedulerNames, pods[0].Spec.SchedulerName):
		w.line(o, ": pods start one by one; %s starts them together", annotation.GangWish)
	}
}

func keyOfObject(o metav1.Object) ownerKey {
	kind := kindOf(o.(runtime.Object))
	return ownerKey{kind.Group, kind.Kind, o.GetNamespace(), o.GetName()}
}

// line keeps a line about an object of the input, which is not a warning.
func (w *world) line(o metav1.Object, format string, args ...any) {
	w.notes = append(w.notes, lineOf(o)+fmt.Sprintf(format, args...))
}

// idle keeps why an object has no pods, for an answer without any pod: a dump has many such objects.
func (w *world) idle(o metav1.Object, why string) { w.without = append(w.without, lineOf(o)+why) }

// lineOf begins a line about an object.
func lineOf(o metav1.Object) string {
	name := o.GetName()
	if o.GetNamespace() != metav1.NamespaceDefault {
		name = o.GetNamespace() + "/" + name
	}
	return kindOf(o.(runtime.Object)).Kind + " " + name
}

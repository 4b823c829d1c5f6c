package workload

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	mostMembers = 100_000 // pods of one object
	mostJoined  = 64      // gangs that start together
)

// Terms are what an object and its pods may say about gangs.
type Terms struct {
	// Wish is an annotation of the object or of a template: how many of its pods start together, or "all". Off is a
	// label of both, with the value "off", that prevents gangs.
	Wish, Off string
	// Gang are labels and annotations of pods that name a gang.
	Gang []string
	// Schedulers are the names of schedulers that start gangs.
	Schedulers []string
}

// Plan is what a rule says of one object.
type Plan struct {
	Rule string
	// Suspended reports whether there are no pods, Ordered whether the operator creates the roles one after the other.
	Suspended, Ordered bool
	// Gangs are in the order in which the object lists its roles. Without them, Reason is why the minimum cannot be
	// reached; it is empty where the pods are meant to start one by one.
	Gangs  []Gang
	Reason string
	// Pods are those that the operator creates. Invariant: each Gang of a PodSet is the name of one of Gangs or empty.
	Pods []PodSet
}

// Gang is a set of pods that start together.
type Gang struct {
	Name         string
	Min, Members int64
	// Joined are the names of all gangs that start together, this one among them; nil for one alone.
	Joined []string
	// Refill reports whether the gang needs its minimum again when it has lost pods.
	Refill bool
}

// PodSet is Count equal pods of a role.
type PodSet struct {
	Role, Gang string
	Count      int64
	// Template, PodSpec or Containers is what the pods are made of, by the paths of the role. At is its position in the
	// object; "" for the fallback. Scheduler and PriorityClass are the names where these name none; "" for Kubernetes'
	// default.
	Template, PodSpec, Containers any
	At, Scheduler, PriorityClass  string
	// Claims are templates of PersistentVolumeClaims of which each pod has its own, and SharedClaims those of which the
	// object has one, NAME-OBJECT.
	Claims, SharedClaims []any
	// Later reports whether the operator creates the pods after those of other roles.
	Later bool

	pod    Pattern
	labels map[string]Pattern
	values map[string]string
	size   int64
	unit   int64 // the first one
	first  int64 // {i} or {rank} of the first pod
}

// Name returns the name of a pod, from 0.
func (s *PodSet) Name(i int64) string { return s.pod.fill(s.valuesOf(i)) }

// Labels returns the labels of a pod that its operator sets.
func (s *PodSet) Labels(i int64) map[string]string {
	out, values := map[string]string{}, s.valuesOf(i)
	for key, pattern := range s.labels {
		out[key] = pattern.fill(values)
	}
	return out
}

func (s *PodSet) valuesOf(i int64) map[string]string {
	values := map[string]string{
		"{i}":    strconv.FormatInt(s.unit*s.size+i+s.first, 10),
		"{unit}": strconv.FormatInt(s.unit+i/s.size, 10),
		"{rank}": strconv.FormatInt(i%s.size+s.first, 10),
	}
	for key, value := range s.values {
		values[key] = value
	}
	return values
}

// Has reports whether labels are those of a pod of the set.
func (s *PodSet) Has(labels map[string]string) bool {
	for key, pattern := range s.labels {
		text := string(pattern)
		switch {
		case strings.Contains(text, "{unit}"):
			unit, err := strconv.ParseInt(labels[key], 10, 64)
			if err != nil && s.unit > 0 || err == nil && (unit < s.unit || unit >= s.unit+s.Count/s.size) {
				return false
			}
		case strings.Contains(text, "{i}") || strings.Contains(text, "{rank}"):
		case labels[key] != pattern.fill(s.values):
			return false
		}
	}
	return true
}

// GangOf returns the gang of the pods with these labels, "" for those that start one by one. isMember reports whether
// the object has such pods.
func (p *Plan) GangOf(labels map[string]string) (gang string, isMember bool) {
	for i := range p.Pods {
		if p.Pods[i].Has(labels) {
			return p.Pods[i].Gang, true
		}
	}
	return "", false
}

// Summary describes the gangs: "r-headgroup 1, r-gpu 4 of 6".
func (p *Plan) Summary() string {
	const most = 8
	var parts []string
	for i, g := range p.Gangs {
		if i == most && len(p.Gangs) > most+1 {
			parts = append(parts, fmt.Sprintf("%d more", len(p.Gangs)-most))
			break
		}
		part := fmt.Sprintf("%s %d", g.Name, g.Min)
		if g.Min != g.Members {
			part += fmt.Sprintf(" of %d", g.Members)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// reading is the evaluation of a rule on an object.
type reading struct {
	*Rule
	terms   Terms
	root    place
	owner   string
	attempt int64
	// wish is how many pods the object wants to start together; 0 for no number. all reports a wish for all of them.
	wish int64
	all  bool
}

// Plan evaluates the rule. An error is a *ValueError of a value that cannot be read.
func (r *Rule) Plan(object map[string]any, terms Terms) (Plan, error) {
	return r.plan(object, terms, r.Attempt)
}

// PlanOf is Plan for the attempt that the labels of a pod name: the object may say later that its pods are made again.
func (r *Rule) PlanOf(object map[string]any, terms Terms, labels map[string]string) (Plan, error) {
	attempt := r.Attempt
	for key, pattern := range r.Labels {
		if n, err := strconv.ParseInt(labels[key], 10, 32); pattern == "{attempt}" && err == nil && n >= 0 {
			attempt = &Amount{Default: &n}
		}
	}
	return r.plan(object, terms, attempt)
}

func (r *Rule) plan(object map[string]any, terms Terms, attempt *Amount) (out Plan, err error) {
	e := reading{Rule: r, terms: terms, root: place{value: object}}
	out.Rule = r.Name()
	if e.owner, err = field("metadata", "name").textAt(e.root, e.root); err != nil {
		return out, err
	}
	if out.Suspended, err = anyHolds(r.Suspended, e.root, e.root, ""); err != nil || out.Suspended {
		return out, err
	}
	declared, err := anyHolds(r.Declared, e.root, e.root, "")
	if err != nil {
		return out, err
	}
	off, err := e.readTerms(e.root)
	if err != nil {
		return out, err
	}
	if out.Ordered, err = anyHolds(r.Ordered, e.root, e.root, ""); err != nil {
		return out, err
	}
	if e.attempt, err = attempt.or(e.root, e.root, 0); err != nil {
		return out, err
	}
	parts, err := r.Replicas.or(e.root, e.root, 1)
	if err != nil {
		return out, err
	}
	roles, err := e.roles()
	if err != nil {
		return out, err
	}
	members := int64(0)
	for i := range roles {
		members += roles[i].members()
	}
	if parts*max(members, 1) > mostMembers {
		return out, &ValueError{"spec", fmt.Sprintf("has %d pods: supported up to %d", parts*members, mostMembers)}
	}
	silent := declared || off || r.Default == Parent || r.Default == Never && !e.wishes()
	if e.wishes() && len(r.Roles) == 0 {
		out.Reason = "pods of this kind start one by one"
	}
	for index := range parts {
		part := e.part(roles, index)
		if !silent && out.Reason == "" {
			if out.Reason, err = e.gather(&out, part); err != nil {
				return out, err
			}
		}
		for i := range part {
			out.Pods = append(out.Pods, part[i].podSets()...)
		}
	}
	if out.Reason != "" {
		out.Gangs = nil
		for i := range out.Pods {
			out.Pods[i].Gang = ""
		}
	}
	return out, nil
}

func field(names ...string) Path {
	p := Path{text: strings.Join(names, ".")}
	for _, name := range names {
		p.steps = append(p.steps, step{field: name})
	}
	return p
}

func (e *reading) wishes() bool { return e.all || e.wish > 0 }

// readTerms reads the wish in the metadata of an object or template, and reports whether it opts out.
func (e *reading) readTerms(at place) (off bool, err error) {
	label, err := field("metadata", "labels", e.terms.Off).textAt(at, at)
	if err != nil {
		return false, err
	}
	wish, has, err := field("metadata", "annotations", e.terms.Wish).one(at, at)
	if err != nil || !has {
		return label == "off", err
	}
	if e.all = e.all || wish.value == "all"; e.all {
		return label == "off", nil
	}
	n, err := wholeNumber(wish, true)
	if err != nil || n == 0 {
		return false, wish.errorf("must be all or a whole number from 1")
	}
	e.wish = n
	return label == "off", nil
}

// Objects returns the objects that the operator creates of an object, with apiVersion, kind and metadata.
func (r *Rule) Objects(object map[string]any) (out []map[string]any, err error) {
	root := place{value: object}
	name, err := field("metadata", "name").textAt(root, root)
	if err != nil {
		return nil, err
	}
	for _, c := range r.Children {
		found, err := c.At.find(root, root)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			child, ok := f.value.(map[string]any)
			if !ok {
				return nil, f.errorf("must be an object")
			}
			if c.Kind != "" {
				child = map[string]any{
					"apiVersion": c.APIVersion, "kind": c.Kind, "metadata": map[string]any{"name": name}, "spec": child,
				}
			}
			out = append(out, child)
		}
	}
	return out, nil
}

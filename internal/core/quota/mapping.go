package quota

import (
	"cmp"
	"maps"
	"slices"
)

// PodsOf are pods of a namespace that name a quota; Quota is empty for those that name none. Bound is the quota that
// they were bound in, as the scheduler has recorded it; empty where it has not.
type PodsOf struct{ Namespace, Quota, Bound string }

// Mapping finds the quota of pods. Its answers do not depend on the order in which quotas came.
type Mapping struct {
	objects map[string]int // by name
	// homes are the quotas whose objects are in a namespace, listed those that list it. Reserved quotas take no pods of
	// namespaces. Invariant: ascending, without empty lists.
	homes, listed map[string][]*Spec
}

// NewMapping returns the mapping that quotas give. They must not change while it is used.
func NewMapping(quotas []Spec) *Mapping {
	m := &Mapping{map[string]int{}, map[string][]*Spec{}, map[string][]*Spec{}}
	for i := range quotas {
		m.add(&quotas[i])
	}
	return m
}

// Of returns the quota of pods: the one that they name, else the one that is named like their namespace and in it, else
// the only one in it if that is a leaf directly below Root, else the first by name that lists it, else Default. Pods
// that were bound in a quota are in that one instead of Default or System while it exists: no edit ends their use.
// found is false where they name a quota that does not exist, or Root, which has no pods.
func (m *Mapping) Of(p PodsOf) (quota string, found bool) {
	bound := m.objects[p.Bound] > 0 && !isReserved(p.Bound)
	otherwise := Default
	if bound {
		otherwise = p.Bound
	}
	switch {
	case (p.Quota == System || p.Quota == Default) && !bound || !isReserved(p.Quota) && m.objects[p.Quota] > 0:
		return p.Quota, true
	case p.Quota != "":
		return otherwise, p.Quota == System || p.Quota == Default
	}
	if own := m.own(p.Namespace); own != "" {
		return own, true
	}
	if listed := m.listed[p.Namespace]; len(listed) > 0 {
		return listed[0].Name, true
	}
	return otherwise, true
}

// own returns the quota that a namespace has by being its home; "" where there is none.
func (m *Mapping) own(namespace string) string {
	homes := m.homes[namespace]
	named := slices.ContainsFunc(homes, func(s *Spec) bool { return s.Name == namespace })
	switch {
	case named:
		return namespace
	case len(homes) == 1 && !homes[0].IsParent && homes[0].isTop():
		return homes[0].Name
	}
	return ""
}

// namespaces returns those whose pods may belong to another quota than Default although they name none, ascending.
func (m *Mapping) namespaces() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(m.homes)), maps.Keys(m.listed))
	slices.Sort(all)
	return slices.Compact(all)
}

// add adds an object to the index of each of its namespaces, in the order of compareObjects.
func (m *Mapping) add(s *Spec) {
	m.objects[s.Name]++
	m.index(s, func(at map[string][]*Spec, namespace string) {
		if i, known := slices.BinarySearchFunc(at[namespace], s, compareObjects); !known {
			at[namespace] = slices.Insert(at[namespace], i, s)
		}
	})
}

// remove takes back what add did with the spec, which has not changed since.
func (m *Mapping) remove(s *Spec) {
	if m.objects[s.Name]--; m.objects[s.Name] == 0 {
		delete(m.objects, s.Name)
	}
	m.index(s, func(at map[string][]*Spec, namespace string) {
		at[namespace] = slices.DeleteFunc(at[namespace], func(o *Spec) bool { return o == s })
		if len(at[namespace]) == 0 {
			delete(at, namespace)
		}
	})
}

// index calls f with each list that has the spec.
func (m *Mapping) index(s *Spec, f func(at map[string][]*Spec, namespace string)) {
	if isReserved(s.Name) {
		return
	}
	f(m.homes, s.Namespace)
	for _, namespace := range s.Namespaces {
		f(m.listed, namespace)
	}
}

// isReserved reports whether a name is one that no object may have.
func isReserved(name string) bool { return name == Root || name == System || name == Default }

// isTop reports whether s is directly below Root.
func (s *Spec) isTop() bool { return s.Parent == "" || s.Parent == Root }

// compareObjects orders objects by name, namespace and group. The first of several objects of one name counts.
func compareObjects(a, b *Spec) int {
	return cmp.Or(
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group),
	)
}

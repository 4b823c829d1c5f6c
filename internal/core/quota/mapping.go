package quota

import "cmp"

// PodsOf are pods of a namespace that name a quota; Quota is empty for those that name none.
type PodsOf struct{ Namespace, Quota string }

// Mapping finds the quota of pods.
type Mapping struct {
	named       map[string]bool
	own, listed map[string]string // by namespace
}

// NewMapping returns the mapping that quotas give, whatever their order. Of several quotas that list a namespace the
// first by name counts.
func NewMapping(quotas []Spec) *Mapping {
	m := &Mapping{map[string]bool{Root: true, System: true, Default: true}, map[string]string{}, map[string]string{}}
	inNamespace := map[string]int{}
	for i := range quotas {
		s := &quotas[i]
		m.named[s.Name] = true
		inNamespace[s.Namespace]++
		for _, namespace := range s.Namespaces {
			if first, taken := m.listed[namespace]; !taken || s.Name < first {
				m.listed[namespace] = s.Name
			}
		}
	}
	for i := range quotas {
		s := &quotas[i]
		alone := inNamespace[s.Namespace] == 1 && !s.IsParent && s.isTop() && !isReserved(s.Name)
		if alone || s.Name == s.Namespace {
			m.own[s.Namespace] = s.Name
		}
	}
	return m
}

// Of returns the quota of pods: the one that they name, else the one that is named like their namespace and in it, else
// the only one in it if that is a leaf directly below Root, else the one that lists it, else Default. found is false
// where they name a quota that does not exist; they are in Default then.
func (m *Mapping) Of(p PodsOf) (quota string, found bool) {
	if p.Quota != "" && !m.named[p.Quota] {
		return Default, false
	}
	return cmp.Or(p.Quota, m.own[p.Namespace], m.listed[p.Namespace], Default), true
}

func isReserved(name string) bool { return name == Root || name == System || name == Default }

// isTop reports whether s is directly below Root.
func (s *Spec) isTop() bool { return s.Parent == "" || s.Parent == Root }

package workload

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// slot is one role of a part of an object, or of a set of it.
type slot struct {
	PodSet
	name             string // of the role itself
	group            string // slots of a part that start together; "" for those with the object
	count, size, min int64  // units of size pods
	onRequest        bool   // it is in no gang unless the object asks for it
	outside          bool   // its pods name a gang, want none, or have a scheduler that starts none
	// further are the gangs of the units above min, of size pods each; "" for units that start with those below.
	further string
}

func (s *slot) members() int64 { return s.count * s.size }

// roles returns the roles of each part, those of sets repeated.
func (e *reading) roles() (out []slot, err error) {
	seen := map[string]bool{}
	for i := range e.Roles {
		r := &e.Roles[i]
		elements, err := r.At.find(e.root, e.root)
		if err != nil {
			return nil, err
		}
		for _, at := range elements {
			s, err := e.role(r, at)
			if err != nil {
				return nil, err
			}
			if seen[s.name] {
				return nil, &ValueError{at.name, fmt.Sprintf("role %q is listed twice", s.name)}
			}
			if seen[s.name] = true; s.members() > 0 {
				out = append(out, s)
			}
		}
	}
	return e.repeat(out)
}

func (e *reading) role(r *Role, at place) (s slot, err error) {
	name, err := r.NameAt.textAt(e.root, at)
	if err != nil {
		return s, err
	}
	s.name = cmp.Or(name, r.Name, strings.ToLower(at.key))
	if !r.NameAt.isZero() && name == "" && r.Name == "" {
		return s, &ValueError{at.name, fmt.Sprintf("must have a name at %s", r.NameAt)}
	}
	s.Role, s.first = s.name, int64(r.First)
	s.pod = cmp.Or(r.Pod, e.Pod, "{owner}-{role}-{i}")
	s.labels = map[string]Pattern{}
	maps.Copy(s.labels, e.Labels)
	maps.Copy(s.labels, r.Labels)
	var absent, hasMin bool
	for _, c := range []struct {
		list  []Condition
		holds *bool
	}{{r.Absent, &absent}, {r.Later, &s.Later}, {r.OnRequest, &s.onRequest}, {r.MinIf, &hasMin}} {
		if *c.holds, err = anyHolds(c.list, e.root, at, s.name); err != nil {
			return s, err
		}
	}
	if absent {
		return s, nil
	}
	most, least, mostSize := int64(0), int64(0), int64(0)
	for _, a := range []struct {
		amount   *Amount
		into     *int64
		fallback int64
	}{
		{r.Count, &s.count, 1}, {r.Size, &s.size, 1}, {r.MaxSize, &mostSize, math.MaxInt32}, {
			r.Least, &least,
			0,
		}, {r.Max, &most, math.MaxInt32}, {r.Min, &s.min, -1},
	} {
		if *a.into, err = a.amount.or(e.root, at, a.fallback); err != nil {
			return s, err
		}
	}
	s.count, s.size = min(max(s.count, least), most), min(s.size, mostSize)
	if s.min < 0 || len(r.MinIf) > 0 && !hasMin {
		s.min = s.count
	}
	if s.members() > mostMembers {
		return s, &ValueError{at.name, fmt.Sprintf("has %d pods: supported up to %d", s.members(), mostMembers)}
	}
	if s.min > s.count {
		return s, &ValueError{at.name, fmt.Sprintf("the minimum %d of role %s is above its %d", s.min, s.name, s.count)}
	}
	s.PodSet.size = max(s.size, 1)
	inGang, err := e.readTemplate(r, &s, at)
	s.outside = !inGang
	return s, err
}

// readTemplate reads what the pods of a role are made of. It reports whether they may be in a gang of the object: not
// where they name one, opt out, or have another scheduler.
func (e *reading) readTemplate(r *Role, s *slot, at place) (inGang bool, err error) {
	var template place
	for _, source := range []struct {
		path Path
		into *any
	}{{r.TemplateOr, &s.Template}, {r.Template, &s.Template}, {r.PodSpec, &s.PodSpec}, {r.Containers, &s.Containers}} {
		found, has, err := source.path.one(e.root, at)
		if err != nil {
			return false, err
		}
		if has {
			*source.into, s.At = found.value, found.name
			template = found
		}
	}
	if s.Scheduler, err = r.Scheduler.textAt(e.root, at); err != nil {
		return false, err
	}
	s.Scheduler = cmp.Or(s.Scheduler, r.SchedulerDefault)
	if s.PriorityClass, err = r.PriorityClass.textAt(e.root, at); err != nil {
		return false, err
	}
	for _, c := range []struct {
		path Path
		into *[]any
	}{{r.Claims, &s.Claims}, {r.SharedClaims, &s.SharedClaims}} {
		found, err := c.path.find(e.root, at)
		if err != nil {
			return false, err
		}
		for _, f := range found {
			*c.into = append(*c.into, f.value)
		}
	}
	spec := template
	switch {
	case s.Containers != nil:
		return e.serves(s.Scheduler), nil
	case s.PodSpec == nil:
		if s.Template == nil && r.Fallback != nil {
			s.Template, template = any(r.Fallback), place{value: r.Fallback, name: at.name}
		}
		if s.Template == nil {
			return true, nil
		}
		off, err := e.readTerms(template)
		if err != nil || off {
			return false, err
		}
		for _, key := range e.terms.Gang {
			for _, where := range []string{"labels", "annotations"} {
				if _, has, err := field("metadata", where, key).one(template, template); err != nil || has {
					return false, err
				}
			}
		}
		found, has, err := field("spec").one(template, template)
		if err != nil || !has {
			return false, err
		}
		spec = found
	}
	own, err := field("schedulerName").textAt(spec, spec)
	if err != nil || !e.serves(cmp.Or(own, s.Scheduler)) {
		return false, err
	}
	_, named, err := field("schedulingGroup").one(spec, spec)
	return !named, err
}

// serves reports whether a scheduler starts gangs. A template without a name has Kubernetes' default.
func (e *reading) serves(scheduler string) bool {
	return slices.Contains(e.terms.Schedulers, cmp.Or(scheduler, "default-scheduler"))
}

// repeat repeats the roles of sets. Those of a set above its minimum are a group of their own.
func (e *reading) repeat(roles []slot) (out []slot, err error) {
	if e.Sets == nil {
		return roles, nil
	}
	elements, err := e.Sets.At.find(e.root, e.root)
	if err != nil {
		return nil, err
	}
	repeated := map[string]bool{}
	for _, at := range elements {
		name, err := e.Sets.NameAt.textAt(e.root, at)
		if err != nil {
			return nil, err
		}
		members, err := e.Sets.Roles.find(e.root, at)
		if err != nil {
			return nil, err
		}
		count, err := e.Sets.Count.or(e.root, at, 1)
		if err != nil {
			return nil, err
		}
		least, err := e.Sets.Min.or(e.root, at, count)
		if err != nil {
			return nil, err
		}
		if count*int64(len(members)) > mostMembers {
			return nil, &ValueError{at.name, fmt.Sprintf("has more than %d pods", mostMembers)}
		}
		for _, m := range members {
			role, _ := m.value.(string)
			if repeated[role] {
				return nil, &ValueError{m.name, fmt.Sprintf("role %q is in two sets", role)}
			}
			repeated[role] = true
		}
		for i := range count {
			for _, s := range roles {
				for _, m := range members {
					if m.value != s.name {
						continue
					}
					set := fmt.Sprintf("%s-%d", name, i)
					if s.Role = set + "-" + s.name; i >= least {
						s.group = set
					}
					out = append(out, s)
				}
			}
		}
	}
	alone := []slot(nil)
	for _, s := range roles {
		if !repeated[s.name] {
			alone = append(alone, s)
		}
	}
	return append(alone, out...), nil
}

// part returns the roles of the part with an index.
func (e *reading) part(roles []slot, index int64) []slot {
	part := make([]slot, len(roles))
	for i, s := range roles {
		s.values = map[string]string{
			"{owner}": e.owner, "{role}": s.Role, "{index}": strconv.FormatInt(index, 10),
			"{attempt}": strconv.FormatInt(e.attempt, 10),
		}
		part[i] = s
	}
	return part
}

// podSets returns the pods of a role: those of the units up to the minimum, or all of them, and each further unit that
// is a gang of its own.
func (s *slot) podSets() (out []PodSet) {
	base := s.PodSet
	if base.Count = s.members(); s.further == "" {
		return []PodSet{base}
	}
	if base.Count = s.min * s.size; base.Count > 0 {
		out = append(out, base)
	}
	for unit := s.min; unit < s.count; unit++ {
		more := s.PodSet
		more.unit, more.Count, more.Gang = unit, s.size, furtherName(s.further, unit)
		out = append(out, more)
	}
	return out
}

func furtherName(gang string, unit int64) string { return gang + "-" + strconv.FormatInt(unit, 10) }

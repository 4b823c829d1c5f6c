package quota

import (
	"fmt"
	"maps"
	"slices"
)

// Fault is what a forest cannot follow in a Spec.
type Fault string

// The faults, and what counts instead.
const (
	UnknownParent Fault = "UnknownParent" // hangs under Root until the parent appears
	ParentCycle   Fault = "ParentCycle"   // each quota on the cycle hangs under Root
	Negative      Fault = "Negative"      // 0
	MinAboveMax   Fault = "MinAboveMax"   // max
	NotInMax      Fault = "NotInMax"      // nothing: a min or weight of a dimension that max does not limit
)

// Problem is one thing that a forest replaced in a Spec.
type Problem struct {
	Quota string
	Fault Fault
	// Parent is set for UnknownParent and ParentCycle, the others for the other faults: Field is "min", "max",
	// "weight" or "total", Value what it says of Dimension.
	Parent           string
	Field, Dimension string
	Value            int64
}

// String returns the problem as one sentence, with what counts instead.
func (p Problem) String() string {
	switch p.Fault {
	case UnknownParent:
		return fmt.Sprintf("quota %q: parent %q does not exist; it counts under %s", p.Quota, p.Parent, Root)
	case ParentCycle:
		return fmt.Sprintf("quota %q: parent %q is below it; it counts under %s", p.Quota, p.Parent, Root)
	}
	is := fmt.Sprintf("quota %q: %s of %s is %d", p.Quota, p.Field, p.Dimension, p.Value)
	switch p.Fault {
	case Negative:
		return is + ", must not be negative; 0 counts"
	case MinAboveMax:
		return is + ", must not exceed max; max counts"
	default:
		return is + " without a max; it is ignored"
	}
}

// Problems lists what the forest replaced in the specs that it has, by quota.
func (f *Forest) Problems() []Problem {
	var out []Problem
	for _, name := range slices.Sorted(maps.Keys(f.quotas)) {
		out = append(out, f.quotas[name].Problems()...)
	}
	return out
}

// Problems lists what the forest replaced in the quota's spec, in the place that it has now.
func (q *Quota) Problems() []Problem {
	s := &q.spec
	var out []Problem
	if q.misplaced != "" {
		out = append(out, Problem{Quota: s.Name, Fault: q.misplaced, Parent: s.Parent})
	}
	for _, field := range []struct {
		name    string
		amounts Amounts
	}{{"max", s.Max}, {"min", s.Min}, {"weight", s.Weight}, {"total", s.Total}} {
		for _, dimension := range slices.Sorted(maps.Keys(field.amounts)) {
			value := field.amounts[dimension]
			ceiling, named := s.Max[dimension]
			report := func(fault Fault) {
				out = append(out, Problem{s.Name, fault, "", field.name, dimension, value})
			}
			switch {
			case value < 0:
				report(Negative)
			case !named && field.name != "total":
				report(NotInMax)
			case field.name == "min" && value > max(ceiling, 0):
				report(MinAboveMax)
			}
		}
	}
	return out
}

package quota

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// MaxDepth bounds the quotas on a path from the top of a tree to a leaf.
const MaxDepth = 16

// mostAmount bounds what a quota can say of a resource: 1 Ei, above what any cluster has. Sums of such amounts may not
// fit an int64; the forest adds up in 128 bits, and reports the largest int64 then.
const mostAmount = 1 << 60

// Rule is a rule that changes of quotas and of pods must keep.
type Rule uint8

// The rules.
const (
	V1  Rule = iota + 1 // amounts are 0 or more
	V2                  // min is below max, in dimensions of max
	V3                  // the parent exists and is a parent
	V4                  // quotas with children are parents, quotas with pods are not
	V5                  // the children have no more min than their parent
	V6                  // a tree has one id, which does not change
	V7                  // children have the dimensions of their parent
	V8                  // max of strict dimensions is not below used
	V9                  // quotas with children or pods are not deleted
	V10                 // names are unique in the cluster
	V11                 // a namespace belongs to one quota
	V12                 // pods are not in parents, and remain preemptible or not
	V13                 // no path is a cycle, or longer than MaxDepth
	V14                 // weight has dimensions of max alone
	V15                 // no amount is above mostAmount
	V16                 // a tree has one root, and a root has a tree and no parent
	V17                 // of the reserved quotas only Default is edited
)

// String returns the rule's number in the reference, such as V5.
func (r Rule) String() string { return "V" + strconv.Itoa(int(r)) }

// Violation is a rule that a change breaks.
type Violation struct {
	Rule  Rule
	Quota string
	// Other is the other quota, or the namespace, with which the change conflicts.
	Other string
	// Field is name, min, max, weight, total, parent, isParent, tree, isRoot or namespaces, with the dimension where
	// one is meant: min[cpu].
	Field string
	// Text is Koordinator's, where it has one, with the values.
	Text string
}

// Change is one change of a quota: Old is nil for one that is created, New for one that is deleted.
type Change struct{ Old, New *Spec }

// World is what a change is checked against.
type World struct {
	// Quotas are all that there are, in every namespace, group and tree, in any order. They may break every rule.
	Quotas []Spec
	// Pods counts pods that have not ended.
	Pods map[PodsOf]int
	// Used returns what the pods of a quota hold; nil is nothing.
	Used func(quota string) amount.List
	// RelaxResourceKeys accepts a child whose max has only some dimensions of its parent's.
	RelaxResourceKeys bool
}

// Checker checks changes of a world against the rules. The world's quotas must not change while it is used.
type Checker struct {
	World
	byName, children map[string][]*Spec // sorted; the children of Root under ""
	mapping          *Mapping
}

// NewChecker returns a checker of a world. It costs O(n log n) in the number of quotas.
func NewChecker(w World) *Checker {
	x := &Checker{w, map[string][]*Spec{}, map[string][]*Spec{}, NewMapping(w.Quotas)}
	for i := range w.Quotas {
		s := &w.Quotas[i]
		x.byName[s.Name] = append(x.byName[s.Name], s)
		x.children[s.above()] = append(x.children[s.above()], s)
	}
	for _, lists := range []map[string][]*Spec{x.byName, x.children} {
		for _, list := range lists {
			slices.SortFunc(list, compareObjects)
		}
	}
	return x
}

// Check returns the rules that a change breaks, without those that the quota broke before in the very same way: whoever
// edits one field need not first repair a tree that is older than the rules. It costs as much as NewChecker.
func (x *Checker) Check(c Change) []Violation {
	s := cmp.Or(c.New, c.Old)
	r := &report{quota: s.Name}
	switch {
	case isReserved(s.Name) && c.New == nil:
		r.add(V9, "", "name", "delete quota failed, quota %s is reserved", s.Name)
		return r.found
	case isReserved(s.Name) && (c.Old == nil || s.Name != Default && !reflect.DeepEqual(c.Old, c.New)):
		r.add(V17, "", "name", "quota %s is reserved: it cannot be created or edited; %s can be edited", s.Name,
			Default)
		return r.found
	case c.New == nil:
		x.delete(r, s)
	case c.Old != nil:
		if c.Old.Tree != s.Tree {
			r.add(V6, "", "tree", "%s tree id changed [%s] vs [%s]", s.Name, c.Old.Tree, s.Tree)
		}
		if !c.Old.IsParent && s.IsParent {
			x.noPods(r, s)
		}
	}
	w, was := x.World, c.Old
	w.Quotas = slices.DeleteFunc(slices.Clone(w.Quotas), func(o Spec) bool { return o.sameObject(s) })
	if c.New != nil {
		w.Quotas = append(w.Quotas, *s)
	} else if own := NewMapping(w.Quotas).own(s.Namespace); own != "" {
		s = x.byName[own][0] // it remains in the namespace, and may now take its pods
		was = s
	} else {
		return r.found
	}
	var known []Violation
	if was != nil {
		known = x.violations(was)
	}
	for _, v := range NewChecker(w).violations(s) {
		if !slices.Contains(known, v) && !slices.Contains(r.found, v) {
			r.found = append(r.found, v)
		}
	}
	return r.found
}

// Broken returns the rules that a quota of the world breaks as it is and that the forest does not mend: it counts as it
// says. Quota.Problems has those that are mended. Of two quotas that contradict each other the lower one breaks the
// rule; of a sum, the parent.
func (x *Checker) Broken(s *Spec) []Violation {
	r := &report{quota: s.Name}
	x.place(r, s)
	x.strict(r, s)
	if parent := x.byName[s.above()]; len(parent) > 0 {
		x.pair(r, s, parent[0], s)
	}
	x.sumOfMin(r, s, s)
	x.names(r, s)
	return slices.DeleteFunc(r.found, func(v Violation) bool {
		return v.Rule == V10 || v.Rule == V3 && len(x.byName[s.above()]) == 0
	})
}

// CheckPods returns V12 where pods would be in a parent.
func (x *Checker) CheckPods(p PodsOf) []Violation {
	name := x.QuotaOf(p)
	if p.Quota == Root {
		name = Root
	}
	r := &report{quota: name}
	if q := x.byName[name]; name == Root || len(q) > 0 && q[0].IsParent {
		r.add(V12, p.Namespace, "name",
			"pods of namespace %s are in quota %s, which is a parent: only leaves have pods", p.Namespace, name)
	}
	return r.found
}

// QuotaOf returns the quota of pods, as Mapping.Of does.
func (x *Checker) QuotaOf(p PodsOf) string {
	name, _ := x.mapping.Of(p)
	return name
}

// Tree returns the tree id of a quota; "" where it does not exist.
func (x *Checker) Tree(name string) string {
	if q := x.byName[name]; len(q) > 0 {
		return q[0].Tree
	}
	return ""
}

// report collects the violations that are found of one quota.
type report struct {
	quota string
	found []Violation
}

// add records a violation. other is a second quota that takes part, empty for none.
func (r *report) add(rule Rule, other, field, format string, args ...any) {
	r.found = append(r.found, Violation{rule, r.quota, other, field, fmt.Sprintf(format, args...)})
}

// above names the parent; "" is Root.
func (s *Spec) above() string {
	if s.isTop() {
		return ""
	}
	return s.Parent
}

// object names the object that a spec comes from.
func (s *Spec) object() string { return s.Namespace + "/" + s.Name + " of " + s.Group }

// sameObject reports whether two specs come from one object.
func (s *Spec) sameObject(o *Spec) bool {
	return s.Name == o.Name && s.Namespace == o.Namespace && s.Group == o.Group
}

// delete has V9.
func (x *Checker) delete(r *report, s *Spec) {
	if len(x.byName[s.Name]) > 1 {
		return // the other object of this name keeps children and pods
	}
	if children := x.children[s.Name]; len(children) > 0 {
		r.add(V9, children[0].Name, "name", "delete quota failed, quota %s has %d child quotas, such as %s", s.Name,
			len(children), children[0].Name)
	}
	if n, namespace := x.podsOf(s); n > 0 {
		r.add(V9, namespace, "name", "delete quota failed, quota %s has %d pods, such as those of namespace %s", s.Name,
			n, namespace)
	}
}

// noPods has the half of V4 about parents.
func (x *Checker) noPods(r *report, s *Spec) {
	if n, namespace := x.podsOf(s); n > 0 || s.Name == Default {
		r.add(V4, namespace, "isParent", "quota has bound pods, isParent is forbidden to modify as true: "+
			"%s has %d pods, such as those of namespace %s", s.Name, n, cmp.Or(namespace, "any"))
	}
}

// podsOf counts the pods of a quota and names the first namespace that has some.
func (x *Checker) podsOf(s *Spec) (n int, namespace string) {
	for p, count := range x.Pods {
		if quotaName, _ := x.mapping.Of(p); quotaName == s.Name && count > 0 {
			if n == 0 || p.Namespace < namespace {
				namespace = p.Namespace
			}
			n += count
		}
	}
	return n, namespace
}

// violations returns the rules that a world breaks, as seen from one quota.
func (x *Checker) violations(s *Spec) []Violation {
	r := &report{quota: s.Name}
	x.amounts(r, s)
	x.place(r, s)
	x.path(r, s)
	if parent := x.byName[s.above()]; len(parent) > 0 {
		x.pair(r, s, parent[0], s)
		x.sumOfMin(r, s, parent[0])
	}
	for _, child := range x.children[s.Name] {
		x.pair(r, s, s, child)
	}
	x.sumOfMin(r, s, s)
	x.names(r, s)
	return r.found
}

// amounts has the rules about the quota alone.
func (x *Checker) amounts(r *report, s *Spec) {
	for _, f := range []struct {
		field, phrase string
		amounts       amount.List
	}{
		{"min", "quota.Spec.Min", s.Min},
		{"max", "quota.Spec.Max", s.Max},
		{"weight", "shared-weight", s.Weight},
		{"total", "total-resource", s.Total},
	} {
		negative := slices.DeleteFunc(keys(f.amounts), func(d string) bool { return f.amounts[d] >= 0 })
		if len(negative) > 0 {
			r.add(V1, "", f.field, "%s %s's value < 0, in dimensions: %v", s.Name, f.phrase, negative)
		}
		for _, d := range keys(f.amounts) {
			if n := f.amounts[d]; n > mostAmount && !isReserved(s.Name) { // Koordinator writes unlimited ones
				r.add(V15, "", f.field+"["+d+"]", "resourceKey %s of quota %s %s %s > %s, the most that a quota can "+
					"have", d, s.Name, f.field, text(d, n), text(d, mostAmount))
			}
		}
	}
	for _, d := range keys(s.Min) {
		if ceiling, ok := s.Max[d]; !ok {
			r.add(V2, "", "min["+d+"]",
				"resourceKey %s of quota %s is included in min, which is not included in max", d, s.Name)
		} else if s.Min[d] > ceiling {
			r.add(V2, "", "min["+d+"]", "resourceKey %s of quota %s min %s > max %s", d, s.Name, text(d, s.Min[d]),
				text(d, ceiling))
		}
	}
	for _, d := range keys(s.Weight) {
		if _, ok := s.Max[d]; !ok {
			r.add(V14, "", "weight["+d+"]",
				"resourceKey %s of quota %s is included in shared-weight, which is not included in max", d, s.Name)
		}
	}
	x.strict(r, s)
}

// strict has V8.
func (x *Checker) strict(r *report, s *Spec) {
	for _, d := range s.Strict {
		if ceiling, ok := s.Max[d]; ok && x.Used != nil && ceiling < x.Used(s.Name)[d] {
			r.add(V8, "", "max["+d+"]", "resourceKey %s of quota %s max %s < used %s", d, s.Name, text(d, ceiling),
				text(d, x.Used(s.Name)[d]))
		}
	}
}

// place has the rules about the role of a quota in its tree.
func (x *Checker) place(r *report, s *Spec) {
	switch parent := x.byName[s.above()]; {
	case s.isTop():
	case len(parent) == 0:
		r.add(V3, s.Parent, "parent", "%s has parentName %s but not find parentInfo", s.Name, s.Parent)
	case !parent[0].IsParent:
		r.add(V3, s.Parent, "parent", "%s has parentName %s but the parentQuotaInfo's IsParent is false", s.Name,
			s.Parent)
	}
	if children := x.children[s.Name]; len(children) > 0 && !s.IsParent {
		r.add(V4, children[0].Name, "isParent",
			"quota has children, isParent is forbidden to modify as false: %s has %d, such as %s", s.Name,
			len(children), children[0].Name)
	}
	if s.IsParent {
		x.noPods(r, s)
	}
	if s.IsRoot && s.Tree == "" {
		r.add(V16, "", "isRoot", "%s is the root of a tree and has no tree id", s.Name)
	}
	if s.IsRoot && !s.isTop() {
		r.add(V16, s.Parent, "isRoot", "%s is the root of tree [%s] and has parentName %s", s.Name, s.Tree, s.Parent)
	}
	for _, o := range x.children[""] {
		if s.IsRoot && o.IsRoot && o.Tree == s.Tree && o.Name != s.Name {
			r.add(V16, o.Name, "isRoot", "%s and %s are both the root of tree [%s]", s.Name, o.Name, s.Tree)
		}
	}
}

// path has V13.
func (x *Checker) path(r *report, s *Spec) {
	path := []string{s.Name}
	for p := x.byName[s.above()]; len(p) > 0 && len(path) <= MaxDepth; p = x.byName[p[0].above()] {
		path = append(path, p[0].Name)
		if p[0].Name == s.Name {
			r.add(V13, s.Parent, "parent", "parent %s is %s or below it: %s", s.Parent, s.Name, strings.Join(path,
				" -> "))
			return
		}
	}
	if len(path)+x.below(s, MaxDepth) > MaxDepth {
		r.add(V13, s.Parent, "parent", "%s with parentName %s is on a path of more than %d quotas", s.Name, s.Parent,
			MaxDepth)
	}
}

// below counts the quotas on the longest path below s, at most limit.
func (x *Checker) below(s *Spec, limit int) (n int) {
	if limit == 0 {
		return 0
	}
	for _, child := range x.children[s.Name] {
		n = max(n, 1+x.below(child, limit-1))
	}
	return n
}

// pair has the rules about a parent and a child, one of which is s.
func (x *Checker) pair(r *report, s, parent, child *Spec) {
	other, relation, theirs := parent.Name, "parent", parent.Tree
	if s == parent {
		other, relation, theirs = child.Name, "child", child.Tree
	}
	if parent.Tree != child.Tree {
		r.add(V6, other, "tree", "%s tree id is different from %s %s, [%s] vs [%s]", s.Name, relation, other, s.Tree,
			theirs)
	}
	if !includes(parent.Min, child.Min) {
		r.add(V7, other, "min", "%s's min keys %v are not all included in %s's %v", child.Name, keys(child.Min),
			parent.Name, keys(parent.Min))
	}
	if rule := "not all included in"; !includes(parent.Max, child.Max) || !x.RelaxResourceKeys &&
		len(parent.Max) != len(child.Max) {
		if !x.RelaxResourceKeys {
			rule = "not the same with"
		}
		r.add(V7, other, "max", "%s's max keys %v are %s %s's %v", child.Name, keys(child.Max), rule, parent.Name,
			keys(parent.Max))
	}
}

// sumOfMin has V5 of the children of a parent, for a change of s: one of them, or the parent.
func (x *Checker) sumOfMin(r *report, s, parent *Spec) {
	children := x.children[parent.Name]
	if s.IsRoot || s.ForceUpdate || len(children) == 0 {
		return
	}
	other, phrase := parent.Name, "the children's min exceeds the parent's: "+
		"all brothers' MinQuota > parent MinQuota, parent: %s; %s: %s > %s"
	if s == parent {
		other, phrase = children[0].Name, "the children's min exceeds the parent's: "+
			"all children's MinQuota > current MinQuota, current: %s; %s: %s > %s"
	}
	asked := amount.List{} // for the names of the dimensions
	for _, c := range children {
		maps.Copy(asked, c.Min)
	}
	for _, d := range keys(asked) {
		n := total(children, func(c *Spec) int64 { return c.Min[d] }).amount()
		if n > parent.Min[d] {
			r.add(V5, other, "min["+d+"]", phrase, parent.Name, d, text(d, n), text(d, parent.Min[d]))
		}
	}
}

// weight is the strength when borrowing in a dimension.
func (s *Spec) weight(dimension string) int64 {
	if weight, ok := s.Weight[dimension]; ok {
		return weight
	}
	return s.Max[dimension]
}

// names has V10 and V11.
func (x *Checker) names(r *report, s *Spec) {
	before := len(r.found)
	for i := range x.Quotas {
		o := &x.Quotas[i]
		switch {
		case o.sameObject(s):
			continue
		case o.Name == s.Name:
			r.add(V10, o.object(), "name", "%s exists already: names are unique in the cluster", o.object())
		}
		for _, namespace := range s.Namespaces {
			if slices.Contains(o.Namespaces, namespace) {
				r.add(V11, o.Name, "namespaces", "namespace %s is listed by %s and by %s", namespace, s.Name, o.Name)
			}
			if o.Namespace == namespace && x.mapping.own(namespace) == o.Name {
				r.add(V11, o.Name, "namespaces", "namespace %s is listed by %s and has its own quota %s", namespace,
					s.Name, o.Name)
			}
		}
		if x.mapping.own(s.Namespace) == s.Name && slices.Contains(o.Namespaces, s.Namespace) {
			r.add(V11, o.Name, "name", "namespace %s has its own quota %s and is listed by %s", s.Namespace, s.Name,
				o.Name)
		}
	}
	slices.SortFunc(r.found[before:], func(a, b Violation) int { return cmp.Compare(a.Text, b.Text) })
}

// keys returns the dimensions of amounts, sorted.
func keys(a amount.List) []string { return slices.Sorted(maps.Keys(a)) }

// includes reports whether all has every dimension of some.
func includes(all, some amount.List) bool {
	for d := range some {
		if _, ok := all[d]; !ok {
			return false
		}
	}
	return true
}

// total adds up what is above 0.
func total(quotas []*Spec, amount func(*Spec) int64) (all sum) {
	for _, q := range quotas {
		all = all.plus(sumOf(max(amount(q), 0)))
	}
	return all
}

// text writes an amount as a quantity: CPU in cores or milli, whole multiples of 1024 in binary units.
func text(dimension string, n int64) string {
	unit, units := 0, [...]string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	switch {
	case dimension == "cpu" && n%1000 != 0:
		return strconv.FormatInt(n, 10) + "m"
	case dimension == "cpu":
		return strconv.FormatInt(n/1000, 10)
	}
	for ; n != 0 && n%1024 == 0 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + units[unit]
}

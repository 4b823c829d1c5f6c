package view

import (
	"maps"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
)

// Quota is what is known of an elastic quota. Amounts are canonical strings by resource; those from Min to Borrowed
// have every resource that max names, zeros too, and the sums also what is not 0 of others.
type Quota struct {
	Name string `json:"name"`
	// Parent is the quota above, "" for the tops of trees and for the quotas outside of all trees.
	Parent   string `json:"parentName"`
	IsParent bool   `json:"isParent"`
	// Tree is the id of an extra tree, "" in the default tree.
	Tree string `json:"tree"`
	// Path is from below the top of the default tree, or from the top of an extra one, to the quota.
	Path  []string `json:"path"`
	Lends bool     `json:"allowLentResource"`

	Max map[string]string `json:"max"`
	Min map[string]string `json:"min"`
	// EffectiveMin is min where the total is not smaller than all mins together, else the part of it that there is.
	EffectiveMin map[string]string `json:"autoScaleMin"`
	Weight       map[string]string `json:"sharedWeight"`
	Runtime      map[string]string `json:"runtime"`
	// ExactShare is the runtime without rounding, a decimal number in the unit of a Trace.
	ExactShare map[string]string `json:"exactShare,omitempty"`
	Used       map[string]string `json:"used"`
	// Lent is what the runtime is below EffectiveMin, Borrowed what it is above.
	Lent     map[string]string `json:"lent"`
	Borrowed map[string]string `json:"borrowed"`
	// Request is ChildRequest, lifted to min where the quota does not lend; ChildRequest is what the pods ask for,
	// pending ones too: of a parent, what its children ask for within their max.
	Request               map[string]string `json:"request"`
	ChildRequest          map[string]string `json:"childRequest"`
	NonPreemptibleRequest map[string]string `json:"nonPreemptibleRequest"`
	NonPreemptibleUsed    map[string]string `json:"nonPreemptibleUsed"`
	Allocated             map[string]string `json:"allocated"`
	Guaranteed            map[string]string `json:"guaranteed"`
	// Trace has the divisions that gave the runtimes, by resource, in milli-CPU for cpu and in the resource's own unit
	// for all others.
	Trace map[string]quota.Trace `json:"trace,omitempty"`

	// Pods are by namespace/name, where they were asked for; PodsHidden counts those that the caller may not read.
	Pods       map[string]QuotaPod `json:"podCache,omitempty"`
	PodsHidden int                 `json:"podsHidden,omitempty"`
	// Problems are what is wrong with the quota's objects and what counts instead.
	Problems []string `json:"problems,omitempty"`
}

// QuotaPod is a pod of a quota; IsAssigned ones hold what they ask for.
type QuotaPod struct {
	IsAssigned bool              `json:"isAssigned"`
	Resource   map[string]string `json:"resource"`
}

// AmountText writes an amount of a resource in the unit of the account as Kubernetes does.
type AmountText func(resource string, n int64) string

// QuotaOf describes a quota, without its divisions and pods.
func QuotaOf(f *quota.Forest, q *quota.Quota, text AmountText) Quota {
	r := f.Report(q)
	asked, lent, borrowed := maps.Clone(r.Request), amount.List{}, amount.List{}
	for resource, n := range r.Passed {
		asked[resource] = max(asked[resource], n)
	}
	for resource, n := range r.Runtime {
		lent[resource], borrowed[resource] = max(r.EffectiveMin[resource]-n, 0), max(n-r.EffectiveMin[resource], 0)
	}
	return Quota{
		Name: r.Name, Parent: r.Parent, IsParent: r.IsParent, Tree: r.Tree, Path: append([]string{}, r.Path...),
		Lends: r.Lends, Max: text.list(r.Max), Min: text.list(r.Min), EffectiveMin: text.list(r.EffectiveMin),
		Weight: text.list(r.Weight), Runtime: text.list(r.Runtime), Used: text.list(r.Used), Lent: text.list(lent),
		Borrowed: text.list(borrowed), Request: text.list(asked), ChildRequest: text.list(r.Request),
		NonPreemptibleRequest: text.list(r.NonPreemptibleRequest),
		NonPreemptibleUsed:    text.list(r.NonPreemptibleUsed),
		Allocated:             text.list(r.Allocated), Guaranteed: text.list(r.Guaranteed),
	}
}

// exactDigits is how many digits of an exact share follow the point.
const exactDigits = 3

// AddDivisions adds how the runtimes of q, which v describes, come about. The work is in the number of its siblings;
// a set of siblings whose shares exact does not know yet costs a hundred times as much, once.
func (v *Quota) AddDivisions(f *quota.Forest, q *quota.Quota, exact *quota.Shares) {
	v.ExactShare, v.Trace = map[string]string{}, map[string]quota.Trace{}
	for resource := range v.Runtime {
		d := f.Dimension(resource)
		if share, limited := exact.Exact(q, d); limited {
			v.ExactShare[resource] = share.FloatString(exactDigits)
		}
		if t, divided := f.Trace(q, d); divided {
			v.Trace[resource] = t
		}
	}
}

// AddPods adds the pods of the quota; those in namespaces that the caller may not read are counted.
func (v *Quota) AddPods(members []quota.Member, text AmountText, mayRead func(namespace string) bool) {
	for _, m := range members {
		if !mayRead(m.Namespace) {
			v.PodsHidden++
			continue
		}
		if v.Pods == nil {
			v.Pods = map[string]QuotaPod{}
		}
		v.Pods[m.Namespace+"/"+m.Name] = QuotaPod{m.State != quota.Pending, text.list(m.Amounts)}
	}
}

func (text AmountText) list(amounts amount.List) map[string]string {
	out := map[string]string{}
	for resource, n := range amounts {
		out[resource] = text(resource, n)
	}
	return out
}

// QuotaLimit is why a quota does not admit a pod: the first one, from the pod's own upwards, that would use too much.
type QuotaLimit struct {
	Quota string `json:"quota"`
	// Path is from the top of the tree to the pod's own quota.
	Path []string `json:"path"`
	// LimitKind is runtime, max, min (of pods that are not preemptible), or missing: the quota does not exist.
	LimitKind string          `json:"limitKind"`
	Shortages []QuotaShortage `json:"shortages"`
}

// QuotaShortage is a resource in which Used and Request together are above Limit.
type QuotaShortage struct {
	Dimension string `json:"dimension"`
	Limit     string `json:"limit"`
	Used      string `json:"used"`
	Request   string `json:"request"`
	// Borrowers are the siblings of the quota that use more than their min; BorrowersHidden counts those that the
	// caller may not see. Where the quota's own max is the limit there are none: no one has what it lacks.
	Borrowers       []Borrower `json:"borrowers"`
	BorrowersHidden int        `json:"borrowersHidden,omitempty"`
	// Outside is what pods in no quota use, by the quota that they count in, where that is why the runtime is short.
	Outside map[string]string `json:"outside,omitempty"`
}

// Borrower is a quota that uses more of a resource than its min, which is scaled where the total is short of all mins.
type Borrower struct {
	Quota    string `json:"quota"`
	Used     string `json:"used"`
	Min      string `json:"min"`
	Borrowed string `json:"borrowed"`
}

// QuotaLimitOf describes why pods are not admitted. mayRead reports whether the caller may see the quotas of a
// namespace.
func QuotaLimitOf(f *quota.Forest, x *quota.Excess, text AmountText, mayRead func(namespace string) bool) *QuotaLimit {
	out := &QuotaLimit{
		Quota: x.Quota, Path: append([]string{}, x.Path...), LimitKind: string(x.LimitKind),
		Shortages: []QuotaShortage{},
	}
	for i, s := range x.Shortages {
		format := func(n int64) string { return text(s.Dimension, n) }
		shortage := QuotaShortage{
			Dimension: s.Dimension, Limit: format(s.Limit), Used: format(s.Used), Request: format(s.Request),
			Borrowers: []Borrower{},
		}
		for _, r := range siblings(f, x, s) {
			over := r.Used[s.Dimension] - r.EffectiveMin[s.Dimension]
			switch {
			case over <= 0:
			case !mayRead(f.Find(r.Name).Spec().Namespace):
				shortage.BorrowersHidden++
			default:
				shortage.Borrowers = append(shortage.Borrowers,
					Borrower{r.Name, format(r.Used[s.Dimension]), format(r.EffectiveMin[s.Dimension]), format(over)})
			}
		}
		if i == 0 && x.Outside != (quota.Outside{}) {
			shortage.Outside = map[string]string{}
			for name, n := range map[string]int64{quota.Default: x.Outside.Default, quota.System: x.Outside.System} {
				if n > 0 {
					shortage.Outside[name] = format(n)
				}
			}
		}
		out.Shortages = append(out.Shortages, shortage)
	}
	return out
}

// siblings returns the quotas that have what the quota lacks of its runtime: those of the same parent that divide the
// resource.
func siblings(f *quota.Forest, x *quota.Excess, s quota.Shortage) (out []quota.Report) {
	d, q := f.Dimension(s.Dimension), f.Find(x.Quota)
	if ceiling, _ := q.Max(d); q.Parent() == nil || x.LimitKind != quota.RuntimeLimit || s.Limit >= ceiling {
		return nil
	}
	for _, r := range f.Reports() {
		if _, divides := r.Max[s.Dimension]; divides && r.Parent == q.Parent().Name() && r.Name != x.Quota {
			out = append(out, r)
		}
	}
	return out
}

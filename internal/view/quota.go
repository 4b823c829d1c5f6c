package view

import (
	"maps"

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
	// Trace has the divisions that gave the runtimes, by resource.
	Trace map[string]QuotaTrace `json:"trace,omitempty"`

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

// QuotaTrace is how a runtime comes about, in milli-CPU for cpu and in the resource's own unit for all others.
type QuotaTrace struct {
	// Total is what the quota and its siblings divide, Pool what is left of it above all bases.
	Total        int64 `json:"total"`
	EffectiveMin int64 `json:"effectiveMin"`
	// Limited is the request within max, Base the part of it that needs no division.
	Limited int64        `json:"limited"`
	Base    int64        `json:"base"`
	Pool    int64        `json:"pool"`
	Rounds  []QuotaRound `json:"rounds"`
}

// QuotaRound is a round of a division that the quota took part in. What is above Limited was Returned to the next one.
type QuotaRound struct {
	Pool     int64 `json:"pool"`
	Weights  int64 `json:"weights"`
	Got      int64 `json:"got"`
	Returned int64 `json:"returned"`
}

// AmountText writes an amount of a resource in the unit of the account as Kubernetes does.
type AmountText func(resource string, n int64) string

// QuotaOf describes a quota, without its divisions and pods.
func QuotaOf(f *quota.Forest, q *quota.Quota, text AmountText) Quota {
	r := f.Report(q)
	asked, lent, borrowed := maps.Clone(r.Request), quota.Amounts{}, quota.Amounts{}
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
	v.ExactShare, v.Trace = map[string]string{}, map[string]QuotaTrace{}
	for resource := range v.Runtime {
		d := f.Dimension(resource)
		if share, limited := exact.Exact(q, d); limited {
			v.ExactShare[resource] = share.FloatString(exactDigits)
		}
		t, divided := f.Trace(q, d)
		if !divided {
			continue
		}
		out := QuotaTrace{t.Total, t.EffectiveMin, t.Limited, t.Base, t.Pool, []QuotaRound{}}
		for _, r := range t.Rounds {
			out.Rounds = append(out.Rounds, QuotaRound(r))
		}
		v.Trace[resource] = out
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

func (text AmountText) list(amounts quota.Amounts) map[string]string {
	out := map[string]string{}
	for resource, n := range amounts {
		out[resource] = text(resource, n)
	}
	return out
}

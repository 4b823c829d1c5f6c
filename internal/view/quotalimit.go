package view

import (
	"github.com/tenon-project/tenon/internal/core/quota"
)

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

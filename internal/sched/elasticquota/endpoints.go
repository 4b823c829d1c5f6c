package elasticquota

import (
	"net/http"

	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag"
)

// exactDigits is how many digits of an exact share follow the point.
const exactDigits = 3

// Diagnostics are the endpoints of seed 003 and of Koordinator's releases since. A caller sees the quotas, and with
// includePods=true the pods, of the namespaces whose pods it may read.
func (p *Plugin) Diagnostics() diag.Service {
	one := func(r *http.Request, mayRead func(string) bool) any {
		if q := p.describe(r.PathValue("name"), r.URL.Query().Get("includePods") == "true", mayRead); q != nil {
			return q
		}
		return nil
	}
	return diag.Service{Endpoints: []diag.Endpoint{
		{Path: "quota/{name}", Names: "quota", Answer: one},
		{Path: "quotas/{name}", Names: "quota", Answer: one},
		{Path: "quotas", Answer: func(r *http.Request, mayRead func(string) bool) any {
			all := map[string]*quotaState{}
			for _, q := range p.quotas.Reports() {
				if is := p.describe(q.Name, r.URL.Query().Get("includePods") == "true", mayRead); is != nil {
					all[q.Name] = is
				}
			}
			return all
		}},
	}}
}

// quotaState is the JSON of a quota: field names are contract.
type quotaState struct {
	Name        string   `json:"name"`
	Parent      string   `json:"parentName"`
	IsParent    bool     `json:"isParent"`
	Tree        string   `json:"tree"`
	Path        []string `json:"path"`
	Lends       bool     `json:"allowLentResource"`
	Max         list     `json:"max"`
	Min         list     `json:"min"`
	AutoScale   list     `json:"autoScaleMin"`
	SharedWt    list     `json:"sharedWeight"`
	Runtime     list     `json:"runtime"`
	ExactShare  list     `json:"exactShare"`
	Used        list     `json:"used"`
	Request     list     `json:"request"`
	ChildReq    list     `json:"childRequest"`
	NonPreReq   list     `json:"nonPreemptibleRequest"`
	NonPreUsed  list     `json:"nonPreemptibleUsed"`
	Allocated   list     `json:"allocated"`
	Guaranteed  list     `json:"guaranteed"`
	Trace       traces   `json:"trace"`
	PodCache    podCache `json:"podCache,omitempty"`
	PodsHidden  int      `json:"podsHidden,omitempty"`
	ProblemList []string `json:"problems,omitempty"`
}

type (
	list     map[string]string
	traces   map[string]trace
	podCache map[string]podState
)

type podState struct {
	IsAssigned bool `json:"isAssigned"`
	Resource   list `json:"resource"`
}

// trace is how a runtime comes about, in the unit of the account: milli-CPU for cpu.
type trace struct {
	Total        int64   `json:"total"`
	EffectiveMin int64   `json:"effectiveMin"`
	Limited      int64   `json:"limited"`
	Base         int64   `json:"base"`
	Pool         int64   `json:"pool"`
	Rounds       []round `json:"rounds"`
}

type round struct {
	Pool     int64 `json:"pool"`
	Weights  int64 `json:"weights"`
	Got      int64 `json:"got"`
	Returned int64 `json:"returned"`
}

// describe returns what is known of a quota; nil where there is none, or none that the caller may see.
func (p *Plugin) describe(name string, pods bool, mayRead func(namespace string) bool) *quotaState {
	var out *quotaState
	var members []quota.Member
	namespace := ""
	p.quotas.Read(func(a *quota.Account) {
		f := a.Forest()
		q := f.Find(name)
		if q == nil {
			return
		}
		namespace = q.Spec().Namespace
		out = stateOf(f.Report(q))
		exact := f.Shares()
		for dimension := range out.Runtime {
			d := f.Dimension(dimension)
			if share, ok := exact.Exact(q, d); ok {
				out.ExactShare[dimension] = share.FloatString(exactDigits)
			}
			if t, ok := f.Trace(q, d); ok {
				out.Trace[dimension] = traceOf(t)
			}
		}
		if pods {
			members = a.Members(q)
		}
	})
	if out == nil || namespace != "" && !mayRead("") && !mayRead(namespace) {
		return nil
	}
	out.ProblemList = p.quotas.Problems(name)
	for _, m := range members {
		if !mayRead("") && !mayRead(m.Namespace) {
			out.PodsHidden++
			continue
		}
		if out.PodCache == nil {
			out.PodCache = podCache{}
		}
		out.PodCache[m.Namespace+"/"+m.Name] = podState{m.State != quota.Pending, quantities(m.Amounts)}
	}
	return out
}

func stateOf(r quota.Report) *quotaState {
	return &quotaState{
		Name: r.Name, Parent: r.Parent, IsParent: r.IsParent, Tree: r.Tree, Path: r.Path, Lends: r.Lends,
		Max: quantities(r.Max), Min: quantities(r.Min), AutoScale: quantities(r.EffectiveMin),
		SharedWt: quantities(r.Weight), Runtime: quantities(r.Runtime), Used: quantities(r.Used),
		Request: quantities(r.Passed), ChildReq: quantities(r.Request),
		NonPreReq: quantities(r.NonPreemptibleRequest), NonPreUsed: quantities(r.NonPreemptibleUsed),
		Allocated: quantities(r.Allocated), Guaranteed: quantities(r.Guaranteed), ExactShare: list{}, Trace: traces{},
	}
}

func quantities(amounts quota.Amounts) list {
	out := list{}
	for dimension, n := range amounts {
		out[dimension] = convert.QuotaText(dimension, n)
	}
	return out
}

func traceOf(t quota.Trace) trace {
	out := trace{t.Total, t.EffectiveMin, t.Limited, t.Base, t.Pool, []round{}}
	for _, r := range t.Rounds {
		out.Rounds = append(out.Rounds, round(r))
	}
	return out
}

package elasticquota

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/view"
)

// Diagnostics are the endpoints of seed 003 and of Koordinator's releases since. A caller sees the quotas, and with
// includePods=true the pods, of the namespaces whose pods it may read. rounds=false leaves out the divisions, which
// cost the most.
func (p *Plugin) Diagnostics() diag.Service {
	one := func(r *http.Request, mayRead func(string) bool) any {
		if q := p.describe(r.PathValue("name"), r, mayRead); q != nil {
			return q
		}
		return nil
	}
	return diag.Service{Endpoints: []diag.Endpoint{
		{Path: "quota/{name}", Names: "quota", Answer: one},
		{Path: "quotas/{name}", Names: "quota", Answer: one},
		{Path: "quotas", Answer: func(r *http.Request, mayRead func(string) bool) any {
			all := map[string]*view.Quota{}
			for _, q := range p.quotas.Reports() {
				if is := p.describe(q.Name, r, mayRead); is != nil {
					all[q.Name] = is
				}
			}
			return all
		}},
	}}
}

// anywhere also allows what a caller may read in every namespace.
func anywhere(mayRead func(namespace string) bool) func(namespace string) bool {
	return func(namespace string) bool { return namespace == "" || mayRead("") || mayRead(namespace) }
}

// describe returns what is known of a quota; nil where there is none, or none that the caller may see.
func (p *Plugin) describe(name string, r *http.Request, mayRead func(namespace string) bool) (out *view.Quota) {
	mayRead = anywhere(mayRead)
	var members []quota.Member
	namespace := ""
	p.quotas.Read(func(a *quota.Account) {
		f := a.Forest()
		q := f.Find(name)
		if q == nil {
			return
		}
		namespace = q.Spec().Namespace
		v := view.QuotaOf(f, q, convert.QuotaText)
		if out = &v; r.URL.Query().Get("rounds") != "false" {
			v.AddDivisions(f, q)
		}
		if r.URL.Query().Get("includePods") == "true" {
			members = a.Members(q)
		}
	})
	if out == nil || !mayRead(namespace) {
		return nil
	}
	out.Problems = p.quotas.Problems(name)
	out.AddPods(members, convert.QuotaText, mayRead)
	return out
}

// Explain says which quota on the path of a pending pod holds it back, and who borrows there.
func (p *Plugin) Explain(pod *corev1.Pod, into *view.Pod, mayRead func(namespace string) bool) {
	if !p.quotas.Limits(pod) {
		return
	}
	mayRead = anywhere(mayRead)
	p.quotas.Read(func(a *quota.Account) {
		if x := a.Admit(string(pod.UID)); x != nil {
			into.Quota = view.QuotaLimitOf(a.Forest(), x, convert.QuotaText, mayRead)
		}
	})
}

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
		if q := p.describe(r.PathValue("name"), newQuestion(r, mayRead)); q != nil {
			return q
		}
		return nil
	}
	return diag.Service{Endpoints: []diag.Endpoint{
		{Path: "quota/{name}", Names: "quota", Answer: one},
		{Path: "quotas/{name}", Names: "quota", Answer: one},
		{Path: "quotas", Answer: func(r *http.Request, mayRead func(string) bool) any {
			all, asked := map[string]*view.Quota{}, newQuestion(r, mayRead)
			for _, q := range p.quotas.Reports() {
				if description := p.describe(q.Name, asked); description != nil {
					all[q.Name] = description
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

// question is what a request asks of quotas.
type question struct {
	rounds, pods bool
	mayRead      func(namespace string) bool
	// exact has the shares of the moment at which a set of siblings was first looked at, for all quotas of the answer.
	exact *quota.Shares
}

func newQuestion(r *http.Request, mayRead func(namespace string) bool) *question {
	query := r.URL.Query()
	return &question{query.Get("rounds") != "false", query.Get("includePods") == "true", anywhere(mayRead), nil}
}

// describe returns what is known of a quota; nil where there is none, or none that the caller may see.
func (p *Plugin) describe(name string, asked *question) (out *view.Quota) {
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
		out = &v
		if asked.rounds {
			if asked.exact == nil {
				asked.exact = f.Shares()
			}
			v.AddDivisions(f, q, asked.exact)
		}
		if asked.pods {
			members = a.Members(q)
		}
	})
	if out == nil || !asked.mayRead(namespace) {
		return nil
	}
	out.Problems = p.quotas.Problems(name)
	out.AddPods(members, convert.QuotaText, asked.mayRead)
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

package elasticquota

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/view"
)

// Diagnostics returns Koordinator's endpoints about quotas. A caller sees the quotas, and with includePods=true the
// pods, of the namespaces whose pods it may read. rounds=false leaves out the divisions, which cost the most.
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

// anywhere extends a caller's rights: a right to all namespaces holds for each, and a quota without a namespace is for
// everyone.
func anywhere(mayRead func(namespace string) bool) func(namespace string) bool {
	return func(namespace string) bool { return namespace == "" || mayRead("") || mayRead(namespace) }
}

// question is one request. rounds adds how min and max were divided, pods adds the pods of each quota.
type question struct {
	// rounds adds the rounds of the divisions of min and max, pods the pods of each quota.
	rounds, pods bool
	// mayRead reports whether the caller may read pods of a namespace. Others are counted and not named.
	mayRead func(namespace string) bool
	// exact has the shares of all siblings at the first quota of the answer, so that all quotas show one moment. nil
	// before it is needed.
	exact *quota.Shares
}

// newQuestion reads the query of a request.
func newQuestion(r *http.Request, mayRead func(namespace string) bool) *question {
	query := r.URL.Query()
	return &question{query.Get("rounds") != "false", query.Get("includePods") == "true", anywhere(mayRead), nil}
}

// describe returns the view of a quota; nil if it does not exist or the caller may not see it.
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

// Explain adds to the explanation of a pending pod which quota on its path refuses it, and which quotas borrow there.
func (p *Plugin) Explain(pod *corev1.Pod, into *view.Pod, mayRead func(namespace string) bool) {
	if !p.quotas.Limits(pod) {
		return
	}
	mayRead = anywhere(mayRead)
	p.quotas.Read(func(a *quota.Account) { into.Quota = limitOf(a, string(pod.UID), mayRead) })
}

// limitOf describes why a pod is not admitted, with its gang; nil for one that is.
func limitOf(a *quota.Account, uid string, mayRead func(namespace string) bool) *view.QuotaLimit {
	x := a.Admit(uid)
	if x == nil {
		return nil
	}
	return view.QuotaLimitOf(a.Forest(), x, convert.QuotaText, mayRead)
}

package coscheduling

import (
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/view"
)

// Diagnostics are the endpoints of seed 003. A caller sees the gangs of the namespaces whose pods it may read.
func (p *Plugin) Diagnostics() diag.Service {
	return diag.Service{Endpoints: []diag.Endpoint{
		{
			Path: "gang/{namespace}/{name}", Names: "gang",
			Answer: func(r *http.Request, mayRead func(string) bool) any {
				if g := p.describe(r.PathValue("namespace")+"/"+r.PathValue("name"), mayRead); g != nil {
					return g
				}
				return nil
			},
		},
		{Path: "gangs", Answer: func(_ *http.Request, mayRead func(string) bool) any {
			all := map[string]*view.Gang{}
			var ids []string
			p.gangs.Read(func(s *gang.State) { ids = s.Gangs() })
			for _, id := range ids {
				if g := p.describe(id, mayRead); g != nil {
					all[id] = g
				}
			}
			return all
		}},
	}}
}

// describe returns nil for a gang that does not exist, or that the caller may not see.
func (p *Plugin) describe(id string, mayRead func(namespace string) bool) (g *view.Gang) {
	namespace, _, _ := strings.Cut(id, "/")
	if !mayRead("") && !mayRead(namespace) {
		return nil
	}
	var holding []gang.Member
	p.gangs.Read(func(s *gang.State) {
		g = view.GangOf(s, id)
		r, _ := s.Find(id)
		holding = r.In(gang.Waiting, gang.Returning, gang.Allowed)
	})
	if g == nil || len(holding) == 0 {
		return g
	}
	held := corev1.ResourceList{}
	for _, m := range holding {
		if pod := p.gangs.Pod(m.UID); pod != nil {
			held = quota.Add(held, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
		}
	}
	g.Held = map[string]string{}
	for name, amount := range held {
		g.Held[string(name)] = amount.String()
	}
	return g
}

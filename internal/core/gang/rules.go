package gang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenon-project/tenon/internal/core/domain"
)

// String says in which domains members do not fit; empty for a plan that was not bound to any.
func (t Tried) String() string {
	switch {
	case t.Rule == (domain.Rule{}):
		return ""
	case t.Many == 0:
		return fmt.Sprintf(" in one domain of %s: no node is in any", t.Rule)
	case t.Best == "":
		return fmt.Sprintf(" in one domain of %s: none of the %d can have the numbers of members that are asked for",
			t.Rule, t.Many)
	}
	others := ""
	switch {
	case t.More:
		others = " no more are tried at once,"
	case t.Domains < t.Many:
		others = " the others have too little room,"
	}
	return fmt.Sprintf(" in one domain of %s: tried %d of %d,%s most fit in %s", t.Rule, t.Domains, t.Many, others,
		t.Best)
}

// PutLayers replaces the levels of the cluster's network.
func (s *State) PutLayers(l *domain.Layers) (effects Effects) {
	s.layers = l
	for _, g := range s.gangs {
		if len(g.settings.DomainRules) == 0 {
			continue
		}
		g.unknown = s.unknown(g)
		if g.group != nil {
			effects.add(g.group.advanceRound())
		}
		effects.add(s.retry(g))
		effects.Opened = append(effects.Opened, s.opened(g)...)
	}
	return s.finish(effects)
}

// Layers returns the levels of the cluster's network.
func (s *State) Layers() *domain.Layers { return s.layers }

// unknown returns a rule that must hold and that cannot be followed.
func (s *State) unknown(g *gang) domain.Rule {
	for _, rule := range g.settings.DomainRules {
		if rule.Must && !s.layers.Knows(rule) {
			return rule
		}
	}
	return domain.Rule{}
}

// JoinWholeGPUs places gangs whose members all ask for whole GPUs as if each had Pod.Joint. After New it is not so.
func (s *State) JoinWholeGPUs(joins bool) { s.joinsWholeGPUs = joins }

// PutNode records the GPU clique of a node; empty for a node that is in none, or that is gone.
func (s *State) PutNode(name, clique string) {
	if clique == "" {
		delete(s.cliques, name)
	} else {
		s.cliques[name] = clique
	}
}

// asksForWholeGPUs reports whether a gang has several members, all of which ask for whole GPUs.
func (g *gang) asksForWholeGPUs() bool {
	for _, m := range g.members {
		if !m.pod.WholeGPUs {
			return false
		}
	}
	return len(g.members) > 1
}

// stated are the rules that a gang states, and that it prefers one GPU clique if its members ask for whole GPUs, a node
// is in a clique, and it states nothing about cliques.
func (s *State) stated(g *gang) []domain.Rule {
	rules := g.settings.DomainRules
	states := func(r domain.Rule) bool { return r.Layer == domain.GPUCliqueLayer || r.Label == domain.GPUCliqueLabel }
	if len(s.cliques) > 0 && g.asksForWholeGPUs() && !slices.ContainsFunc(rules, states) {
		rules = append(slices.Clip(rules), domain.Rule{Layer: domain.GPUCliqueLayer})
	}
	return rules
}

// rules are those of a gang that can be followed, from the innermost layer to the outermost. Members whose GPUs are to
// be next to each other prefer one node to all else.
func (s *State) rules(g *gang) (rules []domain.Rule, joint bool) {
	for _, rule := range s.stated(g) {
		if s.layers.Knows(rule) {
			rules = append(rules, rule)
		}
	}
	for _, m := range g.members {
		joint = joint || m.pod.Joint
	}
	joint = joint || s.joinsWholeGPUs && g.asksForWholeGPUs()
	node := func(r domain.Rule) bool { return r.Layer == domain.NodeLayer }
	if joint && !slices.ContainsFunc(rules, node) {
		rules = append(rules, domain.Rule{Layer: domain.NodeLayer})
	}
	slices.SortStableFunc(
		rules,
		func(a, b domain.Rule) int { return cmp.Compare(s.layers.Depth(b), s.layers.Depth(a)) },
	)
	return rules, joint
}

// domainRequests returns the members of a plan that go where rules allow.
func (s *State) domainRequests(group *group, p *Plan) (all []*domain.Request) {
	for _, g := range group.gangs {
		rules, joint := s.rules(g)
		ranked := func(uid string) bool { m := g.members[uid]; return m != nil && m.pod.Index > 0 }
		if len(rules) == 0 || g.isOpen() {
			continue
		}
		same := func(o *domain.Request) bool { return g.tree == nil && slices.Equal(o.Rules, rules) }
		at := slices.IndexFunc(all, same)
		if at < 0 {
			at = len(all)
			all = append(all, &domain.Request{Rules: rules})
		}
		to := all[at]
		to.Joint = to.Joint || joint
		to.Ranked = to.Ranked || slices.ContainsFunc(p.Members, ranked)
		to.Min += max(g.settings.Min-g.placed(), 0)
		to.Held = append(to.Held, g.held()...)
		for _, uid := range p.Members {
			if g.members[uid] != nil {
				to.Members = append(to.Members, uid)
			}
		}
	}
	return all
}

// held are the members that have a node, or are reserved on one.
func (g *gang) held() (uids []string) {
	for uid, m := range g.members {
		if m.phase != Pending && m.phase != Gated {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// HasDomainRules reports whether the gang of a pod asks for domains of the network.
func (s *State) HasDomainRules(uid string) bool {
	m := s.members[uid]
	return m != nil && len(m.gang.settings.DomainRules) > 0
}

// DomainRequest returns where a member may go that is tried without others; nil where it may go anywhere. In a gang
// that has started only rules that must hold bind it; before that it goes where the other pending members may follow.
func (s *State) DomainRequest(uid string) *domain.Request {
	m := s.members[uid]
	if m == nil || m.gang.isPlain() {
		return nil
	}
	rules, joint := s.rules(m.gang)
	if m.gang.isOpen() {
		rules, joint = slices.DeleteFunc(rules, func(r domain.Rule) bool { return !r.Must }), false
	}
	if len(rules) == 0 {
		return nil
	}
	for i := range rules {
		rules[i].Multiple = 0 // it is of those that are placed together
	}
	g := &domain.Request{Members: []string{uid}, Min: 1, Held: m.gang.held(), Rules: rules, Joint: joint}
	if !m.gang.isOpen() {
		g.Min = max(m.gang.settings.Min-len(g.Held), 1)
		var others []*member
		for other, o := range m.gang.members {
			if o.phase == Pending && other != uid {
				others = append(others, o)
			}
		}
		g.Members = append(g.Members, inOrder(others)...)
	}
	return g
}

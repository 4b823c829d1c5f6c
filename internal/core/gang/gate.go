package gang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/why"
)

// String says which gang lacks what.
func (r Refusal) String() string {
	switch r.Code {
	case why.GangNotFound:
		return cmp.Or(r.Text, "PodGroup "+r.Gang+" does not exist")
	case why.GangGroupNotMutual:
		return fmt.Sprintf("gang %s, which the pod's gang lists, does not exist or lists other gangs", r.Gang)
	case why.GangNotReady:
		return fmt.Sprintf("gang %s has %d of the %d members that must start together", r.Gang, r.Have, r.Need)
	case why.GangGated:
		return fmt.Sprintf("gang %s: %d of %d members wait for gate %s", r.Gang, r.Gated, r.Have+r.Gated, r.Text)
	case why.GangHolding:
		return fmt.Sprintf("gang %s holds %d of the %d members that must start together", r.Gang, r.Have, r.Need)
	case why.GangSiblingFailed, why.GangReserved:
		text := fmt.Sprintf("of gang %s only %d of %d members fit%s", r.Gang, r.Have, r.Need, r.Tried)
		if r.PartBound > 0 {
			text = fmt.Sprintf("%d of %d bound when the scheduler stopped; the rest does not fit: ", r.PartBound,
				r.PartLeast) + text
		}
		if r.Pod != "" {
			text += ": pod " + r.Pod + " does not"
		}
		if r.Cause.Detail != "" {
			text += ": " + r.Cause.Detail
		}
		if r.Code == why.GangReserved {
			text += "; the nodes that it will fit on are kept for it"
			if r.Start.IsZero() {
				text += ": pods behind it have overtaken it as often as maxOvertakes allows"
			} else {
				text += " until " + r.Start.UTC().Format(time.RFC3339) + ", when it starts by the declared run times"
			}
		}
		return text
	case why.GangPreempting:
		return fmt.Sprintf("gang %s fits when pods of lower priority have ended, which are evicted for it", r.Gang)
	case why.GangDeadlockReleased:
		return fmt.Sprintf("the gang held what gang %s needs to start, and follows when that has started", r.Gang)
	case why.GangLayerNotFound:
		return fmt.Sprintf("gang %s must be in one domain of layer %q, which no ClusterNetworkTopology named default "+
			"defines", r.Gang, r.Text)
	case why.GangTimeout:
		return fmt.Sprintf("gang %s had only %d of %d members within its waiting time", r.Gang, r.Have, r.Need)
	}
	return r.Text
}

// Gate returns why a member may not be tried, whatever else happens in the cluster; no refusal for a pod that is not
// known. The work is in the number of gangs of its group.
func (s *State) Gate(uid string) Refusal {
	m := s.members[uid]
	if m == nil {
		return Refusal{}
	}
	return s.gate(m.gang)
}

// gate is Gate of the members of a gang. What is wrong with the gang itself comes first, then its group, and at last
// the gangs of the group in order.
func (s *State) gate(g *gang) Refusal {
	if refused := g.refusal(); refused.Code != why.None {
		return refused
	}
	if g.group == nil {
		return Refusal{Code: why.GangGroupNotMutual, Gang: s.foreign(g)}
	}
	if g.isOpen() {
		return Refusal{}
	}
	if after := g.group.after; after != nil {
		first, _, _ := strings.Cut(after.key, ",")
		return Refusal{Code: why.GangDeadlockReleased, Gang: first}
	}
	for _, o := range g.group.gangs {
		if refused := o.refusal(); refused.Code != why.None {
			return refused
		}
		if o.isShort() {
			return o.missing()
		}
	}
	return Refusal{}
}

// missing is why a gang has fewer members than it needs: they do not exist, or scheduling gates hold them back.
func (g *gang) missing() Refusal {
	r := Refusal{Code: why.GangNotReady, Gang: g.id, Need: g.settings.Min, Have: g.present(), Gated: g.count[Gated]}
	if r.Gated > 0 && r.Have+r.Gated >= r.Need {
		r.Code, r.Text = why.GangGated, strings.Join(slices.Sorted(maps.Keys(g.gates)), ", ")
	} else {
		r.Have, r.Gated = r.Have+r.Gated, 0
	}
	return r
}

// refusal is why no member of the gang may be tried, apart from their number.
func (g *gang) refusal() Refusal {
	switch text := g.fault(); {
	case text != "":
		return Refusal{Code: why.BadAnnotation, Gang: g.id, Text: text}
	case g.lacksObject():
		return Refusal{Code: why.GangNotFound, Gang: g.id}
	case g.tree != nil && g.tree.refused.Code != why.None:
		return Refusal{Code: g.tree.refused.Code, Gang: g.id, Text: g.tree.refused.Text}
	case g.unknown != (domain.Rule{}):
		return Refusal{Code: why.GangLayerNotFound, Gang: g.id, Text: g.unknown.Layer}
	}
	return Refusal{}
}

// Try returns why a member may not be tried now: the gate, or that the round has tried it, or that reservations of the
// round before have yet to end.
func (s *State) Try(uid string) Refusal {
	m := s.members[uid]
	if m == nil {
		return Refusal{}
	}
	if refused := s.Gate(uid); refused.Code != why.None || m.gang.isOpen() {
		return refused
	}
	group := m.gang.group
	if group.returns() || group.isStrict() && m.cycle == group.cycle {
		group.asked = true
		return group.lacking(why.GangHolding)
	}
	return Refusal{}
}

// Describe replaces the cause that a failed plan has for the member that it names, once all refusals of that member
// have been read. It does nothing for any other pod.
func (s *State) Describe(uid string, cause why.Finding) Effects {
	if m := s.members[uid]; m != nil && m.gang.group != nil &&
		m.gang.group.failure.Pod == m.pod.Namespace+"/"+m.pod.Name {
		m.gang.group.failure.Cause = cause
	}
	return Effects{}
}

// Why returns why a pending member is not bound: the gate, or what ended the last round of its group.
func (s *State) Why(uid string) Refusal {
	m := s.members[uid]
	if m == nil || m.phase >= Allowed { // gates of the pod itself are not the gang's reason
		return Refusal{}
	}
	if refused := s.Gate(uid); refused.Code != why.None || m.gang.isOpen() {
		return refused
	}
	if m.phase == Waiting {
		return m.gang.group.lacking(why.GangHolding)
	}
	return m.gang.group.failure
}

package device

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Choice is a set of devices for a request.
type Choice struct {
	// Keys say how good the set is.
	Keys  Keys
	Nodes topo.NodeSet // of all its devices; those of unknown NUMA node add none
	// Grants are what the pod holds with it.
	Grants []Grant
	// Approximate: there were too many sets to look at all of them; a better one may exist.
	Approximate bool
}

// choice spells a set out.
func (s *combination) choice(k *Keys, w *walk) Choice {
	c := Choice{Keys: *k, Nodes: s.view.nodes(s.lead.group, k.Mask), Approximate: !s.complete || w.approximate}
	var to [MaxDevices]int8
	s.lead.assign(k.Mask, &to)
	c.Grants = s.grants(c.Grants, s.lead, &to, bits.OnesCount64(k.Mask))
	if len(s.rest) > 0 {
		s.chooseCompanions(k.Mask, c.Nodes)
		for t := range s.rest {
			n := &s.found[t]
			c.Nodes |= s.view.nodes(s.rest[t].group, n.mask)
			c.Grants = s.grants(c.Grants, &s.rest[t], &n.to, bits.OnesCount64(n.mask))
		}
	}
	return c
}

// grants appends what a pod holds of n devices: bundle j of device to[j].
func (s *search) grants(list []Grant, p *pick, to *[MaxDevices]int8, n int) []Grant {
	first := len(list)
	for j := range n {
		u := &s.view.units[p.group.first+int(to[j])]
		b := p.bundle(j)
		g := Grant{Type: u.Type, ID: u.ID, Minor: u.Minor, Amount: b.on(u)}
		g.Amount[Slots] = 0
		g.Ratio = u.ratio(&g.Amount)
		for _, part := range b {
			if amount := part.Need.Of(&u.Total); part.Container != "" {
				g.Containers = append(g.Containers, ContainerGrant{part.Container, amount, u.ratio(&amount)})
			}
			if part.Need.Template {
				g.Template = s.template(&part.Need, u).Name
			}
		}
		slices.SortFunc(g.Containers, func(a, b ContainerGrant) int { return cmp.Compare(a.Name, b.Name) })
		// Bytes counted percent during the search. The pod holds the ratio instead.
		if u.blind {
			g.Amount[Bytes] = 0
			for i := range g.Containers {
				g.Containers[i].Amount[Bytes] = 0
			}
		}
		if p.hint.VF != nil {
			g.VFs = []string{s.view.vf(p, int(to[j]))}
		}
		list = append(list, g)
	}
	slices.SortFunc(list[first:], func(a, b Grant) int {
		i, _ := s.view.locate(a.Type, a.ID)
		j, _ := s.view.locate(b.Type, b.ID)
		return cmp.Compare(i, j)
	})
	return list
}

// ratio is the percent of a GPU's memory that an amount is; 0 for other devices.
func (d *Device) ratio(amount *Vector) int64 {
	if d.Type != GPU {
		return 0
	}
	return UsedRatio(d.Total[Bytes], amount[Bytes])
}

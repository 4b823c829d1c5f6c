package claims

import (
	"cmp"
	"slices"

	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// site is the devices of a node.
type site struct {
	claim.Node
	// index has the devices by name.
	index map[structured.DeviceID]int
	// bySlice has the slices with devices of the node, by their index in the plan: the index of each of their devices,
	// -1 for one of another node.
	bySlice map[int][]int
}

// siteOf reads the devices of a node. Two devices of one name are one: their pool is invalid.
func (p *plan) siteOf(node string, v *ledger.View) *site {
	s := &site{index: map[structured.DeviceID]int{}, bySlice: map[int][]int{}}
	var order, cards []int
	for i, slice := range p.slices {
		if ptr.Deref(slice.Spec.NodeName, node) == node {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { // that of the allocator
		x, y := p.slices[a], p.slices[b]
		return cmp.Or(cmp.Compare(x.Spec.Driver, y.Spec.Driver), cmp.Compare(x.Spec.Pool.Name, y.Spec.Pool.Name),
			cmp.Compare(x.Name, y.Name))
	})
	for _, i := range order {
		sites, at := convert.SitesOf(p.slices[i], node, v)
		if len(sites) == 0 {
			continue
		}
		s.bySlice[i] = slices.Repeat([]int{-1}, len(p.slices[i].Spec.Devices))
		for j := range sites {
			id := idOf(&sites[j].Hardware)
			known, double := s.index[id]
			if !double {
				known = len(s.Devices)
				s.index[id] = known
				d := sites[j].Device
				d.Taken = p.taken.Has(id)
				s.Devices, cards = append(s.Devices, d), append(cards, at[j])
			}
			s.bySlice[i][sites[j].Index] = known
		}
	}
	if v != nil && v.Devices() != nil {
		inventory := v.Devices().Inventory
		s.Links = claim.LinksFunc(func(a, b int) int64 {
			if cards[a] < 0 || cards[b] < 0 || cards[a] == cards[b] {
				return 0
			}
			return inventory.Closeness(cards[a], cards[b])
		})
	}
	return s
}

package reservation

import (
	"cmp"
	"slices"
)

// Occupant is a pod on a node whose room a reservation may take over when the pod ends.
type Occupant struct {
	*Pod
	// Priority ranks occupants: the highest comes first.
	Priority int64
	// Offered: reservations with FromOffered may take the room over, whatever their owners.
	Offered bool
}

// Occupants returns the pods of a node on whose room the reservation may be placed, in the order in which they are
// tried: of the pods that use no reservation its owners, with FromOffered those that are Offered, by priority, then by
// how little they leave of what is reserved, then by namespace and name.
func (a *Account) Occupants(s *Spec, pods []Occupant) []Occupant {
	missing := func(o Occupant) (sum int64) { // in thousandths of each resource, of what the occupant does not have
		for name, n := range s.Allocatable {
			if n > 0 {
				sum += int64(float64(max(n-o.Request[name], 0)) / float64(n) * 1000)
			}
		}
		return sum
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(o Occupant) bool {
		if _, uses := a.users[o.UID]; uses || s.FromOffered {
			return uses || !o.Offered
		}
		return !slices.ContainsFunc(s.Owners, func(owner Owner) bool { return owner.matches(o.Pod) })
	})
	slices.SortFunc(pods, func(o, p Occupant) int {
		return cmp.Or(cmp.Compare(p.Priority, o.Priority), cmp.Compare(missing(o), missing(p)),
			cmp.Compare(o.Namespace, p.Namespace), cmp.Compare(o.Name, p.Name))
	})
	return pods
}

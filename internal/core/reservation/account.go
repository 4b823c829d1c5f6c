package reservation

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// ErrUsed says that a reservation cannot be used: it is gone, or another pod uses it, or was announced, that was to be
// the only one.
var ErrUsed = errors.New("the reservation is used by another pod, or gone")

// Account has the reservations of a cluster and the pods that use them. It is not safe for concurrent use.
type Account struct {
	byUID map[string]*held
	// byKey has the reservations that a pod with a key may use, see keys. Invariant: only those with a node.
	byKey map[string]map[string]*held
	// byNode has the reservations with room on a node, by UID.
	byNode map[string]map[string]*held
	// users has the reservation of each pod that uses one, by the pod's UID; the reservation need not be known.
	users map[string]use
	// announced has the reservations that name announced pods, by UID.
	announced map[string]*held
	// pending has the pods without a node, by UID.
	pending map[string]bool
}

// use is the use of a Reservation by one pod.
type use struct {
	reservation string // its UID
	name        string // "" where the reservation was not known when the pod began to use it
	request     amount.List
}

// held is a reservation with its users.
type held struct {
	*Spec
	users map[string]amount.List // what they request, by UID
}

// NewAccount returns an account without reservations.
func NewAccount() *Account {
	return &Account{
		map[string]*held{},
		map[string]map[string]*held{},
		map[string]map[string]*held{},
		map[string]use{},
		map[string]*held{},
		map[string]bool{},
	}
}

// Clone returns a copy: neither sees what changes in the other.
func (a *Account) Clone() *Account {
	b := NewAccount()
	maps.Copy(b.users, a.users)
	for uid, h := range a.byUID {
		b.byUID[uid] = &held{h.Spec, maps.Clone(h.users)}
	}
	b.byKey, b.byNode = b.indexOf(a.byKey), b.indexOf(a.byNode)
	for uid, h := range a.announced { // no other pod's node matters
		b.announced[uid] = b.byUID[uid]
		for _, pod := range h.Announced {
			b.setPending(pod, a.pending[pod])
		}
	}
	return b
}

// indexOf returns the index of another account, with the reservations of this one.
func (a *Account) indexOf(other map[string]map[string]*held) map[string]map[string]*held {
	index := make(map[string]map[string]*held, len(other))
	for key, all := range other {
		index[key] = make(map[string]*held, len(all))
		for uid := range all {
			index[key][uid] = a.byUID[uid]
		}
	}
	return index
}

// add adds a reservation to an index.
func add(index map[string]map[string]*held, key string, h *held) {
	if index[key] == nil {
		index[key] = map[string]*held{}
	}
	index[key][h.UID] = h
}

// remove removes a reservation from an index.
func remove(index map[string]map[string]*held, key, uid string) {
	if delete(index[key], uid); len(index[key]) == 0 {
		delete(index, key)
	}
}

// Put records a reservation, in place of one of its UID. Its users remain.
func (a *Account) Put(s *Spec) {
	h := &held{s, map[string]amount.List{}}
	if was := a.byUID[s.UID]; was != nil {
		h.users = was.users
		a.Remove(s.UID)
	} else {
		for pod, u := range a.users {
			if u.reservation == s.UID {
				h.users[pod] = u.request
			}
		}
	}
	a.byUID[s.UID] = h
	if len(s.Announced) > 0 {
		a.announced[s.UID] = h
	}
	if s.Node != "" {
		add(a.byNode, s.Node, h)
	}
	a.eachKey(s, func(key string) { add(a.byKey, key, h) })
}

// Remove forgets a reservation. What pods use of it is remembered, for one that comes later.
func (a *Account) Remove(uid string) {
	h := a.byUID[uid]
	if h == nil {
		return
	}
	delete(a.byUID, uid)
	delete(a.announced, uid)
	remove(a.byNode, h.Node, uid)
	a.eachKey(h.Spec, func(key string) { remove(a.byKey, key, uid) })
}

// Find returns a reservation, nil if it is not known.
func (a *Account) Find(uid string) *Spec {
	if h := a.byUID[uid]; h != nil {
		return h.Spec
	}
	return nil
}

// On returns the reservations with room on a node, the oldest first.
func (a *Account) On(node string) []*Spec {
	var all []*Spec
	for _, h := range a.byNode[node] {
		all = append(all, h.Spec)
	}
	slices.SortFunc(all, func(s, t *Spec) int {
		return cmp.Or(s.Created.Compare(t.Created), cmp.Compare(s.Name, t.Name))
	})
	return all
}

// Use lets a pod use a reservation, or returns ErrUsed. It replaces what the pod used before.
func (a *Account) Use(pod, uid string, request amount.List) error {
	h := a.byUID[uid]
	if h == nil || h.Node == "" || h.Waiting || a.announcement(h) != NotAnnounced {
		return ErrUsed
	}
	others := len(h.users)
	if h.users[pod] != nil {
		others--
	}
	if h.Once && others > 0 {
		return ErrUsed
	}
	a.Record(pod, uid, request)
	return nil
}

// Record notes what the API server says a pod uses, known or not.
func (a *Account) Record(pod, uid string, request amount.List) {
	a.Release(pod)
	if request == nil {
		request = amount.List{}
	}
	u := use{reservation: uid, request: request}
	if h := a.byUID[uid]; h != nil {
		h.users[pod], u.name = request, h.Name
	}
	a.users[pod] = u
}

// Release ends what a pod uses, and returns the UID of the reservation; "" for a pod that used none.
func (a *Account) Release(pod string) (uid string) {
	u, ok := a.users[pod]
	if !ok {
		return ""
	}
	delete(a.users, pod)
	if h := a.byUID[u.reservation]; h != nil {
		delete(h.users, pod)
	}
	return u.reservation
}

// UsedBy returns the UID of the reservation that a pod uses, "" for none.
func (a *Account) UsedBy(pod string) string { return a.users[pod].reservation }

// UsedName returns the name of the reservation that a pod uses, "" for none and where it was not known.
func (a *Account) UsedName(pod string) string { return a.users[pod].name }

// Users returns the UIDs of the pods that use a reservation, sorted.
func (a *Account) Users(uid string) []string {
	if h := a.byUID[uid]; h != nil {
		return slices.Sorted(maps.Keys(h.users))
	}
	return nil
}

// Allocated is what the users of a reservation request, of each reserved resource at most what is reserved.
func (a *Account) Allocated(uid string) amount.List {
	h, sum := a.byUID[uid], amount.List{}
	if h == nil {
		return sum
	}
	left := h.left(false)
	for name, n := range h.Allocatable {
		if used := n - left[name]; used > 0 {
			sum[name] = used
		}
	}
	return sum
}

// Left is what a reservation keeps beside its users, without zeros: nothing once one uses a reservation for one pod, or
// has used it.
func (a *Account) Left(uid string) amount.List {
	if h := a.byUID[uid]; h != nil && a.announcement(h) != Spent {
		return h.left(h.Once && !h.Waiting)
	}
	return amount.List{}
}

// Available is what a reservation keeps, see Left, as far as its node has it: less where pods of the node have grown
// since, or the node has shrunk. free is what the node can allocate less what its pods request. It is negative where
// they request more, and lacks the resources that are not compared. Of several reservations on the node, the oldest get
// what they keep first. Devices are never compared: they are allocated one by one.
func (a *Account) Available(uid string, free amount.List) amount.List {
	s := a.Find(uid)
	if s == nil {
		return amount.List{}
	}
	free = maps.Clone(free)
	for _, other := range a.On(s.Node) {
		if other.UID == uid {
			break
		}
		if !other.Running {
			for name, n := range a.Left(other.UID) {
				if has, compared := free[name]; compared {
					free[name] = has - n
				}
			}
		}
	}
	available := a.Left(uid)
	for name, n := range available {
		if has, compared := free[name]; compared && has < n && !s.Running && !amount.IsDevice(name) {
			available[name] = max(has, 0)
		}
	}
	maps.DeleteFunc(available, func(_ string, n int64) bool { return n == 0 })
	return available
}

// left returns what the users of a Reservation leave, without zeros.
func (h *held) left(once bool) amount.List {
	left := amount.List{}
	maps.Copy(left, Rest(h.Allocatable, once, slices.Collect(maps.Values(h.users)), subtract))
	maps.DeleteFunc(left, func(_ string, n int64) bool { return n <= 0 })
	return left
}

// subtract returns what is left of the resources of left.
func subtract(left, request amount.List) amount.List {
	left = maps.Clone(left)
	for name, n := range under(left, request) {
		if _, reserved := left[name]; reserved {
			left[name] -= n
		}
	}
	return left
}

// candidate is a reservation that a pod may use, with how much of it the pod would leave.
type candidate struct {
	*held
	leaves int64
}

// leftover is how much of a reservation a pod would leave, in thousandths of each of its resources.
func (h *held) leftover(request amount.List) (sum int64) {
	request = under(h.Allocatable, request)
	for name, n := range h.left(false) {
		if all := h.Allocatable[name]; all > 0 {
			sum += int64(float64(max(n-request[name], 0)) / float64(all) * 1000)
		}
	}
	return sum
}

// IsEmpty reports whether no reservation has room that any pod may use.
func (a *Account) IsEmpty() bool { return len(a.byKey) == 0 }

// Matching returns the reservations that a pod may use, by node, on each in the order in which they are tried.
func (a *Account) Matching(p *Pod) map[string][]*Spec {
	if len(a.byKey) == 0 {
		return nil
	}
	found := map[string]*candidate{}
	for _, key := range keysOf(p) {
		for uid, h := range a.byKey[key] {
			if found[uid] == nil && a.isOpen(h) && h.Matches(p) {
				found[uid] = &candidate{h, h.leftover(p.Request)}
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	ordered := slices.SortedFunc(maps.Values(found), compare)
	byNode := map[string][]*Spec{}
	for _, h := range ordered {
		byNode[h.Node] = append(byNode[h.Node], h.Spec)
	}
	return byNode
}

// eachKey calls f with a key for each owner, of which a pod that the owner matches has at least one.
func (a *Account) eachKey(s *Spec, f func(key string)) {
	if s.Node == "" {
		return
	}
	for i := range s.Owners {
		switch o := &s.Owners[i]; {
		case o.Object != nil && o.Object.UID != "":
			f("pod " + o.Object.UID)
		case o.Object != nil:
			f("pod " + o.Object.Namespace + "/" + o.Object.Name)
		case o.Controller != nil:
			f("controller " + cmp.Or(o.Controller.UID, "/"+o.Controller.Name))
		default:
			f(o.labelKey())
		}
	}
}

// labelKey is a label that the selector requires, "any" where it requires none by value.
func (o *Owner) labelKey() string {
	for _, t := range o.Selector {
		if t.Operator == "In" && len(t.Values) == 1 {
			return "label " + t.Key + "=" + t.Values[0]
		}
	}
	return "any"
}

// keysOf returns the keys under which owners that match the pod are indexed.
func keysOf(p *Pod) []string {
	keys := []string{"any", "pod " + p.UID, "pod " + p.Namespace + "/" + p.Name, "pod /" + p.Name}
	if p.Controller != nil {
		keys = append(keys, "controller "+p.Controller.UID, "controller /"+p.Controller.Name)
	}
	for key, value := range p.Labels {
		keys = append(keys, "label "+key+"="+value)
	}
	return keys
}

// Rest returns what a reservation keeps of all beside its users: nothing, the zero A, of a reservation for one pod that
// has a user, else what minus leaves. It is the one rule of what a reservation has left, for amounts by resource as for
// the CPUs and devices of a machine. minus changes neither of its arguments.
func Rest[A any](all A, once bool, users []A, minus func(left, user A) A) (rest A) {
	if once && len(users) > 0 {
		return rest
	}
	rest = all
	for _, user := range users {
		rest = minus(rest, user)
	}
	return rest
}

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

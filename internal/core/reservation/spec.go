package reservation

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/device"
)

// Spec is what one reservation keeps, for whom and where. It does not change; Put replaces it whole.
type Spec struct {
	UID, Name string
	// Node has the room; "" while the reservation has no node, and once it has ended.
	Node    string
	Created time.Time
	Labels  map[string]string
	Owners  []Owner // one matches the pods that may use the room
	// Order ranks reservations on one node: the lowest number other than 0 comes first, 0 last.
	Order int64
	// Once is a reservation that one pod uses: what the pod leaves of it is not kept.
	Once bool
	// Announced are the UIDs of the pods that the status names, of a reservation for one pod: see Announcement.
	Announced []string
	// Waiting: the reservation was placed on the room of running pods, its occupants, and waits until they end. Until
	// then no other pod uses it, and it keeps what its occupants leave of it, also if it is for one pod.
	Waiting bool
	// FromOffered: the reservation may be placed on the room of pods that are Offered, instead of its owners.
	FromOffered bool
	// Restricted: what the reservation has of a resource is all that its users get of it. RestrictedTo has the
	// resources for which that counts; nil for all that are reserved.
	Restricted    bool
	RestrictedTo  []string
	Unschedulable bool // no further pods use it
	// Running: a pod of the node runs in the room, and what it requests counts among the node's pods.
	Running     bool
	Taints      []Taint
	Allocatable amount.List // what is reserved
}

// Owner matches pods by all of its fields that are set. Invariant: at least one is.
type Owner struct {
	Object, Controller *Reference
	Selector           device.Selector
}

// Reference names an object: by UID where it has one, else by all other fields that are set.
type Reference struct{ UID, APIVersion, Kind, Namespace, Name string }

// Taint keeps pods off that do not tolerate it. Taints that only advise are left out.
type Taint struct{ Key, Value, Effect string }

// Toleration tolerates taints. An empty Key or Effect stands for all; Exists for all values.
type Toleration struct {
	Key, Value, Effect string
	Exists             bool
}

// Affinity is which reservations a pod may use of those whose owner it is.
type Affinity struct {
	// Required: the pod is not placed without a reservation.
	Required bool
	Name     string // comes before what follows; "" for any name
	// Terms are alternatives, nil for none. An empty term matches no reservation.
	Terms       []Term
	Labels      map[string]string
	Tolerations []Toleration
}

// Term is what one alternative of an affinity asks of labels and of the name.
type Term struct{ Labels, Fields device.Selector }

// Pod is what is read of a pod that may use reservations.
type Pod struct {
	UID, Namespace, Name string
	Labels               map[string]string
	Controller           *Reference // nil without one
	// Ignores: the pod uses no reservation.
	Ignores  bool
	Affinity Affinity
	Exact    []string // resources of which a reservation must have what the pod requests
	Request  amount.List
}

// Matches reports whether the pod may use the reservation, as far as that does not depend on what other pods use.
func (s *Spec) Matches(p *Pod) bool {
	return !p.Ignores && !s.Unschedulable && s.isTolerated(p.Affinity.Tolerations) && p.Affinity.selects(s) &&
		!slices.ContainsFunc(p.Exact, func(name string) bool { return !sameAmount(name, s.Allocatable, p.Request) }) &&
		slices.ContainsFunc(s.Owners, func(o Owner) bool { return o.matches(p) })
}

// sameAmount reports whether as much of a resource is reserved as a pod requests, under whatever names of the device. A
// part of a GPU, which counts as one under a vendor's name, is not as much as a whole one.
func sameAmount(name string, reserved, request amount.List) bool {
	names := append(device.Names(name), name)
	if device.IsWholeGPU(name) {
		names = append(names, device.GPUPercent)
	}
	a, b := reserved.Asked(names), request.Asked(names)
	return !slices.ContainsFunc(names, func(name string) bool { return a[name] != b[name] })
}

// under returns what a pod requests under the names of the devices that are reserved, too: an owner may use another
// name than the template.
func under(reserved, request amount.List) amount.List {
	var names []string
	for name := range reserved {
		if amount.IsDevice(name) {
			names = append(names, name)
		}
	}
	return request.Asked(names)
}

// matches reports whether a pod is one that the owner names. An owner that names none matches none: the webhook, which
// refuses it, may be away.
func (o *Owner) matches(p *Pod) bool {
	if o.Object == nil && o.Controller == nil && len(o.Selector) == 0 {
		return false
	}
	if r := o.Object; r != nil {
		self := Reference{p.UID, "v1", "Pod", p.Namespace, p.Name}
		if !r.names(&self) {
			return false
		}
	}
	if r := o.Controller; r != nil {
		if p.Controller == nil || !r.names(p.Controller) {
			return false
		}
	}
	return o.Selector.Matches(p.Labels)
}

// names reports whether r refers to o: by UID if it has one, else by all fields that it has.
func (r *Reference) names(o *Reference) bool {
	if r.UID != "" {
		return r.UID == o.UID
	}
	same := func(asked, has string) bool { return asked == "" || asked == has }
	return same(r.APIVersion, o.APIVersion) && same(r.Kind, o.Kind) && same(r.Namespace, o.Namespace) &&
		r.Name == o.Name
}

// isTolerated reports whether tolerations cover all taints of the Reservation.
func (s *Spec) isTolerated(tolerations []Toleration) bool {
	return !slices.ContainsFunc(s.Taints, func(t Taint) bool {
		return !slices.ContainsFunc(tolerations, func(o Toleration) bool {
			return (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" && o.Exists || o.Key == t.Key) &&
				(o.Exists || o.Value == t.Value)
		})
	})
}

// selects reports whether a pod's affinity allows a Reservation: by its name, or by labels and terms.
func (a *Affinity) selects(s *Spec) bool {
	if a.Name != "" {
		return a.Name == s.Name
	}
	for key, value := range a.Labels {
		if has, ok := s.Labels[key]; !ok || has != value {
			return false
		}
	}
	fields := map[string]string{"metadata.name": s.Name}
	return a.Terms == nil || slices.ContainsFunc(a.Terms, func(t Term) bool {
		return len(t.Labels)+len(t.Fields) > 0 && t.Labels.Matches(s.Labels) && t.Fields.Matches(fields)
	})
}

// Expires returns when a reservation expires that was created at a time; the zero time for never. expires is set by the
// user, zero without; ttl counts where it is not.
func Expires(created, expires time.Time, ttl time.Duration) time.Time {
	switch {
	case !expires.IsZero():
		return expires
	case ttl > 0:
		return created.Add(ttl)
	}
	return time.Time{}
}

// Shortage returns the first resource, by name, of which a pod may get less than it requests because the reservation is
// restricted, with what is left of it; "" for none. The number of GPUs that shares are on does not count: further
// shares fit on the same ones.
func (s *Spec) Shortage(request, left amount.List) (resource string, free int64) {
	if !s.Restricted {
		return "", 0
	}
	request = under(s.Allocatable, request)
	for name := range s.Allocatable {
		counts := s.RestrictedTo == nil || slices.Contains(s.RestrictedTo, name)
		if counts && name != device.GPUShared && request[name] > left[name] && (resource == "" || name < resource) {
			resource, free = name, left[name]
		}
	}
	return resource, free
}

// compare orders reservations on one node that a pod may use: by order, by what the pod would leave, by age, by name.
func compare(a, b *candidate) int {
	return cmp.Or(compareOrder(a.Order, b.Order), cmp.Compare(a.leaves, b.leaves),
		a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

// compareOrder orders Reservations by their label; those without one, 0, come last.
func compareOrder(a, b int64) int {
	switch {
	case a == b:
		return 0
	case a == 0:
		return 1
	case b == 0:
		return -1
	}
	return cmp.Compare(a, b)
}

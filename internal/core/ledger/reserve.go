package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// beside returns the account of a reservation as the pods within it leave it: it holds what they do not.
func (a *account) beside(m *topo.Machine, accounts []*account) *account {
	var users []*account
	for _, user := range accounts {
		if user.Within == a.UID {
			users = append(users, user)
		}
	}
	left := newAccount(m, a.Entry)
	if left = reservation.Rest(left, a.Once, users, (*account).minus); left == nil {
		return &account{Entry: a.normal()}
	}
	if m != nil {
		left.collectUses(m)
	}
	return left
}

// minus returns a without what another account holds. What it uses remains to be collected.
func (a *account) minus(user *account) *account {
	left := *a
	left.cpus = a.cpus.Minus(user.cpus)
	left.devices = device.Minus(a.devices, user.devices)
	left.holds = slices.Clone(a.holds)
	for i := range left.holds {
		for j := range user.holds {
			h, o := &left.holds[i], &user.holds[j]
			if h.Node == o.Node && h.Resource == o.Resource {
				h.N = max(h.N-o.N, 0)
			}
		}
	}
	left.holds = slices.DeleteFunc(left.holds, func(h align.Hold) bool { return h.N == 0 })
	if left.milli = max(a.milli-user.milli, 0); left.milli == 0 {
		left.nodes = 0
	}
	return &left
}

// deductUsers returns v with the accounts of reservations as the pods within them leave them now.
func (v *View) deductUsers(version uint64, reservations ...string) *View {
	for i, uid := range reservations {
		at, known := v.find(uid)
		if uid != "" && known && !slices.Contains(reservations[:i], uid) && v.accounts[at].Reserves {
			v = v.set(at, true, v.accounts[at].beside(v.facts.Machine, v.accounts), version)
		}
	}
	return v
}

// deductAllUsers reduces each Reservation by what its users hold.
func deductAllUsers(m *topo.Machine, accounts []*account) {
	for i, a := range accounts {
		if a.Reserves {
			accounts[i] = a.beside(m, accounts)
		}
	}
}

// isUsedUp reports whether a reservation for one pod has one.
func (v *View) isUsedUp(uid string) bool {
	at, known := v.find(uid)
	return uid != "" && known && v.accounts[at].Once &&
		slices.ContainsFunc(v.accounts, func(a *account) bool { return a.Within == uid })
}

// outside is the UID of the holder of all that is not of a reservation.
const outside = "\x00outside"

// Inside returns the account as a pod sees it that takes all it can of what a reservation holds from the reservation:
// of the CPUs, the NUMA amounts and the types of devices that the reservation holds, nothing else is free. The pool of
// shared CPUs keeps its floor beside the reservation, so no floor is kept here. The view is hypothetical.
func (v *View) Inside(uid string) *View {
	at, known := v.find(uid)
	m := v.facts.Machine
	if !known || v.facts.Mode == Follow {
		return v.Without(uid)
	}
	r := v.accounts[at]
	rest := &account{Entry: Entry{UID: outside, Role: qos.Exclusive}}
	if !r.cpus.IsEmpty() {
		rest.cpus = v.Allocatable().Union(v.FreeIsolated())
	}
	for i := range v.summary.Rows {
		row := &v.summary.Rows[i]
		has := func(h align.Hold) bool { return h.Resource == row.Resource }
		for node, free := range row.Free {
			if slices.ContainsFunc(r.holds, has) {
				rest.holds = append(rest.holds, align.Hold{Node: topo.NUMA(node), Amount: align.Amount{
					NUMAID: m.NUMAID(topo.NUMA(node)), Resource: row.Resource, N: free,
				}})
			}
		}
	}
	if v.devices != nil {
		var types []device.Type
		for _, g := range r.devices {
			types = append(types, g.Type)
		}
		rest.devices = v.devices.Rest(types)
	}
	frame := *v.frame
	frame.floor = 0
	accounts := slices.Concat([]*account{rest}, v.accounts[:at], v.accounts[at+1:])
	return derive(&frame, accounts, hypothetical, change{})
}

// Resize reports what the NUMA nodes of a pod lack for it to hold what e says, an entry in the place of the one that it
// has: the first amount that grows beyond what the other pods leave. An amount that does not grow is never refused.
func (v *View) Resize(e Entry) why.Reason {
	i, found := v.find(e.UID)
	if !found || v.Machine() == nil {
		return why.Reason{}
	}
	was, next, others := v.accounts[i], newAccount(v.Machine(), e), v.Without(e.UID)
	for j := range next.holds {
		h := &next.holds[j]
		held := int64(0)
		for k := range was.holds {
			if o := &was.holds[k]; o.Node == h.Node && o.Resource == h.Resource {
				held += o.N
			}
		}
		for k := range others.summary.Rows {
			r := &others.summary.Rows[k]
			if r.Resource == h.Resource && h.N > held && h.N > r.Free[h.Node] {
				return why.Reason{
					Code: why.InsufficientMemory, Resource: r.Resource, Unit: why.Bytes, Asked: h.N,
					Free: r.Free[h.Node], Where: v.numaNode(h.Node),
				}
			}
		}
	}
	if room := others.summary.Room(next.nodes); next.nodes != 0 && e.MilliCPU > was.MilliCPU && e.MilliCPU > room {
		return why.Reason{
			Code: why.SharedPoolTooSmall, Resource: why.CPU, Unit: why.MilliCPU, Asked: e.MilliCPU, Free: room,
			Where: v.numaNode(next.nodes.First()),
		}
	}
	return why.Reason{}
}

// numaNode names a NUMA node by the kernel's ID.
func (v *View) numaNode(n topo.NUMA) why.Where {
	return why.Where{Scope: why.NUMA, Index: int32(v.facts.Machine.NUMAID(n))}
}

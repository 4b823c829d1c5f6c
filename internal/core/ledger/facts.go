package ledger

import (
	"slices"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// NodeBind is the node label cpu-bind-policy.
type NodeBind uint8

// Node bind policies. Unset lets the kubelet's options speak, NoPolicy is the explicit label None.
const (
	Unset NodeBind = iota
	NoPolicy
	FullPCPUsOnly
	SpreadByPCPUs
)

// Mode says whose CPU assignments hold on a node.
type Mode uint8

// Modes.
const (
	// Own: the scheduler chooses, the agent enforces.
	Own Mode = iota
	// Follow: the kubelet chooses, the scheduler predicts what.
	Follow
	// Blind: the kubelet is not modelled; nothing is known of it.
	Blind
)

// String returns the annotation's spelling.
func (m Mode) String() string { return [...]string{"Own", "Follow", "Blind"}[m] }

// Facts is all that is known of a node besides its pods. The zero value is a node without topology. Filter reads the
// fields up to Model, which come first for the CPU's caches.
type Facts struct {
	// Machine is nil while no valid topology is known; Fault then says why.
	Machine *topo.Machine
	// Mode says whose CPU assignments hold.
	Mode Mode
	// ARM64: only FullPCPUs and NUMANodeLevel exist there (seed 000).
	ARM64 bool
	// Imported: the object of another exporter replaces the report of our agent. Its age is unknown, and only the
	// kubelet gives pods CPUs there.
	Imported bool
	Bind     NodeBind
	// Strategy and Topology are effective: node label, else kubelet, else plugin argument.
	Strategy cpualloc.Strategy
	Topology hint.Policy
	// StrategyByLabel: the node's own label says the strategy. Then it ranks the node among others too.
	StrategyByLabel bool
	// OwnDevices: Tenon decides who gets Devices, and not the node's kubelet.
	OwnDevices bool
	// Devices are those that the node's Device object lists; nil without a usable one.
	Devices *device.Inventory
	// GPUIsolation is what keeps containers on the node to their shares of a GPU; "" for nothing.
	GPUIsolation string
	// Model is the kubelet as far as its answers can be predicted, and what its CPU manager is set to in any case.
	Model kubelet.Facts

	// Fault is TopologyMissing or InvalidTopology while Machine is nil.
	Fault why.Reason
	// Given is what the node reports that its kubelet has given away. A pod with CPUs counts as KSTATIC unless its own
	// entry says that Tenon decides about it.
	Given []tenancy.Grant
	// NodeReserved is RESERVED_N, System the system CPUs when they are exclusive.
	NodeReserved, System cpuset.Set
	// Isolated are the CPUs that the boot has isolated. They are in no pool: the kernel does not balance threads over
	// them, so that those of a pool would remain on one CPU while others idle. NoTick are those of nohz_full, which
	// exclusive pods get before others.
	Isolated, NoTick cpuset.Set
	// Amounts are what each NUMA node has for pods (allocatable), of memory and hugepages. Those that they do not
	// name take no part in any decision.
	Amounts []align.Amount
	// Used are what pods have of each NUMA node, as another exporter reports it without saying which pods: milli-CPUs
	// under the name why.CPU, and bytes of Amounts. nil for a node without such a report.
	Used []align.Amount
	// MinSharedCPUs is the floor of the LS pool; negative = the default (|RESERVED_K|, else threads per core).
	MinSharedCPUs int
}

// Equal reports whether two facts say the same; the order of Given, Amounts and Used does not
// matter.
func (f *Facts) Equal(o *Facts) bool {
	return f.Machine.Equal(o.Machine) && f.Fault == o.Fault && f.ARM64 == o.ARM64 &&
		f.NodeReserved == o.NodeReserved && f.System == o.System && f.Isolated == o.Isolated && f.NoTick == o.NoTick &&
		f.Bind == o.Bind && f.Strategy == o.Strategy &&
		f.StrategyByLabel == o.StrategyByLabel && f.Topology == o.Topology && f.MinSharedCPUs == o.MinSharedCPUs &&
		f.Mode == o.Mode && f.Model.Equal(&o.Model) && f.Imported == o.Imported &&
		slices.EqualFunc(tenancy.SortGrants(f.Given), tenancy.SortGrants(o.Given), tenancy.Grant.Equal) &&
		f.Devices.Equal(o.Devices) && f.OwnDevices == o.OwnDevices &&
		f.GPUIsolation == o.GPUIsolation &&
		slices.Equal(align.Normal(f.Amounts), align.Normal(o.Amounts)) &&
		slices.Equal(align.Normal(f.Used), align.Normal(o.Used))
}

// frame is what follows from the facts alone. Views of the same facts share one.
type frame struct {
	floor int
	facts Facts // Invariant: Given is sorted by UID.
	*outline
}

// outline is what follows from the facts, whatever the devices. Frames whose facts differ in their devices alone share
// one: those of equal servers differ by the ids of their devices.
type outline struct {
	// base is ONLINE without what no pod ever gets: the LS pool of an empty node before KSTATIC.
	base cpuset.Set
	// isolated is what the boot has isolated of ONLINE, without what no pod ever gets and the kubelet's reservation.
	isolated cpuset.Set
	// kubeletReserved is RESERVED_K, empty unless the kubelet is static.
	kubeletReserved cpuset.Set
	// rows are those of resources while no pod holds any.
	rows []align.Row
}

const (
	// framesKept is how many different facts of one machine Frames remembers.
	framesKept = 16
	// machinesKept is how many machines Frames remembers: more than the kinds of node of most clusters.
	machinesKept = 512
)

// Frames remembers what follows from facts, so that nodes with equal facts share one value. The zero value is ready. It
// is not safe for concurrent use.
type Frames struct {
	// last has the last facts of each machine. Invariant: a list has at most framesKept.
	last map[*topo.Machine][]frames
}

// frames are those of facts that differ in their devices alone.
type frames struct {
	bare  *frame // without devices
	armed *frame // with the last devices; nil before any
	// idle has the views of accounts without pods on bare, by their version; nil before there is one. An account that
	// has had no pod reaches these versions alone, one for each object that describes its node.
	idle [4]*View
}

// derive returns the view that follows from facts and accounts. Views without accounts and devices are shared: they
// never change. A view without accounts that has devices takes all else from one of them.
func (s *Frames) derive(f Facts, accounts []*account, version uint64) *View {
	known := s.find(&f)
	if len(accounts) > 0 {
		return derive(known.frame(f.Devices), accounts, version, change{})
	}
	at := min(version, uint64(len(known.idle))-1)
	if known.idle[at] == nil {
		known.idle[at] = derive(known.bare, nil, at, change{})
	}
	if f.Devices == nil && at == version {
		return known.idle[at]
	}
	v := *known.idle[at]
	v.frame, v.version = known.frame(f.Devices), version
	v.deriveDevices(change{})
	return &v
}

// find returns the frames of facts, whatever their devices. They are valid until the next call.
func (s *Frames) find(given *Facts) *frames {
	f, m := *given, given.Machine
	f.Devices = nil
	list := s.last[m]
	i := slices.IndexFunc(list, func(known frames) bool { return known.bare.facts.Equal(&f) })
	if i < 0 {
		if s.last == nil || len(s.last) >= machinesKept {
			s.last = map[*topo.Machine][]frames{}
		}
		if len(list) == framesKept {
			list = slices.Delete(list, 0, 1)
		}
		list = append(list, frames{bare: newFrame(f)})
		s.last[m], i = list, len(list)-1
	}
	return &list[i]
}

// frame returns the frame with these devices; nil is none.
func (k *frames) frame(devices *device.Inventory) *frame {
	switch {
	case devices == nil:
		return k.bare
	case k.armed == nil || !k.armed.facts.Devices.Equal(devices):
		next := *k.bare
		next.facts.Devices = devices
		k.armed = &next
	}
	return k.armed
}

// newFrame returns what follows from the facts of a node alone, whatever its pods.
func newFrame(f Facts) *frame {
	m := f.Machine
	f.Given, f.Amounts = slices.Clone(tenancy.SortGrants(f.Given)), slices.Clone(align.Normal(f.Amounts))
	f.Used = slices.Clone(align.Normal(f.Used))
	fr := &frame{facts: f, outline: &outline{}}
	if m == nil {
		return fr
	}
	online := m.Online()
	cpu := &f.Model.Config.CPU
	if cpu.Static {
		fr.kubeletReserved = cpu.Reserved.Intersect(online)
	}
	fr.base = online.Minus(f.NodeReserved).Minus(f.System)
	fr.isolated = fr.base.Intersect(f.Isolated).Minus(fr.kubeletReserved)
	fr.base = fr.base.Minus(f.Isolated)
	if cpu.StrictReservation {
		fr.base = fr.base.Minus(fr.kubeletReserved)
	}
	fr.floor = f.MinSharedCPUs
	if fr.floor < 0 {
		fr.floor = fr.kubeletReserved.Len()
		if fr.floor == 0 {
			fr.floor = m.ThreadsPerCore()
		}
	}
	fr.rows = align.Rows(m, f.Amounts)
	return fr
}

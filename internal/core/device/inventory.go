package device

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// MaxDevices is the number of devices of one type that a node may have.
const MaxDevices = 64

// mostAmount bounds what a device has of one dimension, so that sums over devices and products with percent are exact.
const mostAmount = math.MaxInt64 / 10_000

// VF is a virtual function of a NIC.
type VF struct {
	Bus    string            // PCI address
	Labels map[string]string // of its group
}

// Device is one device of a node. Its identity is Type and ID (UUID or PCI address); Minor and Module are names that
// other programs use.
type Device struct {
	Type          Type
	ID            string
	Minor, Module int32 // Module is the physical number in Fabric Manager; -1 = unknown
	Healthy       bool
	Degraded      bool // it works and is likely to fail: it is chosen where others do not serve
	// Total is what it has. Cores, slots and share may be 0 for the usual 100; a GPU without Bytes has memory of
	// unknown size.
	Total  Vector
	Vendor string // the name of whole GPUs of its vendor; "" = unknown
	// Resource is the name by which devices other than GPUs are asked for; "" = koordinator.sh/ and the type.
	Resource string
	Profile  string // of a MIG device
	Parent   string // ID of the GPU that a MIG device is a slice of; it is not given to any pod itself
	Model    string // as templates name it: vendor and model
	Labels   map[string]string
	Location
	VFs []VF
}

// Location is where a device is connected. Bridges are the PCI bridges from the root complex, which is the first, to
// the device; empty when unknown.
type Location struct {
	NUMAID  int    // kernel id; -1 = unknown
	PCIe    string // root complex, pciDDDD:BB; "" = unknown
	Bus     string // PCI address
	Bridges []string
}

// Link joins two devices of one type directly, with so many lanes from A to B. Where a second link says what B has to
// A, the smaller number counts.
type Link struct {
	Type  Type
	A, B  string // IDs
	Lanes int64
}

// Switch joins devices of one type with each other: each has so many lanes to it, by ID.
type Switch struct {
	Type  Type
	Lanes map[string]int64
}

// Spec is what is known of the devices of a node.
type Spec struct {
	Devices  []Device
	Links    []Link
	Switches []Switch
	// LaneBytes is what a lane carries per second in one direction; 0 = unknown.
	LaneBytes  int64
	Partitions Partitions
	// Foreign are pods with devices that Tenon did not give them.
	Foreign []Foreign
}

// traits are what is known of a device but for its ID, with what follows from its place in the inventory.
type traits struct {
	Device               // without its ID
	listed  int          // its index in Spec.Devices
	node    topo.NodeSet // its NUMA node; 0 = unknown
	pcie    int          // index of the root complex, -1 = unknown
	blind   bool         // the size of its memory is unknown: Bytes count percent
	parent  int          // index of the unit that it is a slice of, -1 for none
	offered bool         // pods may have it: it is not the parent of MIG devices
}

// unit is a device of an inventory.
type unit struct {
	ID      string
	*traits          // shared with the units of equal servers
	foreign []string // UIDs of pods that have it of another program
}

// compareUnits orders units by type (GPUs first), PCI address and ID.
func compareUnits(a, b unit) int {
	return cmp.Or(compareTypes(a.Type, b.Type), cmp.Compare(a.Bus, b.Bus), cmp.Compare(a.ID, b.ID))
}

// typeGroup is the devices of one type: units first … first+n-1, whose bits in masks are 0 … n-1.
type typeGroup struct {
	kind     Type
	first, n int
	class    *Class
	pcie     []uint64 // devices by root complex; one of an unknown one is by itself
	numa     []uint64 // devices that one NUMA node, or an unknown one, may have
	// degraded has the devices that are likely to fail.
	degraded uint64
}

// those are the devices of which is holds: it takes their index among all units.
func (r *typeGroup) those(holds func(at int) bool) (mask uint64) {
	for i := range r.n {
		if holds(r.first + i) {
			mask |= 1 << i
		}
	}
	return mask
}

// server is what the inventories of equal servers share: all that does not depend on the IDs of devices. It never
// changes.
type server struct {
	// spec has neither Devices nor Foreign, and names devices by their index in Devices; see unnamed.
	spec    Spec
	machine *topo.Machine
	devices []traits // in the order of Spec.Devices
	groups  []typeGroup
	sets    []partition // of GPUs, by their masks; see newPartitions
	kinds   Kinds       // how the devices are asked for
	idle    []state     // of units of which no pod has a part
	// byName reports that more than the order of units depends on IDs: a device is a slice of another one, or links
	// name devices that are not there.
	byName bool
}

// Inventory is the devices of a node, without what pods hold. It never changes; views share it.
type Inventory struct {
	*server
	units []unit // Invariant: ascending by compareUnits.
	// foreign is Spec.Foreign. reported has the UIDs of its pods, unknown the names of their devices that no unit has.
	foreign  []Foreign
	reported map[string]bool
	unknown  []string
}

// Equal reports whether two inventories are of equal Specs, on equal machines; either may be nil.
func (inv *Inventory) Equal(o *Inventory) bool {
	if inv == o || inv == nil || o == nil {
		return inv == o
	}
	if !slices.EqualFunc(inv.units, o.units, func(a, b unit) bool { return a.ID == b.ID && a.listed == b.listed }) ||
		!reflect.DeepEqual(inv.foreign, o.foreign) {
		return false
	}
	return inv.server == o.server || inv.machine.Equal(o.machine) && reflect.DeepEqual(&inv.spec, &o.spec) &&
		reflect.DeepEqual(inv.devices, o.devices)
}

// NewInventory validates a Spec. It refuses, naming the device: one without type or ID, one that is there twice,
// amounts that are negative or above all real ones, and more than MaxDevices devices of a type. m gives NUMA nodes
// their numbers; nil numbers those of the devices in ascending order. Equal servers share a class of classes. Maps and
// slices of the Spec are kept.
func NewInventory(s *Spec, m *topo.Machine, classes *Classes) (*Inventory, error) {
	inv := &Inventory{
		server: &server{machine: m, devices: make([]traits, len(s.Devices)), kinds: KindsOf(s.Devices)},
		units:  make([]unit, len(s.Devices)), foreign: s.Foreign,
	}
	inv.idle = make([]state, len(inv.units))
	nodes, roots := nodesOf(s.Devices, m), index{}
	for i, d := range s.Devices {
		if err := d.validate(); err != nil {
			return nil, err
		}
		t := &inv.devices[i]
		*t = traits{
			Device: d, listed: i, node: nodes[d.NUMAID], pcie: roots.position(d.root()), parent: -1, offered: true,
		}
		t.ID = ""
		t.complete()
		inv.units[i] = unit{ID: d.ID, traits: t}
	}
	slices.SortFunc(inv.units, compareUnits)
	for i := range inv.units {
		u := &inv.units[i]
		if i == 0 || inv.units[i-1].Type != u.Type {
			inv.groups = append(inv.groups, typeGroup{kind: u.Type, first: i})
		}
		inv.groups[len(inv.groups)-1].n++
		if at, _ := inv.locate(u.Type, u.ID); at != i {
			return nil, fmt.Errorf("device %s %q is there twice", u.Type, u.ID)
		}
	}
	for i := range inv.units {
		u := &inv.units[i]
		if parent, ok := inv.locate(u.Type, u.Parent); ok && u.Parent != "" {
			u.parent, inv.units[parent].offered = parent, false
		}
		inv.byName = inv.byName || u.Parent != ""
	}
	for i := range inv.groups {
		r := &inv.groups[i]
		if r.n > MaxDevices {
			return nil, fmt.Errorf("%d devices of type %s, at most %d are supported", r.n, r.kind, MaxDevices)
		}
		inv.arrange(r, s, classes)
	}
	inv.spec = inv.unnamed(s)
	inv.sets = inv.newPartitions()
	inv.hold(s.Foreign)
	return inv, nil
}

// Renamed returns the inventory of an equal server whose devices have these IDs, in the order of Spec.Devices. It
// shares all but the IDs. It returns nil where more depends on them: where units would have another order, an ID is
// missing or there twice, a device is a slice of another one, or another program gives devices to pods.
func (inv *Inventory) Renamed(ids []string) *Inventory {
	if inv.byName || len(inv.foreign) > 0 || len(ids) != len(inv.units) {
		return nil
	}
	next, same := &Inventory{server: inv.server, units: make([]unit, len(ids))}, true
	for i := range inv.units {
		u := unit{ID: ids[inv.units[i].listed], traits: inv.units[i].traits}
		next.units[i] = u
		at, _ := next.locate(u.Type, u.ID)
		if u.ID == "" || at != i || i > 0 && compareUnits(next.units[i-1], u) > 0 {
			return nil
		}
		same = same && u.ID == inv.units[i].ID
	}
	if same {
		return inv
	}
	return next
}

// Server identifies the inventories that differ in nothing but the IDs of their devices. Two equal ones are of such
// inventories; two that differ may be too. The zero value is that of no inventory.
type Server struct{ shared *server }

// Server returns what identifies the server of inv, which may be nil.
func (inv *Inventory) Server() Server {
	if inv == nil {
		return Server{}
	}
	return Server{inv.server}
}

// unnamed returns what a Spec says of its devices together, whatever their IDs are.
func (inv *Inventory) unnamed(s *Spec) Spec {
	out := *s
	out.Devices, out.Foreign = nil, nil
	name := func(t Type, id string) string {
		at, ok := inv.locate(t, id)
		if !ok {
			inv.byName = true
			return "?" + id
		}
		return strconv.Itoa(inv.units[at].listed)
	}
	out.Links, out.Switches = slices.Clone(s.Links), slices.Clone(s.Switches)
	for i := range out.Links {
		l := &out.Links[i]
		l.A, l.B = name(l.Type, l.A), name(l.Type, l.B)
	}
	for i := range out.Switches {
		sw := &out.Switches[i]
		lanes := make(map[string]int64, len(sw.Lanes))
		for id, n := range sw.Lanes {
			lanes[name(sw.Type, id)] = n
		}
		sw.Lanes = lanes
	}
	return out
}

// locate returns the index of a device, or 0 and false where the node does not have it.
func (inv *Inventory) locate(t Type, id string) (int, bool) {
	if r := inv.group(t); r != nil {
		for i := r.first; i < r.first+r.n; i++ {
			if inv.units[i].ID == id {
				return i, true
			}
		}
	}
	return 0, false
}

// validate refuses a device without identity, and amounts that sums over devices could not hold.
func (d *Device) validate() error {
	if d.Type == "" || d.ID == "" {
		return fmt.Errorf("device %q of type %q: type and id must not be empty", d.ID, d.Type)
	}
	for dim, n := range d.Total {
		if n < 0 || n > mostAmount {
			return fmt.Errorf("device %s %q: amount %d in dimension %d, want 0 to %d", d.Type, d.ID, n, dim,
				int64(mostAmount))
		}
	}
	return nil
}

// root is the name of the device's root complex; empty if it is unknown.
func (d *Device) root() string {
	if d.PCIe == "" && len(d.Bridges) > 0 {
		return d.Bridges[0]
	}
	return d.PCIe
}

// complete fills in the usual amounts.
func (d *traits) complete() {
	t := &d.Total
	if d.Type != GPU {
		t[Share] = cmp.Or(t[Share], whole)
		return
	}
	t[Cores], t[Slots] = cmp.Or(t[Cores], whole), cmp.Or(t[Slots], whole)
	if d.blind = t[Bytes] == 0; d.blind {
		t[Bytes] = whole
	}
}

// index numbers names in the order in which they come; -1 is the empty name.
type index map[string]int

// position returns the number of a name, and assigns the next one to a new name.
func (x index) position(name string) int {
	if name == "" {
		return -1
	}
	if _, known := x[name]; !known {
		x[name] = len(x)
	}
	return x[name]
}

// nodesOf numbers NUMA nodes. Unknown nodes, and those beyond topo.MaxNodes, have no bit.
func nodesOf(devices []Device, m *topo.Machine) map[int]topo.NodeSet {
	var ids []int
	for i := range devices {
		if devices[i].NUMAID >= 0 {
			ids = append(ids, devices[i].NUMAID)
		}
	}
	slices.Sort(ids)
	nodes := map[int]topo.NodeSet{}
	for _, id := range slices.Compact(ids) {
		n := topo.NUMA(len(nodes))
		if m != nil {
			var known bool
			if n, known = m.NUMAByID(id); !known {
				continue
			}
		}
		if n < topo.MaxNodes {
			nodes[id] = 1 << n
		}
	}
	return nodes
}

// scopes are the devices of a group by key, in ascending order; -1 is an unknown one.
func (inv *Inventory) scopes(r *typeGroup, key func(*unit) int) (masks []uint64, unknown uint64) {
	known := map[int]uint64{}
	for i := range r.n {
		if k := key(&inv.units[r.first+i]); k >= 0 {
			known[k] |= 1 << i
		} else {
			unknown |= 1 << i
		}
	}
	return slices.Sorted(maps.Values(known)), unknown
}

// arrange sorts the devices of a group by root complex and NUMA node, and finds its class.
func (inv *Inventory) arrange(r *typeGroup, s *Spec, classes *Classes) {
	var unknown uint64
	r.pcie, unknown = inv.scopes(r, func(u *unit) int { return u.pcie })
	for ; unknown != 0; unknown &= unknown - 1 {
		r.pcie = append(r.pcie, unknown&-unknown)
	}
	r.numa, unknown = inv.scopes(r, func(u *unit) int {
		if u.node == 0 {
			return -1
		}
		return int(u.node.First())
	})
	if len(r.numa) == 0 {
		r.numa = []uint64{0}
	}
	for i := range r.numa {
		r.numa[i] |= unknown
	}
	nodes, places, known := make([]topo.NodeSet, r.n), make([]int, r.n), index{}
	for i := range r.n {
		l := &inv.units[r.first+i].Location
		nodes[i], places[i] = inv.units[r.first+i].node, known.position(l.PCIe+"|"+strings.Join(l.Bridges, " "))
	}
	r.degraded = r.those(func(at int) bool { return inv.units[at].Degraded })
	r.class = classes.classOf(inv.weights(r, s), nodes, places)
}

// group returns the devices of a type; nil where the node has none.
func (inv *Inventory) group(t Type) *typeGroup {
	for i := range inv.groups {
		if inv.groups[i].kind == t {
			return &inv.groups[i]
		}
	}
	return nil
}

// Kinds returns how the devices are asked for.
func (inv *Inventory) Kinds() Kinds {
	if inv == nil {
		return nil
	}
	return inv.kinds
}

// KindsOf returns how devices other than GPUs, RDMA and FPGA are asked for, by type. A type whose resource is not its
// own, such as one that Kubernetes or another component of Koordinator counts, has none.
func KindsOf(devices []Device) (kinds Kinds) {
	byType := map[Type]Kind{}
	for i := range devices {
		d := &devices[i]
		kind := Kind{d.Type, cmp.Or(d.Resource, ShareOf(d.Type)), cmp.Or(d.Total[Share], whole)}
		// Devices of one type that differ: the largest unit counts.
		kind.Unit = max(kind.Unit, byType[d.Type].Unit)
		byType[d.Type] = kind
	}
	for _, t := range slices.Sorted(maps.Keys(byType)) {
		kind := byType[t]
		domain, _, own := strings.Cut(kind.Resource, "/")
		own = own && !strings.HasSuffix(domain, "kubernetes.io") && !strings.HasSuffix(domain, "koordinator.sh") ||
			kind.Resource == ShareOf(t)
		if own && t != GPU && !IsDevice(kind.Resource) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// AnyDegraded reports whether a device is likely to fail.
func (inv *Inventory) AnyDegraded() bool {
	return slices.ContainsFunc(inv.groups, func(r typeGroup) bool { return r.degraded != 0 })
}

// Degraded counts the devices of grants that are likely to fail.
func (inv *Inventory) Degraded(grants []Grant) (n int64) {
	for i := range grants {
		if at, ok := inv.locate(grants[i].Type, grants[i].ID); ok && inv.units[at].Degraded {
			n++
		}
	}
	return n
}

// NodesOf returns the NUMA node of a device; 0 where it is unknown.
func (inv *Inventory) NodesOf(t Type, id string) topo.NodeSet {
	if i, ok := inv.locate(t, id); ok {
		return inv.units[i].node
	}
	return 0
}

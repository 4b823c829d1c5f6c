package device

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// Role is when a container runs.
type Role uint8

// Roles. A sidecar is an init container that restarts: it runs beside the init containers after it, and the others.
const (
	App Role = iota
	Sidecar
	Init
)

// Container is what a container of a pod says, in the order of the pod: init containers first. Amounts are by resource
// name, rounded up to integers.
type Container struct {
	Name             string
	Role             Role
	Requests, Limits map[string]int64
}

// Need is what a container asks of one device.
type Need struct {
	Amount   Vector // Bytes is 0 where Ratio says it
	Ratio    int64  // percent of the device's memory
	Whole    bool   // all of a device that no other container has
	Vendor   string // name of whole GPUs, such as nvidia.com/gpu; "" for any
	Profile  string // of a MIG device; "" for devices that are none
	Template bool   // Amount and Ratio must be those of a template
}

// VendorName is the name of a resource by which a vendor's device plugin can serve n; "" where there is none.
func (n Need) VendorName() string {
	if n.Profile != "" {
		return migPrefix + n.Profile
	}
	return n.Vendor
}

// Part is what one container asks of devices of one type: Count different ones, Need of each.
type Part struct {
	Container string // "" where the pod is read as the sum of its containers
	Role      Role
	Type      Type
	Count     int64
	Need      Need
}

// Strategy is how many devices an amount means.
type Strategy string

// Strategies.
const (
	ByAmount        Strategy = ""
	ApplyForAll     Strategy = "ApplyForAll"     // the amount from every device that matches
	RequestsAsCount Strategy = "RequestsAsCount" // the amount is a number of devices
)

// Level is the part of a machine that a scope or exclusivity is about, deepest first.
type Level string

// Levels.
const (
	AnyLevel     Level = ""
	DeviceLevel  Level = "Device"
	PCIeLevel    Level = "PCIe"
	NUMALevel    Level = "NUMANode"
	MachineLevel Level = "Node"
)

// Hint is what a pod demands of all its devices of a type. Every field is a hard rule.
type Hint struct {
	Selector  Selector
	VF        *Selector // demands a virtual function of a matching group
	Strategy  Strategy  // not for GPUs
	Scope     Level     // all devices are in one
	Exclusive Level     // DeviceLevel or PCIeLevel: nothing of the type is in use there
}

// hasVF reports whether a device has a virtual function that is demanded, whoever uses it.
func (h *Hint) hasVF(d *Device) bool {
	return slices.ContainsFunc(d.VFs, func(vf VF) bool { return h.VF.Matches(vf.Labels) })
}

// JointScope is what the devices of a joint allocation have in common.
type JointScope string

// Joint scopes.
const (
	Anywhere       JointScope = ""
	SamePCIe       JointScope = "SamePCIe"
	SamePCIeSwitch JointScope = "SamePCIeSwitch"
)

// Joint asks for devices of several types next to each other. The first type is the primary one.
type Joint struct {
	Types []Type
	Scope JointScope
}

// PartitionWish is the pod's annotation gpu-partition-spec.
type PartitionWish struct {
	Restricted bool  // only the best partitions that the table has for the count
	Bandwidth  int64 // least bytes per second of a ring; 0 asks nothing
}

// Pod is what a pod says of devices.
type Pod struct {
	// Hints are by type. Joint is what the pod asks of devices of several types, Partition what it asks of the table of
	// GPUs.
	Containers []Container
	Hints      map[Type]Hint
	Joint      Joint
	Partition  *PartitionWish
}

// Request is what a pod asks of the devices of one node. It does not depend on the node.
type Request struct {
	Parts     []Part // by type, then in the order of the containers
	Hints     map[Type]Hint
	Joint     Joint // only types of Parts that take part; none below two
	Partition *PartitionWish
	Warnings  []Fault
}

// NewRequest reads what a pod asks for. The container of each fault can never work as it is written. A pod without
// devices has no Parts. Zero amounts ask for nothing; Zeros names them.
func NewRequest(p Pod, kinds Kinds) (*Request, []Fault) {
	amounts, faults := spelled(p.Containers, kinds)
	if len(faults) > 0 {
		return nil, faults
	}
	r := &Request{}
	read := reader{kinds: kinds, hints: p.Hints}
	for i, c := range p.Containers {
		read.container(c.Name, c.Role, amounts[i])
	}
	if len(read.faults) > 0 {
		// Containers that are invalid by themselves may be valid as their sum, as Koordinator reads a pod.
		sum := reader{kinds: kinds, hints: p.Hints}
		sum.container("", App, total(p.Containers, amounts))
		if len(p.Containers) < 2 || len(sum.faults) > 0 {
			return nil, read.faults
		}
		for _, f := range read.faults {
			r.Warnings = append(r.Warnings, Fault{Container: f.Container, Field: f.Field, Rule: InvalidAlone})
		}
		read = sum
	}
	r.Parts = read.parts
	slices.SortStableFunc(r.Parts, func(a, b Part) int { return compareTypes(a.Type, b.Type) })
	r.hint(p)
	r.joint(p.Joint)
	return r, nil
}

// hint keeps what is demanded of types that are asked for.
func (r *Request) hint(p Pod) {
	for _, t := range slices.Sorted(maps.Keys(p.Hints)) {
		if !r.asks(t) {
			r.Warnings = append(r.Warnings, Fault{Field: string(t), Rule: NotAsked})
			continue
		}
		if r.Hints == nil {
			r.Hints = map[Type]Hint{}
		}
		r.Hints[t] = p.Hints[t]
	}
	if r.asks(GPU) {
		r.Partition = p.Partition
	}
}

// asks reports whether r asks for devices of a type.
func (r *Request) asks(t Type) bool {
	return slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Type == t })
}

// joint keeps the types that take part in a joint allocation: those that are asked for by amount.
func (r *Request) joint(j Joint) {
	r.Joint.Scope = j.Scope
	for _, t := range j.Types {
		if r.asks(t) && !r.forAll(t) && !slices.Contains(r.Joint.Types, t) {
			r.Joint.Types = append(r.Joint.Types, t)
		}
	}
	if len(r.Joint.Types) < 2 {
		r.Joint = Joint{}
	}
}

// forAll reports whether every matching device of a type gives the amount.
func (r *Request) forAll(t Type) bool { return t != GPU && r.Hints[t].Strategy == ApplyForAll }

// Sign appends what nodes answer r by.
func (r *Request) Sign(b []byte) []byte {
	signed := *r
	signed.Warnings = nil
	text, err := json.Marshal(&signed)
	if err != nil {
		panic(err) // there are only numbers, words, and maps of them
	}
	return append(b, text...)
}

// LeftToKubelet reports whether r asks for whole GPUs, or MIG devices, by their vendor's name and for nothing else: a
// kubelet with the vendor's device plugin can serve it.
func (r *Request) LeftToKubelet() bool {
	return len(r.Hints) == 0 && len(r.Joint.Types) == 0 && r.Partition == nil &&
		!slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Need.VendorName() == "" })
}

// Types returns the types that r asks for, GPUs first, then by name.
func (r *Request) Types() []Type {
	var types []Type
	for i, p := range r.Parts {
		if i == 0 || p.Type != r.Parts[i-1].Type {
			types = append(types, p.Type)
		}
	}
	return types
}

// partsOf returns the parts for a type, which are adjacent.
func (r *Request) partsOf(t Type) []Part {
	first := slices.IndexFunc(r.Parts, func(p Part) bool { return p.Type == t })
	if first < 0 {
		return nil
	}
	last := first
	for last < len(r.Parts) && r.Parts[last].Type == t {
		last++
	}
	return r.Parts[first:last]
}

// compareTypes orders GPUs first, then by name.
func compareTypes(a, b Type) int {
	switch {
	case a == b:
		return 0
	case a == GPU, b != GPU && a < b:
		return -1
	}
	return 1
}

// Operator is how a term of a selector compares, as in a label selector of Kubernetes.
type Operator string

// Operators.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
	// Gt and Lt compare whole numbers: a label that is absent or not a number satisfies neither.
	Gt Operator = "Gt"
	Lt Operator = "Lt"
)

// Term is one condition of a selector.
type Term struct {
	Key      string
	Operator Operator
	Values   []string
}

// Selector is a label selector: all its terms hold. The zero value matches everything.
type Selector []Term

// Matches reports whether labels satisfy s. A label that is not there satisfies NotIn.
func (s Selector) Matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(t Term) bool {
		value, has := labels[t.Key]
		switch t.Operator {
		case In:
			return !has || !slices.Contains(t.Values, value)
		case NotIn:
			return has && slices.Contains(t.Values, value)
		case Exists:
			return !has
		case Gt, Lt:
			return !t.compares(value)
		}
		return has
	})
}

// compares reports whether a label's value satisfies a term with Gt or Lt.
func (t *Term) compares(value string) bool {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || len(t.Values) != 1 {
		return false
	}
	bound, err := strconv.ParseInt(t.Values[0], 10, 64)
	return err == nil && (t.Operator == Gt && n > bound || t.Operator == Lt && n < bound)
}

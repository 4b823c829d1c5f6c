package why

import (
	"fmt"
	"slices"
)

// Code is a kind of refusal. Its CamelCase name is the API, the number is not. A code never changes its meaning.
type Code uint16

// Codes. Their entries are in codes.json, in the same order.
const (
	None Code = iota

	// Request: can never work as written.
	BadAnnotation
	CPURequestNotInteger
	InvalidField
	RequestLimitMismatch
	InvalidDeviceRequest
	ClaimTooLarge

	// Attention: no scheduler has attempted the pod.
	NoScheduler
	NotAttempted
	ObjectNotGiven
	AdmissionRefused

	// Gate.
	SchedulingGate
	PluginFailed

	// Quota.
	QuotaExceeded
	QuotaPoolUsed
	QuotaNotFound

	// Reservation.
	ReservationAffinity
	ReservationRestricted
	ReservedForOthers
	PreAllocationRequired
	PreAllocationUnmet
	PreAllocationUnsupported
	PreAllocationClusterDisabled

	// Gang.
	GangNotFound
	GangGroupNotMutual
	GangNotReady
	GangGated
	GangHolding
	GangSiblingFailed
	GangPreempting
	GangTimeout
	GangDeadlockReleased
	GangLayerNotFound
	GangReserved

	// Data.
	InvalidTopology
	TopologyMissing
	NUMAInfoEmpty
	TooManyNUMANodes
	KubeletPanics

	// Placement.
	SMTAlignment
	BindPolicyConflict
	TopologyPolicy
	TopologyMismatch
	TopologyUndecided
	NUMANodeShared
	PoolNotConfined
	CPUManagerNotStatic
	TopologyPolicyDiffers
	InsufficientExclusiveCPU
	InsufficientIsolatedCPU
	SharedPoolTooSmall
	SharedPoolCommitted
	SharedPoolFloor
	InsufficientKubeletCPU
	KubeletTopologyAffinity
	KubeletSMTAlignment
	KubeletAdmission
	KubeletWouldHang
	KubeletSharesCPUs
	KubeletRejected
	EnforcementDegraded
	KubeletAssumed
	DeviceMissing
	DevicesOfKubelet
	ForeignDevices
	PartitionTableMissing
	PartitionCountUnsupported
	SharedTemplateMissing
	DeviceShareUnsupported
	GPUIsolationMissing
	VirtualFunctionsMissing
	DeviceJointAllocation
	ClaimDevicesHeld
	ClaimNotAligned
	DevicesKept
	ExtendedResourceTooLarge
	InsufficientClaimDevices
	InsufficientNUMADevices
	InsufficientPartitions
	InsufficientScopedDevices
	InsufficientDevices

	// Capacity.
	UsageThreshold
	MetricExpired
	RecentlyEvicted
	InsufficientCPU
	InsufficientMemory
	InsufficientEphemeralStorage
	InsufficientPods
	InsufficientExtended

	// Constraint.
	GangOtherDomain
	NodeAffinity
	NodeName
	NodeUnschedulable
	TaintToleration
	NodePorts
	PodAffinity
	PodTopologySpread
	Volume
	UpstreamFilter

	// Preemption.
	NoVictims
	VictimsTerminating
	NominatedElsewhere
	Preempted

	// Node enforcement.
	UnallocatedExclusivePod

	numCodes
)

// String returns the code's CamelCase name, "None" for no refusal.
func (c Code) String() string {
	if c < numCodes {
		return registry[c].Name
	}
	return fmt.Sprintf("Code(%d)", uint16(c))
}

// ParseCode reads a CamelCase name; false for a name that is not registered. "None" is one.
func ParseCode(name string) (Code, bool) {
	i := slices.IndexFunc(registry[:], func(e Entry) bool { return e.Name == name })
	return Code(max(i, 0)), i >= 0
}

// MarshalText writes the name.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name; an unknown one is an error.
func (c *Code) UnmarshalText(text []byte) error {
	parsed, ok := ParseCode(string(text))
	if !ok {
		return fmt.Errorf("reason code %q is not registered", text)
	}
	*c = parsed
	return nil
}

// Class groups codes by how early they are checked. Its order is the rank of a root cause: the lowest is reported
// first.
type Class uint8

// Classes.
const (
	NoClass     Class = iota
	Request           // can never work as written
	Attention         // no scheduler has attempted the pod
	Gate              // held before the queue
	Quota             // the quota tree rejects the pod
	Gang              // waiting for its siblings
	Data              // the data about the node is missing or unusable
	Placement         // no feasible placement on the node's machine
	Capacity          // the node does not have enough
	Constraint        // a rule excludes the node for the pod
	Victims           // preemption does not help
	Enforcement       // the node could not enforce the decision
)

// classNames has the name of each Class, by its number.
var classNames = [...]string{
	"", "Request", "Attention", "Gate", "Quota", "Gang", "Data", "Placement", "Capacity", "Constraint", "Preemption",
	"Enforcement",
}

// String returns the class as documents and JSON spell it; "" for NoClass.
func (c Class) String() string { return classNames[c] }

// UnmarshalText reads the name that String returns.
func (c *Class) UnmarshalText(text []byte) error {
	i := slices.Index(classNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("class %q does not exist", text)
	}
	*c = Class(i)
	return nil
}

// OncePerPod reports whether codes of the class are checked once per pod and not per node.
func (c Class) OncePerPod() bool { return c != NoClass && c <= Gang }

// AffinityCause is Extra of KubeletTopologyAffinity.
type AffinityCause int64

// Why no set of NUMA nodes is accepted, in the order of the code's variants in codes.json.
const (
	NoAffinityCause AffinityCause = iota
	// NoRoom: a resource is not free in the requested amount on any set of nodes.
	NoRoom
	// NotNarrow: a resource is free only on more nodes than its capacity needs.
	NotNarrow
	// DifferentWidths: the resources need different numbers of nodes.
	DifferentWidths
	// NoCommonNodes: each resource has feasible nodes, but no nodes are feasible for all resources.
	NoCommonNodes
	// ManyNodes: more than one node is needed under single-numa-node.
	ManyNodes
)

// AllocationCause is Extra of KubeletAdmission.
type AllocationCause int64

// What a manager of the kubelet cannot allocate, in the order of the code's variants in codes.json.
const (
	NoAllocationCause AllocationCause = iota
	CPUsShort
	MemoryShort
	MemoryGroupShort
	MemoryTooWide
	MemoryGrouped
	DevicesShort
	DevicesUnhealthy
	OtherAmountHeld
)

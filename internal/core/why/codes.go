package why

import "fmt"

// Code is a kind of refusal. Its CamelCase name is the API, the number is not. A code never changes its meaning.
type Code uint16

// Codes. Registry entries stand in registry.go.
const (
	None Code = iota

	// Request: can never work as written.
	BadAnnotation
	CPURequestNotInteger
	InvalidField
	RequestLimitMismatch

	// Attention: nobody is working on it.
	NoScheduler
	NotAttempted

	// Gate.
	SchedulingGate

	// Data.
	InvalidTopology
	TopologyMissing
	NUMAInfoEmpty
	TopologyStale
	TooManyNUMANodes
	KubeletPanics

	// Placement.
	SMTAlignment
	BindPolicyConflict
	TopologyPolicy
	TopologyMismatch
	TopologyUndecided
	PoolNotConfined
	CPUManagerNotStatic
	TopologyPolicyDiffers
	InsufficientExclusiveCPU
	SharedPoolTooSmall
	SharedPoolCommitted
	SharedPoolFloor
	InsufficientKubeletCPU
	KubeletTopologyAffinity
	KubeletSMTAlignment
	KubeletAdmission
	KubeletWouldHang
	KubeletRejected

	// Capacity.
	InsufficientCPU
	InsufficientMemory
	InsufficientEphemeralStorage
	InsufficientPods
	InsufficientExtended

	// Constraint.
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
	for c := range registry {
		if registry[c].Name == name {
			return Code(c), true
		}
	}
	return None, false
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

// Class groups codes by how early they are asked. Its order is the rank of a root cause: the lowest is told first.
type Class uint8

// Classes.
const (
	NoClass     Class = iota
	Request           // can never work as written
	Attention         // nobody is working on it
	Gate              // held before the queue
	Quota             // the quota tree says no
	Gang              // waiting for its siblings
	Data              // what is known of the node does not do
	Placement         // the node's machine has no place of that shape
	Capacity          // the node has not enough
	Constraint        // a rule keeps the pod off the node
	Victims           // making room does not work
	Enforcement       // the node could not enforce the decision
)

var classNames = [...]string{
	"", "Request", "Attention", "Gate", "Quota", "Gang", "Data", "Placement", "Capacity", "Constraint", "Preemption",
	"Enforcement",
}

// String returns the class as documents and JSON spell it; "" for NoClass.
func (c Class) String() string { return classNames[c] }

// OncePerPod reports whether codes of the class are asked once per pod and not per node.
func (c Class) OncePerPod() bool { return c != NoClass && c <= Gang }

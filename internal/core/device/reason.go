package device

// ReasonCode is a kind of refusal.
type ReasonCode uint8

// Reason codes.
const (
	NoReason ReasonCode = iota
	MissingDevice
	InsufficientDevices
	InsufficientPartitions
	InsufficientInScope
	InsufficientVFs
	JointViolation
	InsufficientOnNUMA // devices are there, but not on NUMA nodes that the rest of the pod can have
	MissingPartitions
	UnsupportedCount
	NoTemplate
	ShareUnsupported
)

// Reason says why a request gets no devices of a node. The zero value is "no reason".
type Reason struct {
	Code    ReasonCode
	Type    Type
	Asked   int64  // devices
	Free    int64  // devices that could serve the request
	Whole   int64  // devices that no pod has a part of
	InScope int64  // InsufficientInScope: the most of Free in one scope
	Best    Vector // the most that one device has free, by cores or share and then bytes
	Model   string // ShareUnsupported
}

// OK reports whether r is the zero value.
func (r Reason) OK() bool { return r.Code == NoReason }

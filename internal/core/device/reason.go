package device

import "fmt"

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

// Resolvable reports whether pods that end can help.
func (r Reason) Resolvable() bool {
	switch r.Code {
	case MissingDevice, InsufficientVFs, MissingPartitions, UnsupportedCount, NoTemplate, ShareUnsupported:
		return false
	}
	return true
}

// Text states the condition without amounts: it is equal on all nodes that refuse for the same reason. Koordinator's
// texts are kept: users search for them.
func (r Reason) Text() string {
	switch r.Code {
	case MissingDevice:
		return "node(s) missing Device"
	case InsufficientDevices:
		return fmt.Sprintf("Insufficient %s devices", r.Type)
	case InsufficientPartitions:
		return "Insufficient Partitioned GPU Devices"
	case InsufficientInScope:
		return fmt.Sprintf("Insufficient Topology Scoped %s Devices", r.Type.title())
	case InsufficientVFs:
		return fmt.Sprintf("Insufficient %s VirtualFunctions", r.Type)
	case JointViolation:
		return "node(s) Device Joint-Allocate rules violation"
	case InsufficientOnNUMA:
		return "Insufficient NUMA Scoped Devices"
	case MissingPartitions:
		return "node(s) missing GPU Partition Table"
	case UnsupportedCount:
		return "node(s) Unsupported number of GPU requests"
	case NoTemplate:
		return "no matched GPU shared resource template"
	case ShareUnsupported:
		return fmt.Sprintf("model %q does not support GPU Share", r.Model)
	}
	return ""
}

func (t Type) title() string {
	if t == GPU {
		return "GPU"
	}
	return string(t)
}

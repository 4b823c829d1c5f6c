package device

import "github.com/tenon-project/tenon/internal/core/why"

// Reason says why a request gets no devices of a node. The zero value is "no reason".
type Reason struct {
	Code    why.Code
	Type    Type
	Asked   int64  // devices
	Free    int64  // devices that could serve the request
	Whole   int64  // devices that no pod has a part of
	InScope int64  // InsufficientScopedDevices: the most of Free in one scope
	Best    Vector // the most that one device has free, by cores or share and then bytes
	Model   string // DeviceShareUnsupported; the names of all templates where none matched
}

// OK reports whether r is the zero value.
func (r Reason) OK() bool { return r.Code == why.None }

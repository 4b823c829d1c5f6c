package view

import (
	"time"

	"github.com/tenon-project/tenon/internal/core/ledger"
)

// Reservation is what a Reservation keeps, for whom, and which pods use it. Amounts are quantities by resource.
type Reservation struct {
	Name       string     `json:"name"`
	Phase      string     `json:"phase"`
	CreateTime *time.Time `json:"createTime,omitempty"`
	Node       string     `json:"node,omitempty"`
	// TTL and Expires are the texts of the object, "" where it has none.
	TTL     string `json:"ttl,omitempty"`
	Expires string `json:"expires,omitempty"`
	// CPUSet and Devices are what it has on its node beside the pods that use it.
	CPUSet      string              `json:"cpuset,omitempty"`
	Devices     map[string][]Device `json:"devices"`
	Allocatable map[string]string   `json:"allocatable"`
	Allocated   map[string]string   `json:"allocated"`
	// Left is what it keeps on its node beside the pods that use it, as far as the node has it.
	Left map[string]string `json:"left"`
	// Policy is Aligned or Restricted; Once: one pod may use it; Unschedulable: no further pods may.
	Policy        string `json:"allocatePolicy"`
	Once          bool   `json:"allocateOnce"`
	Unschedulable bool   `json:"unschedulable,omitempty"`
	// Owners are texts about the pods that may use it, such as "pods app=web".
	Owners []string `json:"owners"`
	// Users are the pods that use it, as namespace/name.
	Users []string `json:"currentOwners"`
	// Message is why it has no node, what its node lacks, which pods it waits for, or why it has ended; "" of others.
	Message string `json:"message,omitempty"`
}

// SetHeld fills what the reservation with a UID has on its node; v is nil for a node that is not known.
func (r *Reservation) SetHeld(v *ledger.View, uid string) {
	if v == nil {
		return
	}
	if v.Machine() != nil {
		r.CPUSet = v.Machine().FormatList(v.CPUsOf(uid))
	}
	r.Devices = DevicesOf(v, v.DevicesOf(uid))
}

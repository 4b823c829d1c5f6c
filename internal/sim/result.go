package sim

import (
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

// States of a pod.
const (
	Scheduled     = "Scheduled"
	Unschedulable = "Unschedulable"
	Waiting       = "Waiting"   // its gang holds it back, or it has a node and waits for a permit to bind
	Preempted     = "Preempted" // it was evicted from its node, for a pod that its reasons name
	Refused       = "Refused"   // a webhook said no
	Existing      = "Existing"  // the input already had spec.nodeName
)

// Result is the result of a simulation. Lists are always present and sorted by namespace and name; scalars without a
// value are omitted.
type Result struct {
	Pods   []Pod        `json:"pods"`
	Quotas []view.Quota `json:"quotas"`
	Gangs  []Gang       `json:"gangs"`
	Nodes  []Node       `json:"nodes"`
	// Reservations are those of the input.
	Reservations []Reservation `json:"reservations"`
	// Migrations are what the PodMigrationJobs of the input do that have not ended.
	Migrations []Migration `json:"migrations"`
	// Timeline is nil where no time passes.
	Timeline *Timeline `json:"timeline,omitempty"`
}

// Pod is where a pod was placed, or why it was not.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state"`
	Node      string `json:"node,omitempty"`
	// CPUSet are the exclusive CPUs, NUMANodes the NUMA nodes of these or of the pod's shared pools.
	CPUSet    string                   `json:"cpuset,omitempty"`
	NUMANodes []int                    `json:"numaNodes"`
	Devices   map[string][]view.Device `json:"devices"`
	// Claims are the ResourceClaims of the pod that have devices, in the order of its spec.
	Claims []ClaimDevices `json:"claims,omitempty"`
	// Annotations are those that the scheduler or a webhook wrote.
	Annotations map[string]string `json:"annotations"`
	Reasons     []Reason          `json:"reasons"`
}

// ClaimDevices is what a ResourceClaim has.
type ClaimDevices struct {
	Claim string `json:"claim"`
	// Devices are DRIVER/POOL/DEVICE.
	Devices []string `json:"devices"`
}

// Reason is one cause, with the number of nodes that refused the pod for it; 0 for a cause that concerns the pod alone.
type Reason struct {
	Code    why.Code `json:"code"`
	Message string   `json:"message"`
	Nodes   int      `json:"nodes,omitempty"`
}

// Node is a node with its CPU shared pools. They are empty for a node without a topology.
type Node struct {
	Name         string       `json:"name"`
	SharedPools  []SharedPool `json:"cpuSharedPools"`
	BESharedPool []SharedPool `json:"beCPUSharedPools"`
}

// SharedPool is the part of a pool on one NUMA node, in the kernel's ids.
type SharedPool struct {
	Socket int    `json:"socket"`
	Node   int    `json:"node"`
	CPUSet string `json:"cpuset"`
}

// Gang describes pods that start together.
type Gang struct {
	Name      string      `json:"name"` // namespace/name
	State     gang.Status `json:"state"`
	Members   int         `json:"members"`
	MinMember int         `json:"minMember"`
	Bound     int         `json:"bound"`
}

// gangsNow returns all gangs, by name, in their current state.
func (e *engine) gangsNow() []Gang {
	out := []Gang{}
	e.gangs.Read(func(s *gang.State) {
		for _, id := range s.Gangs() {
			r, _ := s.Find(id)
			out = append(out, Gang{id, r.Status(), len(r.Members), r.Settings.Min, len(r.In(gang.Bound))})
		}
	})
	return out
}

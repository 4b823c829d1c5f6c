package oracle

import corev1 "k8s.io/api/core/v1"

// Request is one line to a program; one field is set.
type Request struct {
	Start  *Machine   `json:"start,omitempty"`
	Admit  *Admission `json:"admit,omitempty"`
	Delete string     `json:"delete,omitempty"` // the UID of a pod
	// Restart builds the managers anew over their checkpoints.
	Restart bool `json:"restart,omitempty"`
}

// Machine is a machine and the configuration of its kubelet. All ids are the kernel's.
type Machine struct {
	Sockets int      `json:"sockets"`
	NUMA    []NUMA   `json:"numa"` // ascending ids
	Devices []Device `json:"devices,omitempty"`

	CPUPolicy   string            `json:"cpuPolicy"`
	CPUOptions  map[string]string `json:"cpuOptions,omitempty"`
	ReservedIDs string            `json:"reservedIDs,omitempty"` // reservedSystemCPUs
	ReservedCPU int64             `json:"reservedCPU,omitempty"` // milli-CPU of kubeReserved and systemReserved

	MemoryPolicy    string            `json:"memoryPolicy"`
	TopologyPolicy  string            `json:"topologyPolicy"`
	TopologyScope   string            `json:"topologyScope"`
	TopologyOptions map[string]string `json:"topologyOptions,omitempty"`

	// Cap is the most combinations of hints that a merge may try; 0 = no limit.
	Cap float64 `json:"cap,omitempty"`
	// Trace adds the providers' hints to the answers.
	Trace bool `json:"trace,omitempty"`
	// Stubborn: the device plugins prefer devices that were not requested.
	Stubborn bool `json:"stubborn,omitempty"`
}

// NUMA is a NUMA node.
type NUMA struct {
	ID        int              `json:"id"`
	Memory    int64            `json:"memory"`              // bytes
	Hugepages map[int64]int64  `json:"hugepages,omitempty"` // page size in KiB to pages
	Reserved  map[string]int64 `json:"reserved,omitempty"`  // bytes by type
	Distances []uint64         `json:"distances"`
	Cores     []Core           `json:"cores,omitempty"`
}

// Core is a physical core. Core ids are unique on the machine.
type Core struct {
	ID      int   `json:"id"`
	Socket  int   `json:"socket"`
	L3      int   `json:"l3"` // -1 = unknown
	Threads []int `json:"threads"`
}

// Device is one device of a plugin.
type Device struct {
	Resource  string `json:"resource"`
	ID        string `json:"id"`
	Nodes     []int  `json:"nodes,omitempty"` // ascending
	Unhealthy bool   `json:"unhealthy,omitempty"`
}

// Admission is a pod as the API server hands it to the kubelet.
type Admission struct {
	Pod   *corev1.Pod `json:"pod"`
	Again bool        `json:"again,omitempty"` // it was admitted before a restart
	// Prefer is what the device plugin prefers, by container and resource.
	Prefer map[string]map[string][]Share `json:"prefer,omitempty"`
}

// Pod is what a v1.Pod is written from.
type Pod struct {
	UID        string      `json:"uid"`
	Guaranteed bool        `json:"guaranteed,omitempty"` // limits equal requests
	PodLevel   bool        `json:"podLevel,omitempty"`   // spec.resources is set
	Containers []Container `json:"containers"`           // init containers and sidecars first
}

// Roles of containers.
const (
	RoleApp     = "app"
	RoleInit    = "init"
	RoleSidecar = "sidecar"
)

// Container is one container. An amount of 0 is written out.
type Container struct {
	Name    string           `json:"name"`
	Role    string           `json:"role"`
	CPU     int64            `json:"cpu,omitempty"` // milli-CPU; 0 = no request
	Memory  map[string]int64 `json:"memory,omitempty"`
	Devices map[string]int64 `json:"devices,omitempty"`
}

// Share is a number of devices on the same NUMA nodes.
type Share struct {
	Nodes []int `json:"nodes"`
	Count int   `json:"count"`
}

// Answer is one line from a program.
type Answer struct {
	Kubelet  string `json:"kubelet,omitempty"`
	Note     string `json:"note,omitempty"`
	Started  bool   `json:"started,omitempty"`
	Error    string `json:"error,omitempty"`
	Reserved string `json:"reserved,omitempty"`

	Admitted     bool    `json:"admitted,omitempty"`
	Reason       string  `json:"reason,omitempty"`
	Message      string  `json:"message,omitempty"`
	QoS          string  `json:"qos,omitempty"`
	Combinations float64 `json:"combinations,omitempty"`
	Capped       bool    `json:"capped,omitempty"`
	Panic        string  `json:"panic,omitempty"`
	Last         string  `json:"last,omitempty"`

	// Containers is what they have; of a refused pod what they had when it was refused.
	Containers []Given `json:"containers,omitempty"`
	// Hints are the providers' lists by merge and resource; nil = the provider does not care.
	Hints []map[string][]Offer `json:"hints,omitempty"`

	// Hung: no answer came in time. A program does not write it.
	Hung bool `json:"hung,omitempty"`
}

// Offer is one hint of a provider.
type Offer struct {
	Mask      []int `json:"mask"` // nil = any
	Preferred bool  `json:"preferred"`
}

// Given is what one container has.
type Given struct {
	Name      string              `json:"name"`
	Mask      []int               `json:"mask,omitempty"` // nil = none
	Preferred bool                `json:"preferred,omitempty"`
	CPUs      string              `json:"cpus,omitempty"`
	Memory    []Block             `json:"memory,omitempty"` // by type
	Devices   map[string][]string `json:"devices,omitempty"`
}

// Block is memory of one type.
type Block struct {
	Type  string `json:"type"`
	Nodes []int  `json:"nodes"`
	Bytes int64  `json:"bytes"`
}

// Case is a machine and what happens on it.
type Case struct {
	Kubelet string  `json:"kubelet"` // minor, "1.37"
	Machine Machine `json:"machine"`
	Steps   []Step  `json:"steps"`
}

// Step admits a pod, deletes one, or restarts the kubelet, which then admits all pods again; one field is set.
type Step struct {
	Admit   *Pod   `json:"admit,omitempty"`
	Delete  string `json:"delete,omitempty"`
	Restart bool   `json:"restart,omitempty"`
}

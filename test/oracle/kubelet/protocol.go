package main

import v1 "k8s.io/api/core/v1"

// request is one line of input; one field is set.
type request struct {
	Start  *machine   `json:"start,omitempty"`
	Admit  *admission `json:"admit,omitempty"`
	Delete string     `json:"delete,omitempty"` // the UID of a pod
	// Restart builds the managers anew over their checkpoints. The kubelet then admits every pod again.
	Restart bool `json:"restart,omitempty"`
}

// machine is a machine and the configuration of its kubelet. All ids are the kernel's.
type machine struct {
	Sockets int      `json:"sockets"`
	NUMA    []numa   `json:"numa"`
	Devices []device `json:"devices"`

	CPUPolicy   string            `json:"cpuPolicy"`
	CPUOptions  map[string]string `json:"cpuOptions"`
	ReservedIDs string            `json:"reservedIDs"` // reservedSystemCPUs; "" = none
	ReservedCPU int64             `json:"reservedCPU"` // milli-CPU of kubeReserved and systemReserved

	MemoryPolicy    string            `json:"memoryPolicy"`
	TopologyPolicy  string            `json:"topologyPolicy"`
	TopologyScope   string            `json:"topologyScope"`
	TopologyOptions map[string]string `json:"topologyOptions"`

	// Cap is the most combinations of hints that a merge may try; 0 = no limit.
	Cap float64 `json:"cap"`
	// Trace adds the providers' hints to the answers.
	Trace bool `json:"trace"`
	// Stubborn: the device plugins prefer devices that were not requested.
	Stubborn bool `json:"stubborn,omitempty"`
}

type numa struct {
	ID        int              `json:"id"`
	Memory    int64            `json:"memory"`    // bytes
	Hugepages map[int64]int64  `json:"hugepages"` // page size in KiB to pages
	Reserved  map[string]int64 `json:"reserved"`  // reservedMemory, bytes by type
	Distances []uint64         `json:"distances"` // to the nodes in the order of the machine
	Cores     []core           `json:"cores"`
}

type core struct {
	ID      int   `json:"id"`
	Socket  int   `json:"socket"`
	L3      int   `json:"l3"` // -1 = unknown
	Threads []int `json:"threads"`
}

type device struct {
	Resource  string `json:"resource"`
	ID        string `json:"id"`
	Nodes     []int  `json:"nodes"`
	Unhealthy bool   `json:"unhealthy"`
}

// admission is a pod as the API server hands it to the kubelet.
type admission struct {
	Pod   *v1.Pod `json:"pod"`
	Again bool    `json:"again,omitempty"` // it was admitted before a restart
	// Prefer is what the device plugin prefers, by container and resource.
	Prefer map[string]map[string][]share `json:"prefer,omitempty"`
}

// share is a number of devices on the same NUMA nodes.
type share struct {
	Nodes []int `json:"nodes"`
	Count int   `json:"count"`
}

// answer is one line of output.
type answer struct {
	Kubelet string `json:"kubelet,omitempty"`
	Note    string `json:"note,omitempty"`
	Started bool   `json:"started,omitempty"`
	Error   string `json:"error,omitempty"` // the kubelet does not start, or the request is wrong
	// Reserved are the CPUs that the started CPU manager reserves; empty under policy none.
	Reserved string `json:"reserved,omitempty"`

	Admitted bool   `json:"admitted,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	QoS      string `json:"qos,omitempty"`
	// Combinations of hints of the largest merge; Capped: there were too many, and the merge was not decided.
	Combinations float64 `json:"combinations,omitempty"`
	Capped       bool    `json:"capped,omitempty"`
	Panic        string  `json:"panic,omitempty"`
	// Last is the container that a manager was asked for last.
	Last string `json:"last,omitempty"`

	// Containers is what they have; of a refused pod what they had when it was refused.
	Containers []given `json:"containers,omitempty"`
	// Hints are the providers' lists by merge and resource; null = the provider does not care.
	Hints []map[string][]offer `json:"hints,omitempty"`
}

// offer is one hint.
type offer struct {
	Mask      []int `json:"mask"` // null = any
	Preferred bool  `json:"preferred"`
}

// given is what one container has.
type given struct {
	Name      string              `json:"name"`
	Mask      []int               `json:"mask,omitempty"` // nil = none
	Preferred bool                `json:"preferred,omitempty"`
	CPUs      string              `json:"cpus,omitempty"`
	Memory    []block             `json:"memory,omitempty"`
	Devices   map[string][]string `json:"devices,omitempty"`
}

type block struct {
	Type  string `json:"type"`
	Nodes []int  `json:"nodes"`
	Bytes int64  `json:"bytes"`
}

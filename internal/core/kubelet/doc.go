// Package kubelet predicts what the kubelet of a node answers to a pod, and what it gives it.
//
//	Node (machine, settings, what is registered) ─► State (what is given to whom)
//	State ─ Admit(pod) ─► State, Placement | Refusal
//
// It holds the state of the kubelet's CPU manager (static), memory manager (Static) and device manager, generates their
// hints, merges them by package hint, and allocates as they do: the same verdict, mask, CPU ids, memory blocks and
// device counts, version by version. States are immutable values.
//
//	Admit ─► container by container, or once for the pod:
//	  hints:    devices (device.go), CPUs (cpu*.go), memory (memory.go)     counted or listed (merge.go)
//	  merge:    package hint                                                refused: TopologyAffinityError
//	  allocate: devices ─► CPUs ─► memory                                   refused: SMTAlignmentError,
//	                                                                        UnexpectedAdmissionError
//
// Fits (fits.go) is the verdict alone, from counters where they decide. With and Without record what a kubelet reports.
// What cannot be predicted is marked: Devices.Open for devices that the plugin chooses, Given.Uncertain for a mask.
//
// Package tenancy keeps the State of a node: what of it is reported, predicted or computed.
//
// Sources: the kubelet's packages cm/{topologymanager,cpumanager,memorymanager,devicemanager} of Kubernetes 1.33 to
// 1.37, KEP-693, KEP-1769, KEP-3570. test/oracle compares with the kubelets themselves.
package kubelet

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
// A Tenancy is the state of a node. In it every pod that the kubelet gives something of its own has one Source: what
// the node reports counts, else what was predicted when the pod was bound, else what the model computes (Computed), in
// the order of creation on top of what is known: a kubelet decides by its state alone. Only that order is uncertain.
// Unconfirmed names those pods, and package place asks for every order of few of them; nodes with many rank last.
//
// Sources: the kubelet's packages cm/{topologymanager,cpumanager,memorymanager,devicemanager} of Kubernetes 1.33 to
// 1.37, KEP-693, KEP-1769, KEP-3570. test/oracle compares with the kubelets themselves.
package kubelet

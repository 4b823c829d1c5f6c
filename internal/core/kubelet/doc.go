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
//	  hints:    devices (device.go), CPUs (cpu*.go), memory (memory.go)     by masks (merge.go)
//	  merge:    package hint                                                refused: TopologyAffinityError
//	  allocate: devices ─► CPUs ─► memory                                   refused: SMTAlignmentError,
//	                                                                        UnexpectedAdmissionError
//
// With and Without record what a kubelet reports. What cannot be predicted is marked: Devices.Open for devices that the
// plugin chooses, Given.Uncertain for a mask.
//
// Package tenancy keeps the State of a node: what of it is reported, predicted or computed.
//
// # Counting
//
// NUMA nodes are chosen under a policy in two ways. Admit is the exact model. Fits is its verdict alone: it counts
// where that gives the same answer, which the following shows, and calls the exact model elsewhere.
// TestFitsIsTheVerdictOfAdmit and TestFitsGoesFromContainerToContainer compare verdicts and causes of both.
//
// F1. hint.Summary.Verdict merges as the lists do if each unit is on one NUMA node or on none, and a hint is preferred
// for its size alone. So counters merge only without devices that are on several nodes (kind.spread), and without
// align-by-socket. Admit always merges the lists, so that comparing both verdicts compares counters with lists.
// (TestHintsAreTheirDefinition, TestCountersAndListsMergeAlike)
//
// F2. A container may use again what an init container had. So counters describe only pods whose init containers,
// sidecars included, ask for nothing; what the others ask adds up. (countFits)
//
// F3. One merge for all that is asked, of one container or under pod scope, is followed by one allocation. The managers
// give devices and CPUs from anywhere if the mask has too few, so free units decide, and whole cores with
// full-pcpus-only. Under pod scope each container takes a part of a sum that is free, so the sum decides; where it is
// short, which container fails, and why, takes the exact model. Memory comes from the mask if the mask holds it; where
// the manager would look for another one, the exact model decides. (mergeAndAllocate)
//
// F4. Under container scope each container is merged on what the ones before have left. That is known if each of these
// got one NUMA node that holds all it asks, and its devices could come from one set only: counters then subtract. In
// all other cases the exact model decides. The CPU manager keeps to the node because machines with unequal cores, and
// distributed allocation, are left to the exact model. (countSequence, subtract)
//
// F5. A refusal names the cause that the lists would name: it asks for each resource alone, in the order of the lists.
// (causeOf)
//
// # Hints of one node
//
// Under single-numa-node a merge reads, of each list, the preferred hints of one node, and otherwise only whether it
// has any (hint.Rule.Answer, blame). A node that has what is asked would have it with all its units free, so a hint of
// one node is always preferred, under align-by-socket too. So Admit and Fits walk wider masks of a list only if no node
// alone has what is asked: whether the list is empty depends on them then. Explain walks all masks, and
// TestFitsIsTheVerdictOfAdmit compares both. (list of room)
//
// Sources: the kubelet's packages cm/{topologymanager,cpumanager,memorymanager,devicemanager} of Kubernetes 1.33 to
// 1.37, KEP-693, KEP-1769, KEP-3570. test/oracle compares with the kubelets themselves.
package kubelet

// Package scaleup decides for which pending pods a cluster autoscaler must be asked by a pod in their place.
//
// An autoscaler compares the requests of a pending pod with the free amounts of the nodes. It adds no node for a pod
// that fits by amounts, although Tenon refuses it there: CPUs of one NUMA node, whole cores or parts of a GPU are
// fragmented, or a Reservation holds the capacity. Plan packs the pods twice, first fit, in one order of pods and
// nodes:
//
//	by amounts, as an autoscaler does ─► the pods that it takes for placed
//	by accounts, as the scheduler does ─► the pods that start without a new node
//
// A pod that only the first packing places gets a helper, unless no node could take the pod without its other pods: a
// new node would not take it either. So of a gang only as many members get helpers as lack capacity that the autoscaler
// believes in. For equal pods the two packings place as many pods as there is capacity for; for others a pod may get a
// helper although another order of pods would have placed it.
package scaleup

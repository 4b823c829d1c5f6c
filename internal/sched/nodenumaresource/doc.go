// Package nodenumaresource is the scheduler plugin NodeNUMAResource: fine-grained CPU orchestration (seed 000). It is
// the placement of a profile (internal/sched/placement) with arguments and a score of its own.
//
//	PreScore  skips pods that every node treats alike, and pods that are compared by their devices alone
//	Score     place.Score: how well the pod's CPUs fit into the NUMA nodes and cores of a node, from 0 to 100
//
// A node whose kubelet was predicted wrong several times of late scores 0 for pods that depend on the prediction. With
// the argument volcanoScore, pods that have Volcano's annotation are ranked by the number of NUMA nodes that they would
// use, as Volcano does: the fewest NUMA nodes among all candidates win.
//
// All decisions about CPUs are those of the placement, which the plugin DeviceShare of the same profile shares: a pod
// with CPUs and GPUs is parsed, filtered and reserved once, and scored by each of the two for what it knows. So the
// plugin has no state of its own besides the scores of the cycle under way.
//
// The endpoints show the topology, the free CPUs and the account of a node, in the JSON of Koordinator's plugin of the
// same name, and the last pods whose placement by a kubelet was predicted wrong.
package nodenumaresource

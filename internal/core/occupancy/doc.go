// Package occupancy computes what pods have of a node's GPUs, how many more pods of whole GPUs fit, and what keeps pods
// off the rest.
//
//	GPUs that pods can be given ─┬► without a pod ─┬► placed by place.Try, pods of 8, 4, 2 and 1 GPUs together
//	                             │                 └► stranded: cpu, memory, partition, numa, pods, kubelet, cordon, notReady
//	                             ├► with a part left that a share can have
//	                             └► with a pod: a part left that no share can have is stranded as share
//
// What fits is what the scheduler's own check of the node accepts, one pod after the other.
package occupancy

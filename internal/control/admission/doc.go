// Package admission says what Tenon's webhooks answer: refusals, warnings and keys to remove, as functions of a pod, a
// node, or an elastic quota and those that there are. It needs no server, so that simulate gives the very answers of
// the cluster.
//
//	Mutate     a pod that is created: keys that only a scheduler may set are taken away, limits that Guaranteed
//	           pods lack are added, requests for devices get canonical names
//	Fence      a pod that is created and will hold CPUs or devices: its runtime must not start it without the agent
//	Create     what can never work, each with its field, the rule and the allowed values
//	Update     what must not change, and what a change brings in
//	Resize     CPUs that a pod holds by number, and what its node and its NUMA nodes have left
//	Node       warnings alone: a node must be able to register
//	Quota      the rules of a tree of quotas (quota.Checker), at the fields of the object
//	PodQuota   pods are in leaves, and remain preemptible or not
//	QuotaChange  a bound pod that is resized or moved to another quota, within its limits
//
// The webhooks for pods and nodes check what the object alone determines, and a pod's quota. The scheduler refuses what
// depends on a node.
package admission

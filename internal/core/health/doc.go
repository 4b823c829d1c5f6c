// Package health decides whether new pods can use what a node has free, and what is wrong with the node.
//
//	conditions, taints, cordon, last report of the agent ─► Of ─► Health: findings, the cause that closes the node
//
// A closed node runs its pods and takes no others: what it has free is stranded. A taint that people set does not close
// a node, because the pods that it is meant for tolerate it.
package health

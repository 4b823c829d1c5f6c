// Package preempt adapts kube-scheduler's preemption, the plugin DefaultPreemption: which pods may be victims, which of
// them are chosen on a node, which node is chosen, and how a victim is evicted.
//
//	Rule      may this pod be a victim of that preemptor
//	Choice    which nodes are tried, the victims on one of them, and the order of nodes with victims
//	Evictor   evicts one victim
//
// Other packages add rules and layers with Chooser. No other package names a type of kube-scheduler's preemption, so
// that a version of Kubernetes that changes these types changes this package alone.
package preempt

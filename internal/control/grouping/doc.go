// Package grouping makes gangs of the pods that operators create, without a word from their users.
//
//	pod that is created ─► webhook ─► Grouper ─► label: the name of its PodGroup
//	pod, object, PodGroup ─► Controller (of the leader) ─► Grouper ─► PodGroups of the object, late labels
//	Grouper ─► Owners (caches, else one GET) ─► workload.Table
//
// A pod whose PodGroup does not exist waits, so that the label and the PodGroup can come in any order, and no pod
// starts alone meanwhile. Package workload decides; this package reads and writes.
package grouping

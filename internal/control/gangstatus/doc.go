// Package gangstatus keeps the status of PodGroups equal to what their pods do. Each status is made anew from the pods
// that exist, ended ones too, and never counted up and down. It writes changes only, at most one a second for a
// PodGroup and 20 for all.
//
//	Pending ─► PreScheduling ─► Scheduling ─► Scheduled ◄─► Running ─► Finished, Failed
//	 no pods    none has a node   some have      the minimum has a node, or runs
//	                                              └─► Unknown: fewer than the minimum are left, and others wait
//
// A PodGroup that was Scheduled once never goes back to the left of it, as a gang that has started once stays started.
package gangstatus

// Package desired computes what the cgroup tree of a machine must contain: a pure function from the machine's account
// and its pods to rows of group, file and value.
//
//	ledger.View (machine, pools)  ┐
//	Pods (role, allocation)       ┴─► Table: one Row per group and file, one Refusal per pod that must not run
//
// Only leaf groups, those of containers and sandboxes, get a cpuset: the directories above remain wide, so that a write
// never fails on a parent. Files that Tenon does not write have no rows: a group without rows is not changed.
package desired

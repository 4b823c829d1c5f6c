// Package shadow has the verb that compares a scheduler of a cluster with Tenon, and changes nothing there.
//
//	watch ─► a pod is bound ─► sched/app.Shadow: the cluster as it was ─► Tenon's node │ the pod's node ─► report
//
// The role in role.yaml has all rights that it needs: to list and to watch.
package shadow

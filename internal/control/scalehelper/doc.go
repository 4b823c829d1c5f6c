// Package scalehelper makes cluster autoscalers add nodes for pods that fit existing nodes by amounts alone.
//
//	pending pods, Nodes, accounts ─► scaleup.Plan ─► one helper pod for each pod that an autoscaler takes for placed
//
// A helper has the requests, node selectors and tolerations of its pod, and excludes the nodes that the pod fits by
// amounts: by their host names, or beside Karpenter, which ignores such pods, by a label. No scheduler serves its
// scheduler name, and this package writes its condition PodScheduled. So an autoscaler acts for it as for any pod that
// lacks capacity, and no program binds it. Nodes that autoscalers plan have names of their own.
//
// Helpers are in a namespace that contains nothing else, where the account of the manager may create pods. The label of
// a helper is the UID of its pod, and its name follows from it: two controllers cannot make two for one pod.
package scalehelper

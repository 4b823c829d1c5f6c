// Package snapshot adapts kube-scheduler's snapshot of nodes and pods: a Session changes the scheduling loop's snapshot
// during a cycle, and takes all changes back.
//
// # Why a Session keeps an order
//
// A snapshot has indexes over all nodes: those with pods that declare affinity, those with pods that require
// anti-affinity, and the claims that pods use. Only its own AssumePod and ForgetPod change them, and from Kubernetes
// 1.37 on ForgetPod does so rightly only for the pod that was assumed last. A Session may take any pod off: it forgets
// the pods that were assumed after it as well, and assumes these again.
//
// A pod that changes no index is put on its node without AssumePod, which costs nothing for the pods after it. A victim
// is taken off its node directly, and no index changes: the node remains in its lists, where a node without such pods
// does no harm. A pod that is put on such a node is in the lists already, and does not enter them twice.
package snapshot

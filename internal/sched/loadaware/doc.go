// Package loadaware is the plugin LoadAwareScheduling: it keeps pods off nodes that use more than their thresholds, and
// prefers nodes that use little. What a node uses is the account kube.Loads; core/load judges by it.
//
// A node's answer for a pod changes only with its account, its allocatable resources and its annotation, or when its
// NodeMetric becomes too old. Each of these is logged as a change of the node, so that rankings of nodes evaluate it
// again, and no other node. A pod costs one estimate, and one look at the account for each node that is evaluated.
//
// A pod that is nominated to a node counts there for pods of a lower priority. Victims count until they are gone.
//
// Without any NodeMetric in the cluster, the plugin skips every pod.
//
//	PreFilter  estimates what the pod will use, once for all nodes
//	Filter     use by the report + estimates that the report lacks + the pod  ≤  threshold, for each resource
//	Score      the weighted free share of the resources that would remain, from 0 to 100; 0 without a fresh report
//	Reserve    counts the pod on its node until reports contain it
//
// Which use is compared, and with which threshold, depends on the pod: production pods may have thresholds of their
// own, which are compared with what production pods use. A node's annotation replaces the thresholds of the arguments.
// A node whose status was amplified is judged by what it really has.
package loadaware

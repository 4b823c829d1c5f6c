// Package refusals reports why the scheduler refused a pod.
//
// The scheduler stops at a node's first refusal. Of runs every filter of a profile on every node and returns all
// refusals as why.Findings, so that the smallest set of changes can be determined. Live does so beside a running
// scheduler: it has plugin instances and a snapshot of its own, and takes the scheduler's cache lock for no longer than
// the scheduler's own snapshot does. Attempt reads a failed attempt as it was.
//
// Reporter replaces what kube-scheduler's failure handler writes: the Event and the condition of a refused pod name the
// root cause of the findings, once for each cause. The pods of one signature share what was found for the first one, as
// long as nodes refuse for the same causes. A profile that ranks nodes keeps a hash of the causes, so that a repeated
// refusal takes no look at the nodes.
package refusals

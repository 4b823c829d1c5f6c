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
//
// # What a refused attempt costs
//
// Upstream's handler of failures runs in the scheduling cycle or in the goroutine of a binding, so the work is bounded:
//
//	repeats   the pod was refused less than a minute ago, with equal causes ──► it is only counted
//	runs      a pod of equal signature was, with equal causes               ──► its analysis is reused
//	explain   otherwise all filters run on all nodes ──► root cause, message, codes
//
// After a run of all filters, pods that were analyzed within a minute are not analyzed again for nine times as long as
// the run took, even if their causes have changed. So runs take at most a tenth of the scheduler's time, beside those
// for pods that are refused for the first time.
//
// The Event and the condition are written if the code of the root cause is another one than before, or if the message
// has changed and the last one is a minute old. Events have a budget for the whole process; those beyond it are counted
// as dropped.
package refusals

// Package refusals reports why the scheduler refused a pod.
//
// The scheduler stops at a node's first refusal. Of runs every filter of a profile on every node and returns all
// refusals as why.Findings, so that the smallest set of changes can be determined. Live does so beside a running
// scheduler: it has plugin instances and a snapshot of its own, and takes the scheduler's cache lock for no longer than
// the scheduler's own snapshot does. Attempt reads a failed attempt as it was, and After does so in the pass of all
// filters.
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
//	recall    a pod of equal signature was, with equal causes               ──► its analysis is reused
//	postpone  the profile remembers how each node refused the pod           ──► Run explains it beside the
//	                                                                            loop, on the snapshot of Live
//	explain   otherwise all filters run on all nodes ──► root cause, message, codes
//
// An explanation that is postponed writes the Event and the condition; nothing is shown before. The nomination of the
// pod is written within the attempt. Pods of one signature that are refused for the same causes share an explanation.
// It is about the nodes as they are when it is made; how they refused the attempt is kept. Attempts explain themselves
//
//   - on pods of gangs, pods that may use a Reservation and those whose nodes depend on each other: what nodes say to
//     them may be gone afterwards,
//   - on a pod that an explanation is due for: no pod waits for its condition for longer than until its next attempt,
//   - while a number of explanations are due, or of tables with a status of each node that they keep, which bounds
//     memory. Refusals of one table are of pods that nodes refuse for the same reasons, whatever the pods' sizes.
//
// Nothing is written of a pod that has a node, of which the scheduler's cache knows before the API server, or that is
// gone. Nothing is written after the end of the process's context: it may have lost its lease.
//
// After a run of all filters, pods that were analyzed within a minute are not analyzed again for nine times as long as
// the run took, even if their causes have changed. So runs take at most a tenth of the time, beside those for pods that
// are refused for the first time.
//
// The Event and the condition are written if the code of the root cause is another one than before, or if the message
// has changed and the last one is a minute old. Events have a budget for the whole process; those beyond it are counted
// as dropped.
package refusals

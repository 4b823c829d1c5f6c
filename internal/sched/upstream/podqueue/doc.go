// Package podqueue is kube-scheduler's queue of pending pods as Tenon uses it: the queue of upstream, and Take, which
// pops one pod by name.
//
// A gang is tried as a whole: the first member that leaves the queue pulls its siblings out of it. Take therefore must
// do to the pod what Pop does to the first pod (attempts, pods in flight, metrics), or events that come meanwhile would
// not wake a member that fails. So Take makes the pod the first one and pops it:
//
//	Take(pod) ──► Activate, unless it is in the active queue ──► mark it, sort it anew ──► Pop ──► end the mark
//	                                                              the mark is less than every other pod
//
// The order of the queue is that of a QueueSort plugin, whichever it is: New puts the mark before it. Delete waits
// until Take has ended: else the marked pod could leave the queue, and Pop would return another one or wait for it.
package podqueue

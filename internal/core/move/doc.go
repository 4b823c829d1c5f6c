// Package move decides the next step of a job that moves one pod to another node.
//
// Step is a pure function of the job's object and of what the API server has beside it. It returns the status that is
// to be written and the one action that follows the write:
//
//	Pending ─ arbitration passes ─► Running                                  ┌► Succeeded
//	                                   │ Reserve   the place is kept         │
//	                                   │ Wait      until it is on a node     │
//	                                   │ Evict     after every check passes  │
//	                                   │ Wait      until the pod is gone     │
//	                                   └ Wait      until a new pod is Ready ─┴► Failed, Aborted
//
// A job that has ended takes what it leaves back: Withdraw, Release, Remove.
//
// The status is written before the action. A process that ends between the two is followed by one that reads the same
// object, takes the same step, and repeats an action that has no effect when it is repeated: a reservation has the name
// of its job, an eviction has the UID of its pod. So a job ends the same way, whenever a process is killed.
//
// The scheduler may give the new pod of one job the room of another job whose pod has the same owner. Exchanged decides
// for which job it counts; a job that has lost its room so, and whose pod still runs, reserves another one.
//
// A pod is not evicted before its place is kept on another node. A job that fails before has left the pod as it was,
// and the place is given up. A job that fails after it keeps the place until the reservation expires, because the new
// pod is still to come.
package move

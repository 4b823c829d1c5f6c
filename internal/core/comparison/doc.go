// Package comparison says what the difference between two schedulers' decisions about one pod comes to: the node to
// which one has bound the pod, and the node that the other one would have chosen at that moment.
package comparison

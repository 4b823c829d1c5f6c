// Package explanation answers ScheduleExplanations: it writes what the diagnostics API answers about a pod to the
// status of the object that asks, and deletes the object when its ttl has passed.
//
// The author of an object may read its namespace alone, so the question must be about a pod of that namespace, and the
// answer names no pod of another one. Answers take at most a tenth of the time, and at most ten are given in a second,
// however many objects there are: the pod of an object is looked at when the object or the pod changes, and each ten
// seconds. The status is written when the answer has changed, and each minute.
package explanation

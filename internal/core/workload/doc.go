// Package workload decides which pods of an operator's object start together.
//
// Input: an object as map[string]any, and the Table of Rules, one for each kind. A Rule is data: where the object lists
// its roles, how many pods a role has and how many of them the object needs, which labels its operator sets, and under
// which conditions a role stays out. Rules of the Table are in rules.json; users add and replace rules.
//
// Output: a Plan, which lists the gangs of the object and the pods that its operator creates, each with its gang.
//
//	pod ─ owner ─ owner …   Table.Match: the first kind that is grouped or left alone decides,
//	                        or one above it that covers this kind
//	object ─ Rule ──────►   Rule.Plan: roles ─► parts (replicas, sets) ─► gangs, and pods
//
// The idea: each role is a gang of its own, and all gangs of an object list each other, so that a minimum of the whole
// cannot start with half of its roles. Pods that the operator creates only after others have started are in no gang.
// A value that cannot be read, and a minimum that the object cannot reach, give no gangs and a reason; the pods are
// then placed one by one.
package workload

// Package verdict asks every filter of a scheduler profile about every node, and reads what it says as why.Findings.
//
// The scheduler stops at a node's first refusal; here all of them are heard, so that the smallest set of things to
// change can be told. Live does so beside a running scheduler: it has plugin instances and a snapshot of its own, and
// takes the scheduler's cache lock for no longer than the scheduler's own snapshot does.
package verdict

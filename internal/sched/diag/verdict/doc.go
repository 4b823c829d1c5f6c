// Package verdict runs every filter of a scheduler profile on every node, and returns the refusals as why.Findings.
//
// The scheduler stops at a node's first refusal; this package collects all of them, so that the smallest set of changes
// can be determined. Live does so beside a running scheduler: it has plugin instances and a snapshot of its own, and
// takes the scheduler's cache lock for no longer than the scheduler's own snapshot does.
package verdict

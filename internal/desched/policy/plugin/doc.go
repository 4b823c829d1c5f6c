// Package plugin has the plugins of the descheduler: which pods are better elsewhere, and nothing about whether they
// may
// be moved.
//
// The interfaces are those that users of the Kubernetes descheduler know. A plugin is made for one Round. It looks at
// the pods of nodes and proposes moves; the Round asks the evictors, and takes a pod away from its node once its move
// is
// accepted, so that the next proposal counts it no more. What is arithmetic is in core/rebalance.
package plugin

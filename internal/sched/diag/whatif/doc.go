// Package whatif answers where pods would go if the cluster were another one, beside a running scheduler.
//
// An Engine has plugin instances and a snapshot of its own. A session is one question: it copies a node of the snapshot
// when it changes it, keeps the accounts of nodes that differ in a Trial, and runs the framework's own cycle for each
// pod: filters, scores, and the reservation of exact CPUs and devices. When the question is answered, the copies are
// dropped. Nothing that the running scheduler reads is ever written.
//
// What it does not try: HTTP extenders are not asked; a gang's members are placed one after the other, without the
// gang's rules; quotas admit each pod by what is used now, unless setQuota or scaleGang makes the session count for
// itself. All nodes are scored, and among equal scores the first name
// wins, where the running scheduler alternates.
package whatif

// Package sim answers what the scheduler and the webhooks would do with Kubernetes manifests, without a cluster.
//
//	files ─► documents ─► objects ─► pods ─► webhooks ─► scheduler's plugins ─► Result
//	         (strict)     (defaults of the API server)   (on a ledger in memory)
//
// Every decision is made by the code that makes it in a cluster: the API server's defaulting and validation, the
// functions behind the webhooks, the scheduler's profile with all its plugins, and the Binding that it would send. Pods
// are tried by priority, then in the order of the documents; every node is evaluated and ties go to the first name, so
// the same input gives the same bytes.
package sim

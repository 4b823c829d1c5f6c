// Package cli holds the reading verbs of tenon: explain (alias why), topology and top. The same verbs work as
// `kubectl tenon …`.
//
// Their data are API objects (Node, NodeResourceTopology, Pod), read once and turned into the same ledgers that the
// scheduler keeps, so they answer while no scheduler runs. What only the scheduler knows (queue, scores, verdict per
// node) is asked of its diagnostics address, when the kubeconfig names one. Standard output is the answer, standard
// error is warnings. Exit codes are listed at Run.
package cli

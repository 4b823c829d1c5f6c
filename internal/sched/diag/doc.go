// Package diag serves the scheduler's diagnostics over HTTP: node and plugin state, the explanation of a pod, the last
// decisions, and the debug flags of Koordinator (seed 003).
//
//	GET  /apis/v1/__services__                                      every path below, in gin's spelling
//	GET  /apis/v1/nodes/:nodeName                                   the scheduler's view of a node
//	GET  /apis/v1/plugins/NodeNUMAResource/…/:nodeName              topology, free CPUs, ledger of a node
//	GET  /apis/v1/explain/pods/:namespace/:name                     why is it where it is, or nowhere
//	GET  /apis/v1/decisions?pod=namespace/name                      the last 256 decisions
//	GET  /apis/v1/journal                                           a file of the journal, by default the newest
//	POST /apis/v1/whatif                                            where pods would go in a changed cluster
//	PUT  /debug/flags/{v,s,f}      GET /debug/flags                 log level, score table, filter failures
//
// Handlers read immutable state and never take the scheduler's locks for longer than a copy. Who may call is decided
// before: the secure port authenticates and authorises, the plain port is loopback. Pods in namespaces that the
// caller may not read are left out.
package diag

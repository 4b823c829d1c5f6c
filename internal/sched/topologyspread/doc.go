// Package topologyspread is upstream's PodTopologySpread for a scheduler that compares SpreadKey besides the signature
// of pods.
//
// Upstream signs no pod while default spread constraints are configured, which they are unless an administrator
// disables them; one plugin that does not sign keeps the whole profile from reusing results (opportunistic batching).
// Here all pods are signed, and SpreadKey has what a constraint reads of them; every other decision is upstream's own
// code.
package topologyspread

// Package topologyspread is upstream's PodTopologySpread for a scheduler that compares SpreadKey besides the signature
// of pods.
//
// Upstream signs no pod while default spread constraints are configured, which they are unless an administrator
// disables them; one plugin that does not sign keeps the whole profile from reusing results (opportunistic batching).
// Here all pods are signed, and SpreadKey has what a constraint reads of them; every other decision is upstream's own
// code.
//
// Two pods with equal signatures and equal keys get equal scores on every node. A pod with constraints of its own is
// scored by its namespace, by the constraints, and by its labels if a constraint names keys of them. A pod without is
// scored by the selector of its Services and owner. A pod to which no constraint applies has an empty key, and shares
// its results with all such pods.
package topologyspread

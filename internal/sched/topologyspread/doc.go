// Package topologyspread is upstream's PodTopologySpread with a narrower refusal to sign.
//
// Upstream signs no pod at all while default spread constraints are configured, which they are unless an administrator
// disables them; one plugin that does not sign keeps the whole profile from reusing results (opportunistic batching).
// But default constraints act only on pods that a Service, ReplicationController, ReplicaSet or StatefulSet selects.
// Jobs, gangs and bare pods are signed here; every other decision is upstream's own code. A scheduler that compares
// SpreadKey besides the signature gets all pods signed.
package topologyspread

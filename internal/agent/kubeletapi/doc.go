// Package kubeletapi asks the kubelet of a node: what it was told (/configz), and what it gave to whom (PodResources).
//
//	https://NODE:PORT/configz ─► Config     the settings in force, flags and drop-in files included
//	kubelet.sock (gRPC) ───────► Resources  CPUs, memory and devices of active pods, and what there is of each
//
// An answer is whole or an error: what cannot be read is never taken for nothing. Keeping the last good answer is up to
// the caller. The agent's token goes to a server alone that the cluster's authority or the machine's own files vouch for.
package kubeletapi

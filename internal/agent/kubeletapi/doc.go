// Package kubeletapi queries the kubelet of a node for its configuration (/configz) and its allocations (PodResources).
//
//	https://NODE:PORT/configz ─► Config     the settings in force, flags and drop-in files included
//	kubelet.sock (gRPC) ───────► Resources  CPUs, memory and devices of active pods, and what there is of each
//
// An answer is complete or an error: unreadable data is never treated as empty. The caller keeps the last valid answer.
// The agent's token is sent only to a server whose certificate the cluster's authority or the machine's own files
// verify.
package kubeletapi

// Package criproxy is a proxy between a kubelet and a container runtime without NRI: a CRI endpoint that passes every
// call through, byte for byte, but for the six around which it asks hook servers.
//
//	kubelet ──► Listen ──► Proxy ─────────────────────► runtime
//	                         │ RunPodSandbox   StopPodSandbox
//	                         │ CreateContainer StartContainer StopContainer
//	                         │ UpdateContainerResources
//	                         └──► hook servers (HooksDir/*.json), one of them tenon-agent
//
// No method is known by name but those six, and no message is decoded but theirs: a runtime and a kubelet that speak a
// newer CRI than this code lose nothing. Of the six, a request is written anew only where a hook changed it, and what
// the code does not know of it survives.
//
// The failure policy of a hook server applies when it does not answer. Two rules take precedence: a pod that was given
// CPUs or devices, or is entitled to them, never passes without its hooks; and an answer FAILED_PRECONDITION is a
// refusal, not a failure. What has happened is not undone by a failure: after a start only a refusal counts, and the
// hooks after a stop are called in the background, on a best-effort basis.
//
// The proxy remembers the sandboxes and containers of the runtime, as most requests carry no more than an id. It asks
// the runtime for them before it listens, and for each that it meets later and does not know; it keeps nothing on disk.
// The protocol cannot report running containers to hook servers: tenon-agent finds them in the cgroup tree.
package criproxy

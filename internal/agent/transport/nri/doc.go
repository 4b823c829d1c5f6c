// Package nri is the agent as a plugin of a container runtime that speaks NRI (containerd, CRI-O).
//
//	runtime ── Synchronize, RunPodSandbox, CreateContainer, … ──► guard 1.5 s ──► hook.Handler
//	        ◄─ adjustment, updates of others ───────────────────┘
//	        ◄─ UpdateContainers, when pools have moved ── one at a time, never from inside of a handler
//
// The runtime holds one lock for all NRI calls of the node, and goes on without a plugin that takes longer than 2 s. So
// handlers answer from memory, an own guard answers an error before the runtime's deadline, and a validator in the same
// plugin, which fails closed, checks each container before it is created.
//
// A connection that ends is made anew, and what the runtime has then is the new truth.
package nri

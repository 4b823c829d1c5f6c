// Package hookserver answers the runtime proxy's questions: the hook protocol on a unix socket, over the same handler as
// the NRI plugin.
//
//	PreRunPodSandbox ─► RunPod               PreUpdateContainerResources ─► Update
//	PreCreateContainer ─► Create             PostStopContainer ─► Stop
//	PreStartContainer ─► Create, Start       PostStopPodSandbox ─► RemovePod
//	PostStartContainer ─► Start, running
//
// A container that must not go on is answered FAILED_PRECONDITION, which a proxy takes for a refusal whatever its failure
// policy is. The protocol tells neither the id of a sandbox nor the group of a container, and has no list of what runs: a
// sandbox is known by its pod and its attempt, a container's group is found by its id, and what ran before the agent did is
// found in the cgroup tree.
package hookserver

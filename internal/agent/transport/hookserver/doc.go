// Package hookserver answers the runtime proxy's questions: the hook protocol on a unix socket, over the same handler
// as the NRI plugin.
//
//	PreRunPodSandbox ─► RunPod               PreUpdateContainerResources ─► Update
//	PreCreateContainer ─► Create             PostStopContainer ─► Stop
//	PreStartContainer ─► Create, Start       PostStopPodSandbox ─► RemovePod
//	PostStartContainer ─► Start, running
//
// A step that is rejected is answered with FAILED_PRECONDITION, which a proxy treats as a rejection whatever its
// failure policy is. The protocol contains neither the id of a sandbox nor the group of a container, and no list of
// running containers: a sandbox is identified by its pod and its attempt, a container's group is found by its id, and
// containers that started before the agent are found in the cgroup tree.
package hookserver

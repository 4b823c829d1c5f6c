// Package runtime holds level 3 of the tests of the agent: a real containerd with runc, NRI and the CRI proxy under a
// real agent, on the CPUs that the machine has. The tests are behind the build tag e2e_node and need root.
//
// # Cases
//
// The machine has CPUs 0 and 1: an exclusive CPU is 1, the shared pool beside it is 0. The program in the containers
// prints the CPUs that the kernel lets it use from its first instruction on, and each change, so a case can say
// "never". The main cases run over NRI, over the CRI proxy and with the reconciler alone.
//
//   - a container starts on its CPUs: cpuset, memory nodes, shares as asked, no quota
//   - pools move at the bind: before a container of the new pod exists; and back when it is gone
//   - an update by the kubelet: does not undo a set, nor put a quota back; memory and CPU of others can be resized
//   - init, sidecar, ephemeral and pause containers: are on the pod's CPUs, those of others are off them
//   - no decision, or a malformed one: the pod does not start, an Event says why
//   - no agent, no API server: plain pods start; bound ones do not without the agent
//   - a plugin connects while a pod is removed: neither waits for the other
//   - agent or runtime killed and started again: every container keeps its CPUs; what changed meanwhile is corrected
//   - 100 containers when the agent comes: are all confined
//   - a set changed by hand: is put back, with Event and metric
//   - a load begins beside best-effort pods: they fall to the least quota, which the case prints the time of, and get
//     all back with the end of the NodeSLO; a limit of batch CPU of theirs, which a v1 kernel takes in one order alone,
//     moves with it
//   - a second plugin sets the same field: the refusal names both
//   - two containers on a share of a GPU, on a GPU each, on both; one on an RDMA adapter: each may open the device
//     files of its cards, and no others
//   - no allocation: void, no card, also where image or pod ask for all
//   - devices that were not allocated, without id, not there: the container is not created, an Event says why
//   - agent or runtime killed beside containers with devices, a torn CDI file: what runs keeps its cards, the file is
//     whole again, what starts gets its cards
//   - CDI files of the agent, of the administrator, none: the same cards in each case
//   - a card is opened to a running container by hand (cgroup v1): Event and metric, the container goes on
//
// Cards are character devices with numbers that no driver has: to open one answers ENXIO where the container may use
// it, and EPERM where not. The agent finds them in a tree of its own (--root), in which CPUs, memory and cgroups are
// the machine's.
//
// Cases of containers that come by NRI also run over containerd 1.7, which has no validator: there a bound pod starts
// without an agent that is away, the Node has the condition tenon.sh/EnforcementDegraded, and LSE pods are refused.
//
// What containerd 2.4 does when a plugin fails at CreateContainer, with the annotation
// required-plugins.noderesource.dev on the pod, with a validator in the plugin, and with both, as the agent has it
// (TestTheFencesOfTheRuntime):
//
//   - the handler returns an error: neither fails; annotation fails; validator fails; both fails
//   - the plugin is not connected: neither starts unadjusted; annotation fails; validator starts unadjusted; both fails
//   - the handler is too slow: neither starts unadjusted; annotation starts unadjusted; validator fails; both fails
//   - the plugin dies in the handler: neither starts unadjusted; annotation starts unadjusted; validator fails; both
//     fails
//   - the handler calls UpdateContainers: neither starts unadjusted; annotation starts unadjusted; validator fails;
//     both fails
package runtime

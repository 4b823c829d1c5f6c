// Package admit decides about the pods of a simulated node as a kubelet does, because it is one: the Topology Manager,
// the CPU manager and the memory manager of Kubernetes run in this process, over a machine that exists as files alone.
//
//	topo.Machine ─ machineInfo ─► what cadvisor would find ─► the three managers ─► {cpu,memory}_manager_state
//	pod ─ Admit ─► hints ▸ merge ▸ allocation ▸ fit ─► nil, or a Refusal in the kubelet's words
//	container ─ Affinity ─► cpuset.cpus and cpuset.mems, for the runtime to set
//	every 10 s ─ reconcile ─► Update: shared containers leave CPUs that were given away
//
// Order, stale state, restart and the leak after a late rejection are the kubelet's too: the caller says which pods
// arrive, in which order, and which are gone. Not here are the device manager, DRA and pods from files.
package admit

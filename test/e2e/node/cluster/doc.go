// Package fabricated tests the way from a manifest to the cgroup on machines that do not exist: a local control plane,
// our scheduler and webhooks, the agent, a real containerd and the real kubelet, over files of machines with one to
// four NUMA nodes. The kernel's two CPUs play all of them (package fold).
//
//	draw ─► machine's files ─► bound over /sys/devices/system/{cpu,node} and /proc/cpuinfo
//	                             ├─► kubelet ─► containerd ─► foldrunc ─► runc ─► cgroups of CPUs 0 and 1
//	                             └─► agent ────► NRI, cgroups ▲
//	pods ─► API server ─► scheduler ─► binding ─► kubelet
//
// Each combination of a machine and a kubelet's policies is a node of its own, with its own kubelet and agent. In own
// mode the wanted CPUs of every container are compared with what runtime and kernel have, in follow mode the placement
// that the scheduler predicted with what the kubelet recorded; in both the kubelet must refuse nothing that was bound,
// and the scheduler must bind what there is room for.
//
// Without a build tag the tests compare the review of pods that wait with the scheduler's decisions, in one process.
// The others have the build tag e2e_cluster and need root. TENON_SEED=N draws others, TENON_SEED=random fresh ones,
// TENON_COMBINATIONS=OWN,FOLLOW another number of combinations.
package fabricated

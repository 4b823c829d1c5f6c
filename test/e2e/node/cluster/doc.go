// Package fabricated tests the way from a manifest to the cgroup on machines that do not exist: a local control
// plane, our scheduler and webhooks, the agent, a real containerd and the real kubelet, over files of machines with
// one to four NUMA nodes. The kernel's two CPUs play all of them (package fold).
//
//	draw ─► machine's files ─► bound over /sys/devices/system/{cpu,node} and /proc/cpuinfo
//	                             ├─► kubelet ─► containerd ─► foldrunc ─► runc ─► cgroups of CPUs 0 and 1
//	                             └─► agent ────► NRI, cgroups ▲
//	pods ─► API server ─► scheduler ─► binding ─► kubelet
//
// Each combination of a machine and a kubelet's policies is a node of its own, with its own kubelet and agent. In own
// mode the wanted CPUs of every container are compared with what runtime and kernel have, in follow mode the
// placement that the scheduler predicted with what the kubelet recorded; in both the kubelet must refuse nothing that
// was bound, and the scheduler must bind what there is room for.
//
// Without a build tag the tests compare the review of pods that wait with the scheduler's decisions, in one process.
// The others have the build tag e2e_cluster and need root. TENON_SEED=N draws others, TENON_SEED=random fresh ones,
// TENON_COMBINATIONS=OWN,FOLLOW another number of combinations.
//
// # Level 4
//
// Each combination of a random machine and a kubelet's policies is a node of its own, in one control plane with the
// scheduler and the webhooks and over one containerd. The machine is files: internal/local/machine writes them, and
// they are bound over /sys/devices/system/{cpu,node} and /proc/cpuinfo, where the kubelet looks. Machines have one to
// four NUMA nodes, one or two threads a core with adjacent or offset numbers, one or two L3 groups a NUMA node, and
// memory that adds up to the real one, evenly or not. Policies are those of the CPU, memory and topology managers
// with their options, scopes and reservations, as far as a kubelet starts with them.
//
//	kubelet ──► containerd ──► foldrunc ──► runc ──► kernel: CPUs 0 and 1
//	   CPUs 0-47    ▲ NRI        │ 2,17 ─► 0-1, node 3 ─► 0
//	             agent ─────────► store: what was asked for, by container
//
// Kubelet, containerd, NRI and agent speak of the machine's CPUs; test/e2e/node/foldrunc in front of runc, and the
// agent's cgroup tree in front of the kernel, fold them and keep what was asked for. The agent runs in the test's
// process with its own credential: it asks the kubelet for /configz and PodResources, and containerd by NRI.
//
//   - own: 22; CPUs of every group with a process, sandboxes too, computed from the pods' allocations and the machine,
//     not by the agent's code; the kernel's value and what each process may use; memory nodes; the published pools; no
//     CPU exclusive twice
//   - follow: 12; tenon.sh/predicted-placement, cpu_manager_state, PodResources (CPUs and memory by NUMA node) and the
//     CPUs of the containers; the agent wrote nothing
//   - both: the kubelet refuses nothing that was bound, every bound pod runs, and no pod waits for which there is room;
//     the settings that the agent reads from /configz are those that were written
//
// Whether there is room for a pod that waits is computed without the scheduler's code. In own mode room_test.go tries
// every set of NUMA nodes and every division of CPUs over them, by the rules of the guide: floor and promises of the
// shared pool, whole cores, the topology policy, memory, pods of the other kind. Then the kubelet's own managers,
// started over copies of the records of this kubelet, are asked whether they would admit it (review_test.go). make
// test-node V=1 shows the reason for each pod that waits. Each combination runs at least two pods on CPUs of their
// own. make system compares the same review with the scheduler's decisions about 1,200 pods, in both directions, and
// shows that it finds eight faults with which a scheduler refuses too much.
//
// Single cases on three more nodes (kubelet static, none, followed): the kubelet restarted under running pods, whose
// updates undo nothing; a static pod; CPU and memory of a shared pod resized, the CPU of a bound pod not; a job whose
// CPUs are shared again; a pod that ends while no agent runs.
//
// On a fourth node a device plugin of the test gives the kubelet three GPUs, and lets it choose others than the
// scheduler does:
//
//   - a pod of the kubelet: checkpoint and PodResources name one GPU, the Device has it in devices-checkpoints, the
//     mode is Follow
//   - the node moves in: pods of Tenon get the other GPUs, each once, and see them alone, whatever the kubelet gave
//     them; the last one waits
//   - the kubelet gives a pod the GPU of a pod of Tenon: its container is not created (DeviceConflict), the Node has
//     the condition DeviceHoldersUnclear until it is gone
//   - the kubelet restarted: nvidia.com/gpu is 0 until its plugin is back, Tenon's amounts never are, no container
//     restarts
//   - the pod of the kubelet ends: the pod that waits gets its GPU
//   - the plugin is killed in mode Own, its socket remains: the agent's takes its place, pods that request
//     nvidia.com/gpu start
//   - the kubelet restarted without sockets of plugins, under a runtime that answers late, with its checkpoint and
//     without: with the checkpoint of the agent's plugin Tenon's amounts are never 0; without it the kubelet sets them
//     to 0, the manager writes them again, and the pod that runs is admitted
//
// Kubelet 1.36.3 starts its device manager, whose socket is in the folder, about 0.1 s before it registers its Node
// where the runtime is ready: there it never sets amounts to 0, also without a checkpoint. That it refuses pods then
// is shown with its code alone (internal/local/admit).
//
// On a fifth node Kubernetes' own test driver for ResourceClaims publishes a card on each NUMA node, and prepares them
// for the kubelet:
//
//   - a pod with exclusive CPUs of one NUMA node gets the card there, although the first one is free: by its claim, by
//     PodResources and by what the runtime gave the container. A pod that shares the claim sees the same card
//   - a pod for whose card there are too few CPUs on the same NUMA node waits, and says so, until these are free
//   - the kubelet restarted: each pod keeps its card and its CPUs
//   - the driver gone while a pod ends: its card remains allocated until the driver is back, then another pod has it,
//     which requests it as an extended resource
//
// With TENON_DRA_DRIVER=PROGRAM that is also tried with the kubelet plugin of kubernetes-sigs/dra-example-driver, which
// no package registry has: go build ./cmd/dra-example-kubeletplugin in a clone of it.
//
// The run prints its seed, a table and how many pods had to wait, and ends in level 4: 34 combinations, 0
// differences. Without TENON_SEED it is the same 34 each time; TENON_SEED=random draws fresh ones,
// TENON_COMBINATIONS=OWN,FOLLOW other numbers of them:
//
//	CGO_ENABLED=0 go test -c -tags 'nomsgpack e2e_cluster' -o .cache/l4 ./test/e2e/node/cluster
//	cd test/e2e/node/cluster && TENON_SEED=7 TENON_COMBINATIONS=1,0 ../../../../.cache/l4 -test.v
//
// Where the kubelet chooses, nothing is bound while other pods of the node end: it takes their CPUs back when their
// containers are dead, which no other component knows at that moment, so what it gives to a pod that is bound just
// then cannot be predicted. Such a pod is admitted all the same, and counted in tenon_topology_mispredict_total.
//
// A kubelet with the policy none gives all CPUs to the kubepods that it makes, in ids that this kernel does not have;
// so the group is there before it starts. Huge pages are not part of this level.
package fabricated

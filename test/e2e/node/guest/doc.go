// Package guest tests Tenon on machines with several NUMA nodes and cgroup v2: Linux guests in which containerd, runc,
// a real kubelet and the agent run, on emulated hardware. The control plane, the scheduler and the manager run on the
// host, as `tenon up` starts them, and the guest's kubelet joins that cluster.
//
//	tenon up (host loopback) ◄── 10.0.2.2 ── kubelet, tenon-agent ── containerd ── pods (guest)
//	        ▲                                                            │
//	        └── the tests ── virtio port ── scripts, `inside watch` ─────┘
//
// Level 6 joins a guest to its cluster, too: Node is what both have of it.
//
// The tests have the build tag e2e_guest; `make test-guest` builds what they need. They read the environment:
//
//	TENON_NODE_TOOLS  folder with bin/, cni/, images.tar and guest/; default .cache/node/current
//	TENON_NODE_BIN    folder of tenon-agent, tenon-runtime-proxy and cgroup.test, the compiled level 2
//	TENON_BIN         the program tenon; default bin/tenon
//
// # Level 5
//
// QEMU emulates the machine in software (-accel tcg), so neither KVM nor root is needed, nothing of the host is
// touched, and only the speed of the CPUs is not real. The guest is Debian's linux-image-6.12-cloud-amd64 with cgroup
// v2, busybox, containerd, runc, the kubelet and the images; Debian's systemd is on the same disk, and is the first
// process where the kernel's command line says so. hack/node/guest.sh unpacks packages and writes file systems from
// folders in six seconds. A guest boots in 5 s on an idle core; it is saved when containerd has its images, and each
// test resumes the snapshot in 1 s.
//
//	tenon up (host loopback) ◄── 10.0.2.2 ── kubelet, tenon-agent ── containerd ── pods (guest)
//	        ▲                                                            │
//	        └── the tests ── virtio port ── scripts, `inside watch` ─────┘
//
// The control plane, the scheduler and the manager with its webhooks are those of tenon up; the guest's kubelet joins
// that cluster with authentication and authorization as on any node, and the agent has a token that is bound to its
// Node. Scripts go in by a virtio port. Programs and tests are on a second, read-only disk that is written for each
// run, so that a new agent needs no new snapshot.
//
//   - numa2: 16 CPUs, 2 sockets, 2 NUMA nodes; kubelet policy none, NRI: the rulebook of level 2 on cgroup v2;
//     partitions read back; LSE, LSR, LS, BE and plain pods: cpuset.cpus, cpuset.cpus.effective and what the kernel
//     allows each process; sandboxes; quotas; cpuset.mems and the pages of numa_maps; a set changed by hand; agent,
//     containerd and kubelet killed under running pods; pods that come and go under a watch; CPUs offline and back;
//     weight, quota and memory limit of a batch pod; best-effort pods beside a load: fewer CPUs, whole cores of both
//     NUMA nodes, none of an LSE pod, or less quota, and all back
//   - numa4: 16 CPUs, 2 sockets, 4 NUMA nodes; kubelet policy static, NRI: zones and distances published; take-over
//     phase 1 and 2: pods that the kubelet pinned keep their CPUs, later ones get ours, a kubelet that restarts and
//     writes its own sets again; shared pools and memory by NUMA node; the end of the pinned pod
//   - isolated: 6 CPUs, of which the boot isolates 2 (isolcpus, nohz_full): they are in no pool; the interrupt by which
//     the network card receives fires on no exclusive CPU while a pod has it, and on the same CPU as before afterwards;
//     agents killed with SIGKILL before and after each write of a file of the machine; a CPU burst
//   - proxy: as numa2, NRI off, tenon-runtime-proxy installed as the guide says: the same pods, the agent killed, the
//     proxy killed
//   - systemd-nri, systemd-proxy, systemd-reconciler: as numa2, systemd as the first process, containerd with
//     SystemdCgroup = true and the kubelet with cgroupDriver: systemd; over NRI, the proxy, and the reconciler alone:
//     pods of each class, in scopes of systemd; systemctl daemon-reload five times while all groups are watched: no pod
//     loses a CPU and no process is restarted; a pod that starts after it
//   - pcie: 4 CPUs, 2 NUMA nodes, 3 PCI root complexes, 2 PCIe switches, 4 GPUs, 2 adapters, one of them with 2 virtual
//     functions (SR-IOV): the Device object has each card's bridges, NUMA node (-1 below the root complex of none) and
//     virtual functions as in the arguments of the emulator; SamePCIeSwitch and SamePCIe; a virtual function; what
//     containers find in /dev and can open under the device program of cgroup v2; a file of another card in a running
//     container
//
// On pcie PCI is the kernel's: the cards are displays and NVMe controllers of the emulator, the virtual functions are
// made through sriov_numvfs. No emulated device has a driver for GPUs or RDMA; what such a driver adds to /proc/driver,
// /sys/class/infiniband* and /dev is written by the test, and no driver answers behind the device files. The agent of a
// guest has all capabilities, so it sees the /dev of containers. A guest with such devices is booted, not resumed.
//
// inside watch reads all groups in the guest again and again, an owner before and after each other group, so that what
// it calls shared was shared at one instant. A pod counts from the moment at which its own program runs: before that,
// the runtime's own process is in the new group, which no CPUs are written to yet.
//
// make test-guest prints one line a case and ends in a line level 5: with the number of cases and guests. The first
// three take about ten minutes on two quiet cores, each of the others three. Emulated CPUs that share theirs with much
// other work miss the deadlines of hooks: such a run fails. The emulator dies with the test, also when that is killed;
// folders that a killed run left in /tmp are swept by the next one. By hand, one machine alone:
//
//	TENON_BIN=bin/tenon go test -tags 'nomsgpack e2e_guest' ./test/e2e/node/guest -v -run 'TestFourNodes'
//
// Here the tests read TENON_NODE_TOOLS and TENON_NODE_BIN as above; the second needs tenon-agent, tenon-runtime-proxy
// and cgroup.test.
package guest

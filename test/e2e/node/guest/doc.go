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
package guest

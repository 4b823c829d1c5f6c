// Package stage is a machine for tests of the agent: a real containerd with runc, NRI and CNI, the agent and the CRI
// proxy as processes, an API server, and a driver that asks the runtime for pods as a kubelet does.
//
//	go test ──► Main: new namespaces (mount, network, process ids) ──► pid 1 reaps
//	                                                                    └─► the test binary again: the tests
//	                                                                         └─► New ─► Containerd, Agent, Proxy, …
//
// Nothing of the host is touched but cgroups below tenon-e2e-PID: /run, /var/lib and /var/log are file systems of their
// own in memory, the network is a loopback of its own, and all ends with the process. Main compares the host before and
// after. In a virtual machine that is thrown away the namespaces are not needed: TENON_STAGE=here.
//
// What is needed is found by the environment:
//
//	TENON_NODE_TOOLS  folder with bin/, cni/ and images.tar, built by hack/node/build.sh; default .cache/node/current
//	TENON_NODE_BIN    folder of Tenon's binaries; without it they are built into .cache/node/bin
//	TENON_STAGE       "here" runs the tests in the namespaces that there are
//	TENON_STAGE_LOGS  folder that gets the logs of every stage
package stage

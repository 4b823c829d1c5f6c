// Package installed tests what a cluster has after helm install: the chart with its default values and the images of
// a release, on the stage of package stage, with the real kubelet.
//
//	helm install ──► API server ◄── 10.0.0.1:443, handed on ──────────┐
//	                   │   └── endpoints of the webhooks' Service ──► manager, scheduler (pods with a network)
//	                   └── kubelet ── containerd ── NRI ──────────────► agent (pod on the host's network)
//
// The cluster's own scheduler is kube-scheduler, which places Tenon's pods. The first node has the machine's CPUs;
// the second one, which joins later, is a virtual machine of package guest on a network of the stage.
//
// The tests need the tag e2e_install and root. With -short only those run that every change needs; the others install
// the release before this one too: the last tag, or the commit that the file previous names. Beside the environment
// of package stage they read:
//
//	TENON_IMAGES  folder of images; without it they are built into .cache/node/images
//
// # Level 6
//
// helm install tenon deploy/chart with its default values, on the stage: an empty control plane, the real kubelet,
// and kube-scheduler as the cluster's own scheduler, which places Tenon's pods. hack/release.sh builds the images,
// and they are imported. Pods have a network of the bridge plugin. The API server's address in it, 10.0.0.1, is on
// the loopback of the stage, and a forwarder leads from there to the API server, which reaches webhooks at the
// endpoints of their Service. The kubelet has a cgroupRoot of the stage's, for which the agent starts a second time
// once it has asked for the settings.
//
//   - install with default values: all pods are ready without a restart; tenon status --wait finds nothing but ok, the
//     diagnostics of the leader too, through its lease and a forwarded port
//   - components have no capability and the pod security level that they claim: the kernel's capabilities (bounding set
//     too), seccomp, user and no_new_privs of each process; the API server takes scheduler and manager in a namespace
//     with the level restricted, the agent in none but privileged
//   - network policies allow the ports that are open: the sockets at which each pod listens are the ports of its policy
//     and of its probes; the agent listens at loopback alone
//   - pods of each class land where simulate said: LSE, LSR, LS, BE, SYSTEM and plain pods: tenon simulate over the
//     cluster's objects first, then node and CPUs of the real pods, their cgroups and processes
//   - leaders are killed under bound pods: scheduler, manager and agent at once; others lead, a pod that is created
//     then runs, no bound pod loses its CPUs for an instant or is restarted
//   - certificates rotate: at once, on request: every replica serves the new one, old and new are trusted by the API
//     server (caBundle) and by command lines meanwhile, the webhooks answer all the time, no pod restarts
//   - agents serve metrics to those who may read them: make test-cluster alone: with monitoring.enabled, at port 10272
//     of the node over TLS. An account with the role tenon-metrics-reader gets the agent's metrics, one without it 403,
//     no token and a forged one 401. No bound pod loses its CPUs while the agent is replaced
//   - commands of the pages work on an installation: the "look at" commands of the runbooks, and what the guides ask an
//     installation
//   - a console serves who signs in: with console.enabled and an address of the API server, as no DNS serves the stage:
//     user, capabilities and seccomp of the process, no token, nothing that can be written; over TLS with the authority
//     of the installation another Host, no token, a forged one, one without rights, and one with all, whose answers
//     come from the leader through a forwarded port
//   - an uninstallation leaves no pod unable to start: make test-cluster alone: helm uninstall under LSR, LS, BE and
//     plain pods, which keep their CPUs. Plain pods and pods with labels of Tenon start. A pod of tenon-scheduler
//     waits, one with the class koord-prod is refused, a container of the LSR pod that is killed starts once NRI's
//     validator is off: the chart's notes name all this. Notes and tenon doctor name what remains, no webhook does, and
//     tenon leave then removes what is in the Node
//   - tenon leave makes the node as it was before: make test-cluster alone: before the first installation pods of the
//     same shapes ran under kube-scheduler. After tenon leave --wait, and again after helm uninstall, labels,
//     annotations, taints, conditions and amounts of the Node are as then, and so are cpuset.cpus, cpuset.mems, quotas
//     and shares of all groups of the pods and above them; every process of the pods runs on; new pods start
//   - commands of the pages install, upgrade and remove: make test-cluster alone: helm as the README, Install, Upgrade
//     and Run the agent show it, certificates, a rollback, tenon leave, the agent alone, and kubectl apply -k
//   - beside Koordinator v1.6.0, and v1.8.0: make test-cluster alone: the CRDs of its module, and of each kind an
//     object in which every field of the schema is set, with its status. Tenon is installed with the values of From
//     Koordinator: objects and CRDs are as before, a PodGroup and an ElasticQuota of that cluster hold pods of
//     koord-scheduler back and let them run. Then the release takes over the CRDs that it serves, and is uninstalled:
//     no field of any object is lost. Left out of the comparison are status and annotations of quotas and gangs, which
//     belong to whoever serves them
//
// make test-cluster alone has the cases on two nodes too, with an installation of their own. The second one is a
// guest as level 5 boots it, of 4 CPUs on 2 NUMA nodes. Its network device leads to the stage, and nowhere else:
//
//	the stage                                               the guest
//	API server ◄── 10.0.0.1:443, handed on ◄── guest0 ◄──── kubelet, agent, manager, scheduler
//	     └── kubelet 10.0.2.15:10250, webhooks 10.77.1.0/24 ──────────────────┘
//
// The cases are:
//
//   - a virtual machine joins and gets its agent: the DaemonSet's pod is ready; tenon status --wait finds nothing but
//     ok
//   - pods of the virtual machine land where simulate said: LSR, LS and BE pods: node and CPUs as tenon simulate said,
//     cpuset.cpus, cpuset.cpus.effective, cpuset.mems.effective and what the kernel allows the processes; the LSR pod
//     has a NUMA node and its memory
//   - the agent of the virtual machine is killed under bound pods: it is started again; no bound pod loses a CPU or is
//     restarted, a pod that is created then runs
//   - upgrade and rollback move no pod: uninstall, install the previous release, upgrade, roll back. Images, a CRD and
//     the configuration differ. No bound pod of either node restarts or loses a CPU, no request to the webhooks fails,
//     new pods run. The guest has agents alone until then, as it does not answer within the five seconds of a webhook;
//     after one more upgrade replicas are on different nodes
//
// On the first node the CPUs of bound pods are read each 5 ms, on the guest for a tenth of the time. The pods look
// themselves, every 200 ms, and print each change: there must be none.
//
// The previous release is the last tag before this commit; where there is none, the commit in
// test/e2e/cluster/previous, an ancestor whose chart installs here. Its sources are taken from the clone with git
// archive. On two CPUs the components' requests are smaller than usual in the last case: beside each other, the
// critical pods of both releases would preempt.
//
//	CGO_ENABLED=0 VERSION=devel go test -c -tags 'nomsgpack e2e_install' -o .cache/l6 ./test/e2e/cluster
//	cd test/e2e/cluster && ../../../.cache/l6 -test.v
//
// TENON_IMAGES names a folder of images that are built already; with -test.short the core runs alone. No CNI plugin
// here enforces NetworkPolicies, and neither kube-proxy nor DNS runs: nothing of Tenon asks for a Service or a name.
package installed

// Package local runs a whole Tenon cluster on one machine: a real control plane in this process, Tenon's components as
// children of it, and simulated machines that run the real agent.
//
//	tenon up ── etcd ── kube-apiserver ── kube-controller-manager      one process (plane)
//	   │
//	   ├── tenon __manager       webhooks and controllers               children of the same
//	   ├── tenon __nodes         all simulated machines                 binary (proc): each may
//	   ├── tenon __descheduler   what moves pods                        die and comes back
//	   └── tenon __scheduler     kube-scheduler with Tenon's plugins
//
// Everything that outlives the process lies in one folder (datadir): data, certificates, ports, logs. Nothing listens
// on anything but loopback, and no component uses the administrator's identity.
package local

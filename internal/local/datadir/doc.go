// Package datadir is the folder that contains all state of a local cluster: one owner at a time, known paths, ports
// that are the same at each start.
//
//	DIR/lock         held by the running process; holds its id and start time
//	DIR/ports.json   loopback ports of the last start
//	DIR/nodes.json   simulated machines of the last start
//	DIR/kubeconfig   the administrator's
//	DIR/pki/         authority, certificates and kubeconfigs of the components
//	DIR/etcd/        the cluster's store
//	DIR/log/         one file per process
//	DIR/nodes/NAME/  the tree of a simulated machine
package datadir

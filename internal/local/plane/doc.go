// Package plane runs a Kubernetes control plane inside this process: etcd, kube-apiserver and kube-controller-manager,
// each from its own source and configured by the flags that an operator would use.
//
// None of the components' commands is run: those trap signals and end the process themselves. What they would do after
// parsing their flags is done here. Flags, feature gates, metrics and the log are shared by everything in a process, so
// there is one control plane per process.
package plane

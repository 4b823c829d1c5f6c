// Package kubeletfile reads from the files of a machine how its kubelet was started: the flags of its process and the
// drop-ins of its configuration. It depends on no Kubernetes API, so that the runtime proxy can use it as well as the
// doctor. What a running kubelet reports about itself is read by package kubeletapi.
package kubeletfile

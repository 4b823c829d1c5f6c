// Package schedpod is what kube-scheduler and its plugins read of a pod, and how it writes a pod's status.
package schedpod

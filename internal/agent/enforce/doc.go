// Package enforce lets the engine keep the cgroup tree of a machine, as long as the agent may write there, and shows
// what the kernel has for a pod.
package enforce

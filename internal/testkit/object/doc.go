// Package object builds Kubernetes objects for tests: pods, nodes, topologies, devices, quotas and groups of pods.
package object

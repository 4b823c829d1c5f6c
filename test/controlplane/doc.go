// Package controlplane starts a control plane within the process of a test. A process can have only one.
package controlplane

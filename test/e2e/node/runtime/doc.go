// Package runtime holds level 3 of the tests of the agent: a real containerd with runc, NRI and the CRI proxy under a
// real agent, on the CPUs that the machine has. The tests are behind the build tag e2e_node and need root.
package runtime

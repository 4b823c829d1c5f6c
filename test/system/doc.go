// Package system tests the whole of Tenon on a local cluster: a real control plane, scheduler replicas that are killed,
// the manager, and simulated machines that run the real agent.
//
// It needs the built binary: TENON_BIN=bin/tenon go test ./test/system. `make test` builds it first.
//
// # Rights and folders
//
// TestEachRightIsNeeded (test/system) drives scheduler, manager and agent by the chart's accounts through
// deploy/testdata/rights.yaml while the API server writes an audit log. Nothing may be refused. For each verb on each
// resource of a role of the chart, and each role of Kubernetes that it binds, one of the logged requests must be one
// that no other right allows. Then each right is taken from its role in turn: asked about that request (a
// SubjectAccessReview with its account, verb, resource and name), the API server must allow it with the right and
// refuse it without. The behaviour that fails without is named, also on the page of rights. A right that is too much
// fails the test.
//
// TestEachFolderOfTheDaemonSetIsNeeded (internal/agent/command) does the same for the folders of the node that the
// agent's pod mounts: it runs the agent without each of /sys, /proc, /sys/fs/cgroup, /var/lib/kubelet,
// /var/lib/tenon-agent and /run/tenon, and names what fails. NRI's folder, device-plugins and /run/cdi need a runtime
// or devices: tests of level 3, which it names, take those away. A test of internal/agent/inject takes /etc/cdi away.
package system

// Package system tests the whole of Tenon on a local cluster: a real control plane, scheduler replicas that are killed,
// the manager, and simulated machines that run the real agent.
//
// It needs the built binary: TENON_BIN=bin/tenon go test ./test/system. `make test` builds it first.
package system

//go:build e2e_node

package runtime

import (
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// Nothing notifies the agent of containers: it finds them by itself, and everything ends where it must.
func TestTheReconcilerAloneIsEnough(t *testing.T) {
	w := newWorld(t, byReconcile, options{})
	_, plain := w.run(pod("plain"))
	w.wants(plain, allCPUs)
	b, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), onNode(exclusive, 0)))
	w.wants(bound, exclusive)
	w.wants(plain, shared)
	w.pause(b, exclusive)
	w.file(bound.Group, "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000")
	w.condition("tenon.sh/EnforcementDegraded", "True", "NoTransport")
}

func TestAHandThatChangesASetIsUndone(t *testing.T) {
	for _, route := range append(paths, byReconcile) {
		t.Run(string(route), func(t *testing.T) {
			w := newWorld(t, route, options{})
			_, plain := w.run(pod("plain"))
			_, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive)))
			w.wants(bound, exclusive)
			w.wants(plain, shared)
			testkit.Check(t, w.s.Cgroups().Write(plain.Group, "cpuset.cpus", exclusive))
			w.event("plain", "Drifted")
			w.wants(plain, shared)
			w.event("plain", "DriftRepaired")
			if n, err := w.agent.Metric("tenon_agent_drift_total"); n < 1 || err != nil {
				t.Errorf("tenon_agent_drift_total is %v, %v; want 1 or more", n, err)
			}
		})
	}
}

package app

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// TestQuotasAreWrittenByTheLeaderAlone, and every replica answers about them: what does not say that it needs no leader
// is started once the lease is won.
//
// Q7: two replicas write before one is elected.
func TestQuotasAreWrittenByTheLeaderAlone(t *testing.T) {
	t.Parallel()
	needsLeader := func(r manager.Runnable) bool {
		l, says := r.(manager.LeaderElectionRunnable)
		return !says || l.NeedLeaderElection()
	}
	if !needsLeader(&leading{}) {
		t.Error("the controllers that write quotas and evict pods run without the lease")
	}
	if needsLeader(&cluster{}) {
		t.Error("the informers of a replica's webhooks wait for the lease")
	}
}

package place_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/place"
)

// TestNoOtherPodGetsWhatAPromiseHolds: a pod that fits a node beside the promise of another one leaves that other one
// its room: where the other one fitted before, it fits afterwards too, and where it did not, no CPU that was free is
// given away. Three kinds of pods can lose their room, as what they hold is less than what they need to come: those
// that demand NUMA nodes without pods of the other kind, those whose shared pool must hold their limit, and those that
// get CPUs from the kubelet, which uses the CPUs of init containers again.
func TestNoOtherPodGetsWhatAPromiseHolds(t *testing.T) {
	t.Parallel()
	kept, waiting := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		v, promised, other := drawView(t), drawRequest(t), drawRequest(t)
		promised.UID, promised.Name = "promised", "promised"
		held, ok := place.Promise(v, promised)
		if !ok || promised.Kubelet.CPUs() > 0 || promised.NUMAExclusive == place.RequireNUMAExclusive ||
			promised.ConstrainedBurst {
			return
		}
		offer, reason := place.Try(v.With(held), other)
		if !reason.OK() {
			return
		}
		after := v.With(offer.Entry)
		if place.Fits(v, promised).OK() {
			kept++
			if reason := place.Fits(after, promised); !reason.OK() {
				t.Fatalf("promised %+v, given to another pod %+v: %+v", held, offer.Entry, reason)
			}
			return
		}
		waiting++
		if now := after.Allocatable(); held.CPUList != "" && now != v.Allocatable() {
			t.Fatalf("CPUs %v were free for a pod that waits, and are %v: %+v", v.Allocatable(), now, offer.Entry)
		}
	})
	t.Logf("%d pods kept their room, %d waited for more", kept, waiting)
	if kept == 0 || waiting == 0 {
		t.Error("the random cases are too few")
	}
}

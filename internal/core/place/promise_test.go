package place_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
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
		free, now := v.Allocatable(), after.Allocatable()
		switch promised.Isolated {
		case place.RequireIsolated:
			free, now = v.FreeIsolated(), after.FreeIsolated()
		case place.PreferIsolated:
			free, now = free.Union(v.FreeIsolated()), now.Union(after.FreeIsolated())
		}
		if held.CPUList != "" && now != free {
			t.Fatalf("CPUs %v were free for a pod that waits, and are %v: %+v", free, now, offer.Entry)
		}
	})
	t.Logf("%d pods kept their room, %d waited for more", kept, waiting)
	if kept == 0 || waiting == 0 {
		t.Error("the random cases are too few")
	}
}

// TestAPromiseOfAKubeletHoldsItsFreeCPUs: the pod waits for more than the kubelet has left.
func TestAPromiseOfAKubeletHoldsItsFreeCPUs(t *testing.T) {
	t.Parallel()
	l := ledger.New(guardedFacts(t, 2, ledger.Follow, hint.None))
	offer, reason := place.Try(l.View(), pinnedRequest("held", 9, 1))
	if err := l.Commit(offer); err != nil || !reason.OK() {
		t.Fatalf("%v, %+v", err, reason)
	}
	r := pinnedRequest("new", 9, 1)
	held, ok := place.Promise(l.View(), r)
	if !ok || held.Guest == nil || held.CPUList != "" {
		t.Fatalf("the promise is %t, %+v; want what the kubelet gives", ok, held)
	}
	free := l.View().Machine().FormatList(l.View().State().Free)
	got := held.Guest.Prediction.Held
	if want := []kubelet.Held{{Container: r.Kubelet.Containers[0].Name, CPUList: free}}; !slices.EqualFunc(got, want,
		func(a, b kubelet.Held) bool { return a.Container == b.Container && a.CPUList == b.CPUList }) || free == "" {
		t.Errorf("it holds %+v, want %+v", got, want)
	}
	if reason := place.Fits(l.View().With(held), pinnedRequest("other", 1, 1)); reason.OK() {
		t.Error("another pod gets a CPU of the promise")
	}
}

// TestAPromiseOfOursHoldsCPUs: a kubelet that is known gives out none there.
func TestAPromiseOfOursHoldsCPUs(t *testing.T) {
	t.Parallel()
	v := ledger.New(guardedFacts(t, 2, ledger.Own, hint.None)).View()
	r := pinnedRequest("new", 40, 1)
	r.Role = qos.Exclusive
	held, ok := place.Promise(v, r)
	if free := v.Machine().FormatList(v.State().Free); !ok || held.Guest != nil || held.CPUList != free || free == "" {
		t.Errorf("the promise is %t, %+v; want CPUs %s", ok, held, free)
	}
}

// TestNoOtherPodGetsTheDevicesOfAPromise: where a pod with GPUs fits, it still fits by any set of GPUs and any NUMA
// nodes after another pod came that fits beside its promise; and where it waits, no other pod gets a GPU.
func TestNoOtherPodGetsTheDevicesOfAPromise(t *testing.T) {
	t.Parallel()
	kept, waiting := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := drawRoom(t)
		r.facts.Devices = cards(t, r.facts.Machine, r.numa, r.broken...)
		draw := func() *place.Request {
			return askingForGPUs(t, rapid.IntRange(1, 4).Draw(t, "CPUs"), rapid.IntRange(1, 4).Draw(t, "memory asked"),
				rapid.IntRange(1, 3).Draw(t, "count"), rapid.SampledFrom([]int{40, 70, 100}).Draw(t, "percent"))
		}
		v, promised, other := ledger.New(r.facts, r.entries...).View(), draw(), draw()
		promised.UID, promised.Name = "promised", "promised"
		held, ok := place.Promise(v, promised)
		if !ok {
			t.Fatalf("no promise for %+v", promised)
		}
		fits := place.Fits(v, promised).OK()
		offer, reason := place.Try(v.With(held), other)
		switch {
		case !fits && reason.OK():
			t.Fatalf("%+v is given to another pod while %+v waits", offer.Entry, promised)
		case !fits:
			waiting++
		case reason.OK():
			kept++
			if reason := place.Fits(v.With(offer.Entry), promised); !reason.OK() {
				t.Fatalf("promised %+v, given to another pod %+v: %+v", held, offer.Entry, reason)
			}
		}
	})
	t.Logf("%d pods kept their room, %d waited for more", kept, waiting)
	if kept == 0 || waiting == 0 {
		t.Error("the random cases are too few")
	}
}

package placement

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// aCard returns accounts where a driver publishes a card of node n, and a claim of that card.
func aCard() (*kube.Store, *kube.Claims, *resourcev1.ResourceClaim) {
	store := kube.NewStore()
	claims := kube.NewClaims(store)
	s := &resourcev1.ResourceSlice{}
	s.Name, s.Spec.Driver, s.Spec.Pool.Name, s.Spec.NodeName = "s", "d", "p", new("n")
	id := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"uuid": {StringValue: new("GPU-a")}}
	s.Spec.Devices = []resourcev1.Device{{Name: "x", Attributes: id}}
	claims.PutSlice(s)
	claim := &resourcev1.ResourceClaim{}
	claim.Name, claim.UID = "c", "c"
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	claim.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
		{Driver: "d", Pool: "p", Device: "x"},
	}
	return store, claims, claim
}

// TestATrialFollowsTheClaimsOfItsNodes: what claims get and lose while it lasts, beside what it changes itself.
func TestATrialFollowsTheClaimsOfItsNodes(t *testing.T) {
	t.Parallel()
	store, claims, claim := aCard()
	trial := NewTrial(store)
	has := func(uid string) bool { _, known := trial.Account("n").Entry(uid); return known }
	trial.FollowClaims("n")
	trial.Put("n", ledger.Entry{UID: "pod"})
	claims.Pend(claim)
	if has("claim/c") {
		t.Error("the trial has followed by itself: its account is not its own")
	}
	if trial.FollowClaims("n"); !has("claim/c") || !has("pod") {
		t.Errorf("the claim is there: %t, the pod: %t", has("claim/c"), has("pod"))
	}
	claims.Unpend("c")
	if trial.FollowClaims("n"); has("claim/c") || !has("pod") {
		t.Errorf("the claim is there: %t, the pod: %t", has("claim/c"), has("pod"))
	}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{UID: "user"}}
	claims.PutClaim(claim)
	for _, step := range []struct {
		do   func()
		want bool
	}{
		{func() { trial.FollowClaims("n") }, true},
		{func() { trial.Leave("n", "user") }, false},
		{func() { trial.FollowClaims("n") }, false}, // it ends with its pod, which has left in the trial alone
		{func() { trial.Return("n", "user") }, true},
		{func() { trial.FollowClaims("n") }, true},
	} {
		if step.do(); has("claim/c") != step.want || !has("pod") {
			t.Errorf("the claim is there: %t, want %t; the pod: %t", has("claim/c"), step.want, has("pod"))
		}
	}
}

// TestADryRunTakesAClaimWithItsLastPod: a victim takes it along, and one that is spared brings it back.
func TestADryRunTakesAClaimWithItsLastPod(t *testing.T) {
	t.Parallel()
	store, claims, claim := aCard()
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{UID: "a"}, {UID: "b"}}
	claims.PutClaim(claim)
	p, cs, node := &Plugin{decision: &decision{store: store}}, framework.NewCycleState(), framework.NewNodeInfo()
	node.SetNode(object.Node("n", nil))
	cs.Write(stateKey, &Cycle{store: store})
	for _, step := range []struct {
		do   func(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status
		uid  string
		want string
	}{
		{p.RemovePod, "a", "[b]"},
		{p.RemovePod, "b", "[]"},
		{p.AddPod, "a", "[a]"},
		{p.AddPod, "b", "[a b]"},
	} {
		pod, err := framework.NewPodInfo(object.Pod(step.uid, object.UID(step.uid)))
		testkit.Check(t, err)
		status := step.do(t.Context(), cs, nil, pod, node)
		e, _ := Read(cs).View("n").Entry("claim/c")
		if got := fmt.Sprint(e.Users); !status.IsSuccess() || got != step.want {
			t.Errorf("after %s: pods %s use the claim, want %s; %v", step.uid, got, step.want, status)
		}
	}
}

// TestAClaimThatLosesItsDevicesWakesPods that their node would accept; no other change of a claim does.
func TestAClaimThatLosesItsDevicesWakesPods(t *testing.T) {
	t.Parallel()
	on := func(node string) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{}
		c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}}
		return c
	}
	without := &resourcev1.ResourceClaim{}
	store := kube.NewStore()
	store.PutNode(object.Node("n", nil, "cpu", "8"))
	d := &decision{
		store: store, args: convert.DefaultArgs, requests: lru.New(1),
		tracker: follow.NewTracker(store, nil, time.Now),
	}
	for name, c := range map[string]struct {
		was, now any
		want     fwk.QueueingHint
	}{
		"deallocated":                 {on("n"), without, fwk.Queue},
		"deleted":                     {on("n"), nil, fwk.Queue},
		"deleted on a node that left": {on("gone"), nil, fwk.QueueSkip},
		"allocated":                   {without, on("n"), fwk.QueueSkip},
		"still allocated":             {on("n"), on("n"), fwk.QueueSkip},
		"deleted without devices":     {without, nil, fwk.QueueSkip},
		"another object":              {1, nil, fwk.QueueSkip},
	} {
		got, err := d.afterClaim(klog.Background(), object.Pod("p"), c.was, c.now)
		if got != c.want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, c.want)
		}
	}
}

package claims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/claim"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// claimed are the claims and classes of a case.
type claimed struct {
	*tracker
}

func (c claimed) ResourceClaims() fwk.ResourceClaimTracker { return c }

// List returns a claim with device d0, and administrators' access to d1.
func (claimed) List() ([]*resourcev1.ResourceClaim, error) {
	c := newClaim("old", false)
	c.Namespace = "ns"
	c.Status.Allocation = &resourcev1.AllocationResult{}
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
		{Driver: "x", Pool: "n", Device: "d0"}, {Driver: "x", Pool: "n", Device: "d1", AdminAccess: new(true)},
	}
	return []*resourcev1.ResourceClaim{c}, nil
}

func (claimed) DeviceClasses() fwk.DeviceClassLister { return classesOf{} }

// refusal returns what is said of a situation.
func (s *situation) refusal() *unmet {
	q, claims := s.question()
	known := cluster{
		claims: map[string]*resourcev1.ResourceClaim{}, pending: map[types.UID]*resourcev1.AllocationResult{},
	}
	q.dra = claimed{&tracker{cluster: known}}
	q.claims = claims
	return &unmet{q.plan, &corev1.Pod{}, q.node, notAllocated}
}

// TestCountsAgreeWithTheAllocator: one device of one request is found where one is counted as free, and not where none
// is. Each device is counted once.
func TestCountsAgreeWithTheAllocator(t *testing.T) {
	t.Parallel()
	found, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t)
		model := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "one model")
		s.claims, s.match = [][]want{{{model: model, count: 1}}}, false
		u := s.refusal()
		q := &question{plan: u.plan, node: u.node, site: u.siteOf("n", nil), state: u.state}
		fits := len(q.first(context.Background(), u.claims)) > 0
		f := u.Finding()
		if fits == (f.Asked > 0) {
			t.Fatalf("the allocator finds a device: %t, the text is %q\n%+v", fits, f.Detail, s.cards)
		}
		if fits {
			found++
		} else {
			refused++
		}
		list := u.requests(u.claims[0], &u.claims[0].Spec.Devices.Requests[0], nil)
		if len(list) != 1 || len(list[0].Devices) != len(s.cards) {
			t.Fatalf("%d cards are %+v", len(s.cards), list)
		}
	})
	if found == 0 || refused == 0 {
		t.Errorf("%d found, %d refused: the cases show nothing", found, refused)
	}
}

// TestWhatKeepsDevicesFromARequest has a case of each cause.
func TestWhatKeepsDevicesFromARequest(t *testing.T) {
	t.Parallel()
	whole := situation{cards: []card{{model: "a", chip: -1}, {model: "b", chip: -1}}, claims: [][]want{{{count: 3}}}}
	for name, tt := range map[string]struct {
		s      situation
		change func(u *unmet)
		want   string
	}{
		"a selector": {
			situation{cards: whole.cards, claims: [][]want{{{model: "c", count: 1}}}},
			nil,
			"2 fail selector `device.attributes['x'].model == 'c'`, 0 free",
		},
		"a long selector": {
			situation{cards: whole.cards, claims: [][]want{{{model: strings.Repeat("c", 99), count: 1}}}},
			nil,
			"2 fail selector `device.attributes['x'].model == '" + strings.Repeat("c", 47) + "…`, 0 free",
		},
		"a selector that fails at run time": {
			situation{cards: whole.cards, claims: [][]want{{{model: "c", count: 1}}}}, func(u *unmet) {
				c := u.claims[0].Spec.Devices.Requests[0].Exactly.Selectors[0].CEL
				c.Expression = "device.attributes['y'].z == 1"
			}, "2 fail selector `device.attributes['y'].z == 1`, 0 free",
		},
		"another claim": {
			situation{
				cards: []card{{chip: -1, allocated: true}, {chip: -1, allocated: true}}, claims: [][]want{{{count: 1}}},
			}, nil, "2 allocated to a claim, ns/old, 0 free",
		},
		"an administrator": {
			situation{cards: []card{{chip: -1, allocated: true}}, claims: [][]want{{{count: 2}}}}, func(u *unmet) {
				u.claims[0].Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)
			}, "devices of class any: 1 free",
		},
		"counters": {
			situation{
				cards:  []card{{chip: 0, uses: 5, allocated: true}, {chip: 0, uses: 4}, {chip: 0, uses: 3}},
				claims: [][]want{{{count: 2}}},
			}, nil, "1 allocated to ns/old, 1 with too little counter chip0/memory, 1 free",
		},
		"a capacity": {whole, func(u *unmet) {
			u.slices[0].Spec.Devices[0].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				"memory": {Value: resource.MustParse("40Gi")},
			}
			u.claims[0].Spec.Devices.Requests[0].Exactly.Capacity = &resourcev1.CapacityRequirements{
				Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("40Gi")},
			}
		}, "1 with too little capacity memory, 1 free"},
		"a taint": {whole, func(u *unmet) {
			u.slices[0].Spec.Devices[0].Taints = []resourcev1.DeviceTaint{
				{Key: "ok", Effect: resourcev1.DeviceTaintEffectNone},
				{Key: "k", Value: "v", Effect: resourcev1.DeviceTaintEffectNoSchedule},
			}
			u.slices[0].Spec.Devices[1].Taints = []resourcev1.DeviceTaint{
				{Key: "e", Effect: resourcev1.DeviceTaintEffectNoExecute},
			}
			u.claims[0].Spec.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{
				{Key: "e", Operator: resourcev1.DeviceTolerationOpExists},
			}
		}, "1 tainted k=v:NoSchedule, 1 free"},
		"a pool without one of its slices": {
			whole, func(u *unmet) { u.slices = u.slices[:1] },
			"2 in incomplete or invalid pool x/n, 0 free",
		},
		"a pool with a double name": {whole, func(u *unmet) {
			u.slices[0].Spec.Devices[1].Name = "d0"
		}, "2 in incomplete or invalid pool x/n, 0 free"},
		"an older generation": {whole, func(u *unmet) {
			older := u.slices[0].DeepCopy()
			older.Spec.Pool.Generation = 0
			u.slices = append(u.slices, older)
		}, "of 2 devices of class any: 2 free"},
		"another node": {
			whole, func(u *unmet) { u.slices[0].Spec.NodeName = new("m") },
			"of which the node has no device",
		},
		"devices of other nodes": {whole, func(u *unmet) {
			u.slices[0].Spec.NodeName, u.slices[0].Spec.PerDeviceNodeSelection = nil, new(true)
			u.slices[0].Spec.Devices[0].NodeName = new("m")
			u.slices[0].Spec.Devices[1].AllNodes = new(true)
		}, "of 1 devices of class any: 1 free"},
		"a constraint": {
			situation{
				cards: []card{{chip: -1}, {chip: -1, numa: 1}}, claims: [][]want{{{count: 2}}}, match: true,
			}, nil, "2 free; no set of free devices satisfies matchAttribute x/numaNode",
		},
		"alternatives": {
			situation{cards: whole.cards, claims: [][]want{{{model: "a", then: "b", count: 2}}}},
			nil,
			"'a'`, 1 free; c0/r0/second requests 2 of 2 devices of class any: 1 fail selector " +
				"`device.attributes['x'].model == 'b'`, 1 free",
		},
		"a claim that is allocated": {whole, func(u *unmet) {
			u.claims[0].Status.Allocation = &resourcev1.AllocationResult{}
		}, "no set of free devices satisfies all requests together"},
	} {
		u := tt.s.refusal()
		if tt.change != nil {
			tt.change(u)
		}
		if f := u.Finding(); !strings.HasSuffix(f.Detail, tt.want) || f.Code != why.InsufficientClaimDevices {
			t.Errorf("%s: got %v %q, want …%q", name, f.Code, f.Detail, tt.want)
		}
	}
}

// TestARefusalNamesThePodsWithCards, and keeps any other refusal as it is.
func TestARefusalNamesThePodsWithCards(t *testing.T) {
	t.Parallel()
	store, known := twoCards()
	view := store.View("n").With(half("w", "GPU-a"))
	s := &situation{cards: []card{{chip: -1}, {chip: -1}}, claims: [][]want{{{count: 2}}}}
	u := s.refusal()
	for _, slice := range u.slices {
		slice.Spec.Pool.Name = "n/pool"
	}
	u.dra = Keep(u.dra, known, func(string) *ledger.View { return view })
	full := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, notAllocated)
	node := framework.NewNodeInfo()
	node.SetNode(object.Node("n", nil))
	got := u.explained(full, u.pod, node.Node())
	if got.Message() != notAllocated || got.Code() != full.Code() {
		t.Errorf("got %v", got)
	}
	var refused *unmet
	if !errors.As(got.AsError(), &refused) {
		t.Fatalf("got %T", got.AsError())
	}
	f := refused.Finding()
	want := "c0/r0 requests 2 of 2 devices of class any: 1 held outside DRA by ns/w, 1 free"
	if f.Code != why.ClaimDevicesHeld || f.Detail != want || f.Asked != 2 || f.Free != 1 {
		t.Errorf("the finding is %+v, want %q", f, want)
	}
	other := fwk.NewStatus(fwk.Unschedulable, "something else")
	if got := u.explained(other, u.pod, node.Node()); got != other {
		t.Errorf("another refusal became %v", got)
	}
	if got := u.explained(nil, u.pod, node.Node()); got != nil {
		t.Errorf("a node that fits is refused: %v", got)
	}
	if b := u.bar(&pool{}, u.slices[0], &u.slices[0].Spec.Devices[0], idOf(&known.Published()["n"][0].Hardware),
		&resourcev1.ExactDeviceRequest{}, "ns/w"); b.Bar != claim.HeldOutside {
		t.Errorf("got %s", fmt.Sprint(b))
	}
}

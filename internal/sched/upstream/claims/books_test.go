package claims

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// tracker is a cluster with claims that come and go; fails ends reading what is allocated.
type tracker struct {
	cluster
	fails error
}

func (c *tracker) ResourceClaims() fwk.ResourceClaimTracker { return c }

func (c *tracker) GatherAllocatedState() (*structured.AllocatedState, error) {
	return &structured.AllocatedState{
		AllocatedDevices:         sets.New(structured.MakeDeviceID("x", "n/pool", "other")),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}, c.fails
}

func (c *tracker) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	return sets.New(structured.MakeDeviceID("x", "n/pool", "other")), c.fails
}

func (c *tracker) SignalClaimPendingAllocation(uid types.UID, claim *resourcev1.ResourceClaim) error {
	if c.fails == nil && c.pending[uid] == nil {
		c.pending[uid] = claim.Status.Allocation
	}
	return c.fails
}

func (c *tracker) AssumeClaimAfterAPICall(claim *resourcev1.ResourceClaim) error {
	if c.fails == nil {
		c.claims[claim.Name] = claim
	}
	return c.fails
}

func (c *tracker) AssumedClaimRestore(_, name string) { c.claims[name] = newClaim(name, false) }

// twoCards are the accounts of node n with cards GPU-a and GPU-b, which driver x publishes as d0 and d1.
func twoCards() (*kube.Store, *kube.Claims) {
	store := kube.NewStore()
	claims := kube.NewClaims(store)
	d := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec.Driver, s.Spec.NodeName, s.Spec.Pool.Name = "x", new("n"), "n/pool"
	for i, id := range []string{"GPU-a", "GPU-b"} {
		d.Spec.Devices = append(d.Spec.Devices, devicev1alpha1.DeviceInfo{
			Type: "gpu", ID: id, Minor: new(int32(i)), Health: true,
		})
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: []string{"d0", "d1"}[i], Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"uuid": {StringValue: &id},
			},
		})
	}
	store.PutNode(object.Node("n", nil, "cpu", "8"))
	store.PutDevice(d)
	claims.PutSlice(s)
	return store, claims
}

// half is a pod with half of a card.
func half(name, id string) ledger.Entry {
	return ledger.Entry{UID: name, Namespace: "ns", Name: name, Devices: []device.Grant{{
		Type: device.GPU, ID: id, Amount: device.Vector{device.Cores: 50}, Ratio: 50,
	}}}
}

// promised is a claim that is to get a device.
func promised(name, device string) *resourcev1.ResourceClaim {
	c := newClaim(name, true)
	c.Namespace = "ns"
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
		{Request: "r", Driver: "x", Pool: "n/pool", Device: device},
	}
	return c
}

// TestDevicesWhoseCardsPodsHaveAreAllocated, in the accounts of the nodes and in those of an attempt.
func TestDevicesWhoseCardsPodsHaveAreAllocated(t *testing.T) {
	t.Parallel()
	store, known := twoCards()
	view := store.View("n")
	c := &tracker{}
	b := Keep(c, known, func(string) *ledger.View { return view })
	allocated := func() (ids []string) {
		state, err := b.ResourceClaims().GatherAllocatedState()
		listed, other := b.ResourceClaims().ListAllAllocatedDevices()
		if err := errors.Join(err, other); err != nil || !listed.Equal(state.AllocatedDevices) {
			t.Errorf("two answers: %v, %v, %v", state.AllocatedDevices, listed, err)
		}
		for id := range state.AllocatedDevices {
			ids = append(ids, strings.TrimPrefix(id.String(), "x/n/pool/"))
		}
		slices.Sort(ids)
		return ids
	}
	for name, tt := range map[string]struct {
		change func(v *ledger.View) *ledger.View
		want   []string
		pods   []string
	}{
		"nothing": {func(v *ledger.View) *ledger.View { return v }, []string{"other"}, nil},
		"a share": {
			func(v *ledger.View) *ledger.View { return v.With(half("p", "GPU-b")) },
			[]string{"d1", "other"},
			[]string{"ns/p"},
		},
		"a pod with any": {
			func(v *ledger.View) *ledger.View { return v.With(ledger.Entry{UID: "u", Unallocated: true}) },
			[]string{"d0", "d1", "other"},
			[]string{"a pod whose devices are not known", "a pod whose devices are not known"},
		},
		"a claim": {
			func(v *ledger.View) *ledger.View { return v.With(known.Entries(promised("c", "d0"))["n"]) },
			[]string{"other"},
			nil,
		},
		"a claim with any": {
			func(v *ledger.View) *ledger.View { return v.With(ledger.Entry{UID: "claim/c", Unallocated: true}) },
			[]string{"other"},
			nil,
		},
		"a node that is gone": {func(*ledger.View) *ledger.View { return nil }, []string{"other"}, nil},
	} {
		trial := tt.change(store.View("n"))
		b.On(func(string) *ledger.View { return trial }, func() {
			if diff := cmp.Diff(tt.want, allocated()); diff != "" {
				t.Errorf("an attempt with %s (-want +got):\n%s", name, diff)
			}
		})
		if diff := cmp.Diff([]string{"other"}, allocated()); diff != "" {
			t.Errorf("after the attempt with %s (-want +got):\n%s", name, diff)
		}
		view = trial
		if diff := cmp.Diff(tt.want, allocated()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if held := len(tt.pods) > 0; b.AnyHeld() != held {
			t.Errorf("%s: a pod has a card: %t", name, !held)
		}
		if _, pods := b.Held("n"); !slices.Equal(pods, tt.pods) {
			t.Errorf("%s: held by %q, want %q", name, pods, tt.pods)
		}
		view = store.View("n")
	}
	if (*Books)(nil).AnyHeld() {
		t.Error("pods have cards where no accounts are read")
	}
	c.fails = errors.New("conflicting modification")
	if _, err := b.ResourceClaims().GatherAllocatedState(); !errors.Is(err, c.fails) {
		t.Errorf("got %v: the plugin tries again only after this error", err)
	}
	if _, err := b.ResourceClaims().ListAllAllocatedDevices(); !errors.Is(err, c.fails) {
		t.Errorf("got %v", err)
	}
}

// TestALostDeviceIsListedBesideOthersOfItsPool: driver x has published d of pool p on node n. Slices are
// NAME/POOL/GENERATION/NODE/DEVICES.
func TestALostDeviceIsListedBesideOthersOfItsPool(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		slices []string
		want   int
	}{
		"no slice":                {nil, -1},
		"one":                     {[]string{"a/p/1/n/1"}, 0},
		"the newest generation":   {[]string{"a/p/1/n/1", "b/p/2/n/1", "c/p/1/n/1"}, 1},
		"the first by name":       {[]string{"c/p/1/n/1", "a/p/1/n/1", "b/p/1/n/1"}, 1},
		"one with devices":        {[]string{"a/p/1/n/0", "b/p/1/n/1"}, 1},
		"none of another pool":    {[]string{"a/q/1/n/1"}, -1},
		"none of another node":    {[]string{"a/p/1/m/1", "b/p/1//1"}, -1},
		"counters without device": {[]string{"a/p/1/n/0"}, -1},
	} {
		var list []*resourcev1.ResourceSlice
		for _, text := range tt.slices {
			fields := strings.Split(text, "/")
			s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fields[0]}}
			s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Pool.Generation = "x", fields[1], int64(fields[2][0])
			if fields[3] != "" {
				s.Spec.NodeName = &fields[3]
			}
			s.Spec.Devices = make([]resourcev1.Device, fields[4][0]-'0')
			list = append(list, s)
		}
		lost := &kube.LostDevice{Driver: "x", Pool: "p", NodeName: new("n"), Device: &resourcev1.Device{Name: "d"}}
		if got := besideLost(list, lost); got != tt.want {
			t.Errorf("%s: got slice %d, want %d", name, got, tt.want)
		}
	}
	other := &kube.LostDevice{Driver: "y", Pool: "p", NodeName: new("n")}
	slice := &resourcev1.ResourceSlice{}
	slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.NodeName = "x", "p", new("n")
	slice.Spec.Devices = make([]resourcev1.Device, 1)
	if got := besideLost([]*resourcev1.ResourceSlice{slice}, other); got >= 0 {
		t.Error("a device is listed beside those of another driver")
	}
}

// TestNegativeSharesLowerNoSum: whatever a claim says, its other shares count.
func TestNegativeSharesLowerNoSum(t *testing.T) {
	t.Parallel()
	share := func(amount string) resourcev1.DeviceRequestAllocationResult {
		return resourcev1.DeviceRequestAllocationResult{
			Driver: "x", Pool: "n/pool", Device: "d0", ShareID: new(types.UID("s")),
			ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(amount)},
		}
	}
	whole, admin := share("-3"), share("-5")
	whole.ShareID, admin.AdminAccess = nil, new(true)
	c := promised("c", "d0")
	c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
		share("10"), share("-40"), whole, admin,
	}
	id := structured.MakeDeviceID("x", "n/pool", "d0")
	for name, sum := range map[string]int64{"as they are added": 10 - 40, "where the sum was forgotten": 0} {
		sums := structured.NewConsumedCapacityCollection()
		if sum != 0 {
			sums[id] = structured.ConsumedCapacity{"memory": resource.NewQuantity(sum, resource.DecimalSI)}
		}
		ignoreNegative(sums, c)
		if got := sums[id]["memory"].Value(); got != sum+40 {
			t.Errorf("%s: got %d, want %d", name, got, sum+40)
		}
	}
}

// TestPromisesAreInTheAccounts until they are taken back, or written.
func TestPromisesAreInTheAccounts(t *testing.T) {
	t.Parallel()
	store, known := twoCards()
	c := &tracker{cluster: cluster{
		claims: map[string]*resourcev1.ResourceClaim{}, pending: map[types.UID]*resourcev1.AllocationResult{},
	}}
	claims := Keep(c, known, store.View).ResourceClaims()
	has := func(step string, want ...string) {
		t.Helper()
		var got []string
		v := store.View("n")
		for e := range v.Entries() {
			for _, g := range v.GrantsOf(&e) {
				got = append(got, g.ID)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	first := promised("c", "d0")
	_ = claims.SignalClaimPendingAllocation("c", first)
	has("promised", "GPU-a")
	_ = claims.SignalClaimPendingAllocation("c", promised("c", "d1"))
	has("promised to a sibling too, who gets what the first got", "GPU-a")
	claims.MaybeRemoveClaimPendingAllocation("c", false)
	has("taken back")
	_ = claims.SignalClaimPendingAllocation("c", first)
	_ = claims.AssumeClaimAfterAPICall(first)
	claims.MaybeRemoveClaimPendingAllocation("c", true)
	has("written", "GPU-a")
	claims.AssumedClaimRestore("ns", "c")
	has("not written after all")
	c.fails = errors.New("gone")
	_ = claims.SignalClaimPendingAllocation("c", first)
	_ = claims.AssumeClaimAfterAPICall(first)
	has("nothing was promised or written")
}

// verdict stands for the plugin: its Filter and Reserve answer what the test sets.
type verdict struct {
	dynamic
	filter, reserve *fwk.Status
	promise         func()
}

func (v *verdict) Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status {
	return v.filter
}

func (v *verdict) Reserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	if v.promise != nil {
		v.promise()
	}
	return v.reserve
}

// TestAPodDoesNotGetACardTwice: by its claim and by an annotation.
func TestAPodDoesNotGetACardTwice(t *testing.T) {
	t.Parallel()
	store, known := twoCards()
	p := sharingOf(&cluster{}, &dynamic{}, false)
	view := store.View
	p.books = Keep(&tracker{}, known, func(node string) *ledger.View { return view(node) })
	view = func(node string) *ledger.View { return store.View(node).With(half("p", "GPU-a")) }
	for name, tt := range map[string]struct {
		device string
		inner  *fwk.Status
		want   string
	}{
		"the card that the pod has": {
			"d0", nil, "device x/n/pool/d0, allocated to claim ns/c, is held outside DRA by ns/p",
		},
		"another card":       {"d1", nil, ""},
		"the plugin refuses": {"d0", fwk.NewStatus(fwk.Error, "its own"), "its own"},
	} {
		v := &verdict{reserve: tt.inner, promise: func() { known.Pend(promised("c", tt.device)) }}
		status := (&reserve{v, p}).Reserve(t.Context(), framework.NewCycleState(), member("alone"), "n")
		if status.Message() != tt.want {
			t.Errorf("%s: got %q, want %q", name, status.Message(), tt.want)
		}
		known.Unpend("c")
	}
}

// TestAQuestionChargesItsClaims to the accounts of the question alone, and refuses a card that a pod of it has.
func TestAQuestionChargesItsClaims(t *testing.T) {
	t.Parallel()
	store, known := twoCards()
	c := &tracker{cluster: cluster{
		claims: map[string]*resourcev1.ResourceClaim{}, pending: map[types.UID]*resourcev1.AllocationResult{},
	}}
	i := Imagine(c, known)
	v := store.View("n")
	put := func(_ string, e ledger.Entry) { v = v.With(e) }
	i.Reset(func(string) *ledger.View { return v })
	_ = i.ResourceClaims().SignalClaimPendingAllocation("c", promised("c", "d0"))
	if text := i.Charge(put); text != "" || len(slices.Collect(v.Entries())) != 1 {
		t.Errorf("got %q, %d entries", text, len(slices.Collect(v.Entries())))
	}
	for range store.View("n").Entries() {
		t.Error("the question has changed the accounts of the cluster")
	}
	v = v.With(half("p", "GPU-b"))
	state, err := i.ResourceClaims().GatherAllocatedState()
	if err != nil || !state.AllocatedDevices.Has(structured.MakeDeviceID("x", "n/pool", "d1")) {
		t.Errorf("a card of the question's pod is free: %v, %v", state, err)
	}
	_ = i.ResourceClaims().SignalClaimPendingAllocation("e", promised("e", "d1"))
	if text := i.Charge(put); text != "device x/n/pool/d1, allocated to claim ns/e, is held outside DRA by ns/p" {
		t.Errorf("got %q", text)
	}
	i.Reset(store.View)
	charged := 0
	if text := i.Charge(func(string, ledger.Entry) { charged++ }); text != "" || charged != 0 {
		t.Errorf("the next question has %d claims of the last one: %q", charged, text)
	}
	if text := Imagine(nil, nil).Charge(nil); text != "" {
		t.Errorf("got %q", text)
	}
}

// TestWhatAnotherHasGatheredIsNotTaken: questions and pods that are bound gather from goroutines of their own.
func TestWhatAnotherHasGatheredIsNotTaken(t *testing.T) {
	t.Parallel()
	b := Keep(&tracker{}, kube.NewClaims(kube.NewStore()), nil)
	gather := func() *structured.AllocatedState {
		state, err := b.ResourceClaims().GatherAllocatedState()
		testkit.Check(t, err)
		return state
	}
	gather()
	if got := b.gathers(func() {}); got != nil {
		t.Errorf("nothing was gathered, got %v", got)
	}
	var own *structured.AllocatedState
	if got := b.gathers(func() { own = gather() }); got != own {
		t.Errorf("got %v, want what was gathered", got)
	}
	if got := b.gathers(func() { gather(); gather() }); got != nil {
		t.Errorf("two have gathered, got %v", got)
	}
	called := false
	if got := (*Books)(nil).gathers(func() { called = true }); got != nil || !called {
		t.Errorf("without Books: got %v, called %t", got, called)
	}
}

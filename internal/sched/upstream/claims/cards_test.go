package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// shop is a cluster whose claims have what they are allocated.
type shop struct {
	cluster
	slices []*resourcev1.ResourceSlice
	fails  error // ends reading what is allocated
}

func (s *shop) ResourceClaims() fwk.ResourceClaimTracker { return s }
func (s *shop) ResourceSlices() fwk.ResourceSliceLister  { return s }
func (*shop) DeviceClasses() fwk.DeviceClassLister       { return classesOf{} }

// DeviceClassResolver returns s, in which a class maps example.com/card.
func (s *shop) DeviceClassResolver() fwk.DeviceClassResolver { return s }

func (s *shop) GetDeviceClass(name corev1.ResourceName) *resourcev1.DeviceClass {
	if name != "example.com/card" {
		return nil
	}
	class, _ := classesOf{}.Get("all")
	return class
}

func (s *shop) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	return s.slices, nil
}

func (s *shop) GatherAllocatedState() (*structured.AllocatedState, error) {
	state := &structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, c := range s.claims {
		if c.Status.Allocation != nil {
			charge(state, c.Status.Allocation)
		}
	}
	return state, nil
}

func (s *shop) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	state, _ := s.GatherAllocatedState()
	return state.AllocatedDevices, s.fails
}

// shopping is the rest of pods that ask for devices without claims.
type shopping struct {
	alone
	asks map[types.UID]*place.Request
}

func (s shopping) AsksForDevices(pod *corev1.Pod) *place.Request { return s.asks[pod.UID] }

func (s shopping) Offered(_ fwk.CycleState, pod *corev1.Pod, _ string, v *ledger.View) (ledger.Entry, bool) {
	offer, reason := place.Try(v, s.asks[pod.UID])
	return offer.Entry, reason.OK()
}

// allocating is the state of upstream's plugin.
type allocating struct{ allocator structured.Allocator }

func (a *allocating) Clone() fwk.StateData { return a }

// skipping is upstream's plugin for a pod without claims of its own.
type skipping struct{ fwk.PreFilterPlugin }

func (skipping) PreFilter(_ context.Context, cs fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if asksForMapped((&shop{}).DeviceClassResolver(), pod) {
		cs.Write(pluginKey, &allocating{&chooser{}})
		return nil, nil
	}
	return nil, fwk.NewStatus(fwk.Skip)
}

// uses is what a pod has or asks for: numbers of cards by claims and for an extended resource, and percent of GPUs and
// of NICs without.
type uses struct {
	claims, mapped int
	gpus, nics     string
}

// TestCardsThatClaimsAndPodsShare: a node has three cards that its Device and a driver list. Pod old has some of them,
// and pod p is tried, where s0 and s1 start.
func TestCardsThatClaimsAndPodsShare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, p, s0, s1 uses
		goes, ahead    bool
		listed, fails  bool // listed: the driver does not say which cards its devices are
		contested      bool // a claim was given the card of old as well
		elsewhere      bool // p is tried on another node
		spare          bool // the first device is not a card
		taken          bool // another pod has got the card of old
		plugin         bool // a device plugin gives the extended resource
		want           string
	}{
		"enough for both":              {p: uses{gpus: "100"}, s0: uses{claims: 2}},
		"too few for a claim":          {p: uses{gpus: "200"}, s0: uses{claims: 2}, want: "s0"},
		"a share that a claim needs":   {p: uses{gpus: "50"}, s0: uses{claims: 3}, want: "s0"},
		"a claim that a pod needs":     {p: uses{claims: 2}, s0: uses{gpus: "200"}, want: "s0"},
		"a claim that a pod leaves":    {p: uses{claims: 1}, s0: uses{gpus: "200"}},
		"a pod without cards":          {s0: uses{claims: 3}},
		"too few beside a claim's":     {p: uses{gpus: "100"}, s0: uses{claims: 1}, s1: uses{claims: 2}, want: "s1"},
		"too few beside another pod's": {p: uses{claims: 1}, s0: uses{gpus: "100"}, s1: uses{gpus: "200"}, want: "s1"},
		"shares of one card": {
			p: uses{gpus: "50"}, s0: uses{gpus: "50"}, s1: uses{claims: 2},
		},
		"a NIC beside one that waits for a card": {
			old: uses{gpus: "200"}, p: uses{nics: "100"}, s0: uses{gpus: "200"},
		},
		"a NIC that one waits for with a card": {
			old: uses{gpus: "300"}, p: uses{nics: "50"}, s0: uses{gpus: "100", nics: "50"}, want: "s0",
		},
		"a card that one waits for": {
			old: uses{gpus: "200"}, p: uses{gpus: "100"}, s0: uses{gpus: "200"}, want: "s0",
		},
		"a claim's card that one waits for": {
			old: uses{gpus: "200"}, p: uses{claims: 1}, s0: uses{gpus: "200"}, want: "s0",
		},
		"a card and a claim beside one that waits for a NIC": {
			old: uses{nics: "100"}, p: uses{claims: 1, gpus: "100"}, s0: uses{nics: "100"},
		},
		"too few for an extended resource": {p: uses{gpus: "200"}, s0: uses{mapped: 2}, want: "s0"},
		"enough for an extended resource":  {p: uses{gpus: "100"}, s0: uses{mapped: 2}},
		"too few beside an extended resource": {
			p: uses{mapped: 2}, s0: uses{gpus: "200"}, want: "s0",
		},
		"enough beside an extended resource": {p: uses{mapped: 1}, s0: uses{gpus: "200"}},
		"an extended resource and a claim":   {p: uses{mapped: 2}, s0: uses{claims: 2}, want: "s0"},
		"a claim and an extended resource":   {p: uses{claims: 2}, s0: uses{mapped: 2}, want: "s0"},
		"a claim and an extended resource of a pod": {
			p: uses{claims: 1, mapped: 1}, s0: uses{claims: 2}, want: "s0",
		},
		"an extended resource beside cards": {p: uses{mapped: 2, gpus: "200"}, want: errBoth.detail},
		"more for an extended resource than a claim has": {
			p: uses{mapped: 33}, want: "requests for example.com/card must sum to at most 32, are 33",
		},
		"as many as a device plugin has":    {p: uses{mapped: 33}, plugin: true},
		"a device plugin's":                 {p: uses{mapped: 3}, s0: uses{gpus: "300"}, plugin: true},
		"a device plugin's for another":     {p: uses{gpus: "300"}, s0: uses{mapped: 3}, plugin: true},
		"one that starts with both":         {p: uses{gpus: "100"}, s0: uses{claims: 1, gpus: "200"}, want: "s0"},
		"both, and enough":                  {p: uses{claims: 1, gpus: "200"}},
		"both, and enough for either alone": {p: uses{claims: 2, gpus: "200"}, want: errBoth.detail},
		"both, beside one that starts":      {p: uses{claims: 1, gpus: "100"}, s0: uses{claims: 2}, want: "s0"},
		"old still has a card": {
			old: uses{gpus: "50"}, p: uses{gpus: "100"}, s0: uses{claims: 2}, want: "s0",
		},
		"old has left its share": {
			old: uses{gpus: "50"}, p: uses{gpus: "100"}, s0: uses{claims: 2}, goes: true,
		},
		"old has left its card to a pod": {
			old: uses{claims: 1}, p: uses{claims: 1}, s0: uses{gpus: "200"}, goes: true,
		},
		"old has left its card to a claim": {
			old: uses{claims: 1}, p: uses{gpus: "100"}, s0: uses{claims: 2}, goes: true, ahead: true,
		},
		"old has left what it had for an extended resource": {
			old: uses{mapped: 1}, p: uses{gpus: "100"}, s0: uses{claims: 2}, goes: true, ahead: true,
		},
		"old still has something for an extended resource": {
			old: uses{mapped: 1}, p: uses{gpus: "100"}, s0: uses{claims: 2}, want: "s0",
		},
		"what p has now is not for another one": {
			old: uses{gpus: "100"}, p: uses{claims: 1, gpus: "100"}, s0: uses{claims: 2}, goes: true, ahead: true,
			want: "s0",
		},
		"a claim beside cards that are not known": {p: uses{claims: 1}, s0: uses{gpus: "300"}, listed: true},
		"cards that only claims lack": {
			old: uses{gpus: "100"}, p: uses{claims: 2}, s0: uses{claims: 1}, goes: true,
		},
		"a device but no card": {p: uses{claims: 1}, s0: uses{gpus: "400"}, spare: true},
		"old has left a card that a pod has got": {
			old: uses{claims: 1}, p: uses{claims: 2}, s0: uses{claims: 1}, goes: true, taken: true, want: "s0",
		},
		"a node without cards": {p: uses{gpus: "100"}, s0: uses{claims: 2}, elsewhere: true},
		"old has left a card that a claim has, too": {
			old: uses{gpus: "100"}, p: uses{claims: 1}, s0: uses{claims: 2}, goes: true, contested: true, want: "s0",
		},
		"cards that are not known": {p: uses{gpus: "300"}, s0: uses{claims: 3}, listed: true},
		"claims that change, and old stays": {
			old: uses{gpus: "100"}, p: uses{claims: 1}, s0: uses{claims: 2}, goes: true, fails: true, want: "s0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &shop{cluster: cluster{
				claims: map[string]*resourcev1.ResourceClaim{}, pending: map[types.UID]*resourcev1.AllocationResult{},
			}}
			rest := shopping{asks: map[types.UID]*place.Request{}}
			store := kube.NewStore()
			known := kube.NewClaims(store)
			d := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
				annotation.DeviceModeKey: annotation.DeviceOwn,
			}}}
			cards := []card{{chip: -1}, {chip: -1}, {chip: -1}}
			if c.spare {
				cards = append(cards, card{chip: -1})
			}
			s.slices, _, _ = (&situation{cards: cards}).objects()
			slice := s.slices[0]
			for i := range slice.Spec.Devices {
				id := fmt.Sprint("GPU-", i)
				if c.spare && i == 0 {
					continue
				}
				d.Spec.Devices = append(d.Spec.Devices, devicev1alpha1.DeviceInfo{
					Type: "gpu", ID: id, Minor: new(int32(i)), Health: true, Resources: object.List(
						"koordinator.sh/gpu-core", "100", "koordinator.sh/gpu-memory-ratio", "100",
						"koordinator.sh/gpu-memory", "80Gi"),
				})
				if !c.listed {
					slice.Spec.Devices[i].Attributes["uuid"] = resourcev1.DeviceAttribute{StringValue: &id}
				}
			}
			d.Spec.Devices = append(d.Spec.Devices, devicev1alpha1.DeviceInfo{
				Type: "rdma", ID: "0000:01:00.0", Health: true, Resources: object.List("koordinator.sh/rdma", "100"),
			})
			store.PutNode(object.Node("n", nil, "cpu", "8"))
			store.PutDevice(d)
			known.PutSlice(slice)
			using := func(name string, u uses) *corev1.Pod {
				pod := object.Pod(name, object.UID(name), object.Container("c", ""))
				made := name == "old" && u.mapped > 0 // it runs, so a claim was made for its extended resource
				if u.claims > 0 || made {
					_, claims, _ := (&situation{claims: [][]want{{{count: int64(u.claims)}}}}).objects()
					claims[0].Name, claims[0].UID = name, types.UID(name+"-c")
					s.claims[name] = claims[0]
				}
				if made {
					pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
						ResourceClaimName: name,
					}
				} else if u.claims > 0 {
					pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: name, ResourceClaimName: &name}}
				}
				limits := corev1.ResourceList{}
				if u.gpus != "" {
					limits["koordinator.sh/gpu"] = resource.MustParse(u.gpus)
				}
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
				if u.mapped > 0 {
					pod.Spec.Containers[0].Resources.Requests["example.com/card"] = *resource.NewQuantity(
						int64(u.mapped), "")
				}
				if u.nics != "" {
					limits["koordinator.sh/rdma"] = resource.MustParse(u.nics)
				}
				if len(limits) > 0 {
					pod.Spec.Containers[0].Resources.Limits = limits
					r, reason, _ := convert.Request(pod, convert.Args{Devices: true})
					if !reason.OK() {
						t.Fatal(reason)
					}
					rest.asks[pod.UID] = r
				}
				return pod
			}
			old, p := using("old", c.old), using("p", c.p)
			if own := s.claims["old"]; own != nil {
				own.Status = promised("old", "d0").Status
				own.Status.Allocation.Devices.Results[0].Pool = "n"
				own.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{UID: old.UID}}
				known.PutClaim(own)
			}
			base := store.View("n")
			if rest.asks[old.UID] != nil {
				offer, reason := place.Try(base, rest.asks[old.UID])
				if !reason.OK() {
					t.Fatal(reason)
				}
				base = base.With(offer.Entry)
			}
			if c.taken {
				base = base.With(half("another", "GPU-0"))
			}
			if c.contested {
				held := heldDevices{account: base, published: known.Published()["n"]}
				held.fill()
				s.claims["other"] = promised("other", held.ids[0].Device.String())
				s.claims["other"].Status.Allocation.Devices.Results[0].Pool = "n"
			}
			books := Keep(s, known, func(string) *ledger.View { return base })
			ch := &choice{
				others: rest, dra: books, selectors: cel.NewCache(selectorsKept, cel.Features{}),
				features: structured.Features{AdminAccess: true, PartitionableDevices: true},
			}
			cs, node := framework.NewCycleState(), framework.NewNodeInfo()
			name := "n"
			if c.elsewhere {
				name = "m"
			}
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if c.plugin {
				n.Status.Allocatable = object.List("example.com/card", "8")
			}
			node.SetNode(n)
			first, filter := &chosenFirst{skipping{}, ch}, &answering{}
			if c.p.claims > 0 {
				cs.Write(planKey, &plan{choice: ch, claims: claimsOf(books, p), both: rest.asks[p.UID] != nil})
			} else {
				_, status := first.PreFilter(t.Context(), cs, p, nil)
				if status.IsSkip() != (c.p.mapped == 0 && (rest.asks[p.UID] == nil || c.listed)) {
					t.Errorf("PreFilter: %v", status)
				}
				if (planOf(cs) != nil) != (c.p.mapped > 0) {
					t.Errorf("there is a plan: %t", planOf(cs) != nil)
				}
				if state, err := cs.Read(pluginKey); err == nil {
					if outer, _ := state.(*allocating).allocator.(*chooser); outer == nil || outer.Allocator == nil {
						t.Error("the plugin's allocator chooses nothing")
					}
				}
			}
			if c.ahead {
				LookAhead(t.Context(), cs, p, node.Node())
			}
			info := func(p *corev1.Pod) fwk.PodInfo {
				info, err := framework.NewPodInfo(p)
				testkit.Check(t, err)
				return info
			}
			if c.fails {
				anyPlanOf(cs).read()
				s.fails = errors.New("claims are changing")
			}
			if c.goes {
				first.RemovePod(t.Context(), cs, p, info(old), node)
			}
			for _, next := range []struct {
				name string
				uses
			}{{"s0", c.s0}, {"s1", c.s1}} {
				if next.uses != (uses{}) {
					first.AddPod(t.Context(), cs, p, info(using(next.name, next.uses)), node)
				}
			}
			status := (&chosenFilter{filter, ch}).Filter(t.Context(), cs, p, node)
			got := status.Message()
			var refusal *lacking
			if errors.As(status.AsError(), &refusal) {
				got = strings.TrimPrefix(refusal.detail, "default/")
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			asks := !c.ahead && (c.p.claims+c.p.mapped > 0 || anyPlanOf(cs) == nil) && (c.p.mapped < 33 || c.plugin)
			if asked := filter.asked == 1; asked != asks {
				t.Errorf("the plugin was asked %d times", filter.asked)
			}
		})
	}
}

// TestWhatIsChargedIsReleased: whole devices and shares of them. Admin access takes nothing.
func TestWhatIsChargedIsReleased(t *testing.T) {
	t.Parallel()
	half := map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("40Gi")}
	a := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{
			{Driver: "x", Pool: "n", Device: "whole"},
			{Driver: "x", Pool: "n", Device: "shared", ShareID: new(types.UID("1")), ConsumedCapacity: half},
			{Driver: "x", Pool: "n", Device: "shared", ShareID: new(types.UID("2"))},
			{Driver: "x", Pool: "n", Device: "watched", AdminAccess: new(true)},
		},
	}}
	state, err := (&shop{}).GatherAllocatedState()
	testkit.Check(t, err)
	charge(state, a)
	memory := state.AggregatedCapacity[structured.MakeDeviceID("x", "n", "shared")]["memory"]
	got := []int{len(state.AllocatedDevices), len(state.AllocatedSharedDeviceIDs), len(state.AggregatedCapacity)}
	if !slices.Equal(got, []int{1, 2, 1}) || memory.String() != "40Gi" {
		t.Errorf("charged: %v devices, shares and sums, %s of memory", got, memory)
	}
	release(state, a)
	memory = state.AggregatedCapacity[structured.MakeDeviceID("x", "n", "shared")]["memory"]
	if len(state.AllocatedDevices)+len(state.AllocatedSharedDeviceIDs) > 0 || memory != nil && !memory.IsZero() {
		t.Errorf("released: %v, %v, %s of memory", state.AllocatedDevices, state.AllocatedSharedDeviceIDs, memory)
	}
}

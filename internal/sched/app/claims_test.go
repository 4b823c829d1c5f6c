package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// dra is the ResourceClaims of a cluster, the devices of node a, and one class of devices.
type dra struct {
	fwk.SharedDRAManager
	fwk.ResourceClaimTracker
	claims  map[string]*resourcev1.ResourceClaim
	pending map[types.UID]*resourcev1.AllocationResult
	devices []resourcev1.Device
	onB     []resourcev1.Device // the devices of node b
}

func (d *dra) ResourceClaims() fwk.ResourceClaimTracker     { return d }
func (d *dra) ResourceSlices() fwk.ResourceSliceLister      { return d }
func (d *dra) DeviceClasses() fwk.DeviceClassLister         { return classOfCards{} }
func (d *dra) DeviceClassResolver() fwk.DeviceClassResolver { return d }

// GetDeviceClass says that class card maps example.com/card.
func (*dra) GetDeviceClass(name corev1.ResourceName) *resourcev1.DeviceClass {
	if name != "example.com/card" {
		return nil
	}
	class, _ := classOfCards{}.Get("card")
	return class
}

func (d *dra) Get(_, name string) (*resourcev1.ResourceClaim, error) {
	if c := d.claims[name]; c != nil {
		return c, nil
	}
	return nil, errors.New("not found")
}

func (d *dra) List() (all []*resourcev1.ResourceClaim, err error) {
	for _, c := range d.claims {
		all = append(all, c)
	}
	return all, nil
}

func (d *dra) GetPendingAllocation(uid types.UID) *resourcev1.AllocationResult { return d.pending[uid] }

func (d *dra) GatherAllocatedState() (*structured.AllocatedState, error) {
	all, given := sets.New[structured.DeviceID](), slices.Collect(maps.Values(d.pending))
	for _, c := range d.claims {
		if c.Status.Allocation != nil {
			given = append(given, c.Status.Allocation)
		}
	}
	for _, a := range given {
		r := a.Devices.Results[0]
		all.Insert(structured.MakeDeviceID(r.Driver, r.Pool, r.Device))
	}
	return &structured.AllocatedState{
		AllocatedDevices: all, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}, nil
}

func (d *dra) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	var all []*resourcev1.ResourceSlice
	for node, devices := range map[string][]resourcev1.Device{"a": d.devices, "b": d.onB} {
		slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: "x", NodeName: &node, Devices: devices,
			Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		}}
		slice.Name = node
		all = append(all, slice)
	}
	return all, nil
}

// classOfCards has the class of all devices, and none of no device.
type classOfCards struct{}

func (classOfCards) Get(name string) (*resourcev1.DeviceClass, error) {
	c := &resourcev1.DeviceClass{}
	if c.Name = name; name == "none" {
		c.Spec.Selectors = selecting("false")
	}
	return c, nil
}

func (classOfCards) List() (all []*resourcev1.DeviceClass, err error) {
	for _, name := range []string{"card", "none"} {
		c, _ := classOfCards{}.Get(name)
		all = append(all, c)
	}
	return all, nil
}

func selecting(expression string) []resourcev1.DeviceSelector {
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
}

// cards are devices of which claims have one each, shares of which several claims may have 40 of 80.
func cards(n int) (out []resourcev1.Device) {
	for i := range n {
		out = append(out, resourcev1.Device{Name: fmt.Sprint("d", i)})
	}
	return out
}

func shares(n int) []resourcev1.Device {
	out := cards(n)
	for i := range out {
		out[i].AllowMultipleAllocations = ptr.To(true)
		out[i].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {
			Value:         resource.MustParse("80"),
			RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("40"))},
		}}
	}
	return out
}

// TestAQuestionPromisesEachDeviceOnce: pods see the claims of those before them, and the next question sees none.
func TestAQuestionPromisesEachDeviceOnce(t *testing.T) {
	const nowhere = ""
	for name, tt := range map[string]struct {
		devices []resourcev1.Device
		claims  map[string]string // pod → claim
		admin   bool              // claims are for administrators
		pending string            // the claim that the scheduler has reserved and not written
		want    map[string]string // pod → node
	}{
		"one device and a claim of each": {
			cards(1), map[string]string{"p": "p", "q": "q"}, false, "", map[string]string{"p": "a", "q": nowhere},
		},
		"a device for each": {
			cards(2), map[string]string{"p": "p", "q": "q"}, false, "", map[string]string{"p": "a", "q": "a"},
		},
		"one device and one claim": {
			cards(1), map[string]string{"p": "s", "q": "s"}, false, "", map[string]string{"p": "a", "q": "a"},
		},
		"shares of one device": {
			shares(1),
			map[string]string{"p": "p", "q": "q", "r": "r"},
			false, "",
			map[string]string{"p": "a", "q": "a", "r": nowhere},
		},
		"administrators take no device": {
			cards(1), map[string]string{"p": "p", "q": "q"}, true, "", map[string]string{"p": "a", "q": "a"},
		},
		"the scheduler has reserved the device for one": {
			cards(1), map[string]string{"p": "p", "q": "q"}, false, "q", map[string]string{"p": nowhere, "q": "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dra{
				claims: map[string]*resourcev1.ResourceClaim{}, devices: tt.devices,
				pending: map[types.UID]*resourcev1.AllocationResult{},
			}
			a := newAsked(t, "a", "b")
			a.core.Imagined.SharedDRAManager = d
			for pod, name := range tt.claims {
				c := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
					Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
						DeviceClassName: "card", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
					}}},
				}}}
				if tt.admin {
					c.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
				}
				c.Name, c.Namespace, c.UID = name, "default", types.UID(name)
				d.claims[name] = c
				waiting := exclusive(pod, "2", func(p *corev1.Pod) {
					p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &name}}
				})
				a.add(waiting)
			}
			if tt.pending != "" {
				allocation := &resourcev1.AllocationResult{}
				allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
					{Request: "r", Driver: "x", Pool: "a", Device: "d0"},
				}
				d.pending[types.UID(tt.pending)] = allocation
			}
			before := maps.Clone(d.claims)
			for range 2 { // the second question sees nothing of the first one
				answer, err := a.answer(`{"ask":{"pods":["default/p","default/q"` +
					map[bool]string{true: `,"default/r"`}[tt.claims["r"] != ""] + `]}}`)
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]string{}
				for _, p := range answer.Placements {
					got[p.Pod[len("default/"):]] = p.Node
				}
				for i := range answer.Unschedulable {
					got[answer.Unschedulable[i].Pod[len("default/"):]] = nowhere
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(before, d.claims); diff != "" {
				t.Errorf("the claims of the cluster have changed:\n%s", diff)
			}
		})
	}
}

// TestFewerOfAnExtendedResourceIsAFix: class card maps example.com/card, of which node a has two devices.
func TestFewerOfAnExtendedResourceIsAFix(t *testing.T) {
	a := newAsked(t, "a")
	d := &dra{devices: cards(2), claims: map[string]*resourcev1.ResourceClaim{}}
	a.core.Imagined.SharedDRAManager = d
	pod := exclusive("p", "2", d.mapped(""))
	pod.Spec.Containers[0].Resources.Requests["example.com/card"] = resource.MustParse("5")
	a.add(pod)
	said := view.Explain(describe.Pod(pod), view.Verdict{Served: true, Findings: []why.Finding{
		{Reason: why.Reason{Code: why.InsufficientClaimDevices}, Phase: why.Filter, Object: "a"},
	}}, nil)
	fixes, _, err := a.whatIf.Fixes(t.Context(), pod, &said)
	const want = "request example.com/card 2 instead of 5 in container main (tried: schedules on a, not with 3, 4 " +
		"and 5)"
	if err != nil || !slices.ContainsFunc(fixes, func(f view.Fix) bool { return f.Message == want }) {
		t.Errorf("got %+v, %v, want %q", fixes, err, want)
	}
}

// TestFixesOfClaimsWereTried: each is the first in the order of what costs least with which the pod is placed.
func TestFixesOfClaimsWereTried(t *testing.T) {
	tainted := func(n int) []resourcev1.Device {
		out := cards(n)
		for i := range out {
			out[i].Taints = []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
		return out
	}
	apart := func(n int) []resourcev1.Device {
		out := cards(n)
		for i := range out {
			out[i].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"at": {IntValue: ptr.To(int64(i))}, "kind": {StringValue: ptr.To("gpu")},
			}
		}
		return out
	}
	constrained := func(d *resourcev1.DeviceClaim) {
		d.Requests[0].Exactly.Count = 2
		d.Constraints = []resourcev1.DeviceConstraint{
			{MatchAttribute: ptr.To[resourcev1.FullyQualifiedName]("x/kind")},
			{MatchAttribute: ptr.To[resourcev1.FullyQualifiedName]("x/at")},
		}
	}
	for name, tt := range map[string]struct {
		devices []resourcev1.Device
		change  func(*resourcev1.DeviceClaim)
		want    string
	}{
		"taints": {
			tainted(1), func(*resourcev1.DeviceClaim) {},
			"tolerate the taints of devices in request r of ResourceClaim p",
		},
		"a selector": {cards(1), func(d *resourcev1.DeviceClaim) {
			d.Requests[0].Exactly.Selectors = append(selecting("true"), selecting("device.driver == 'y'")...)
		}, "leave out selector `device.driver == 'y'` in request r of ResourceClaim p"},
		"a number": {
			cards(5), func(d *resourcev1.DeviceClaim) { d.Requests[0].Exactly.Count = 9 },
			"request 5 devices instead of 9 in request r of ResourceClaim p",
		},
		"a class": {
			cards(1), func(d *resourcev1.DeviceClaim) { d.Requests[0].Exactly.DeviceClassName = "none" },
			"use DeviceClass card instead of none in request r of ResourceClaim p",
		},
		"a constraint that a smaller number satisfies": {
			apart(2), constrained, "request 1 device instead of 2 in request r of ResourceClaim p",
		},
		"a constraint of two requests": {apart(2), func(d *resourcev1.DeviceClaim) {
			constrained(d)
			d.Requests[0].Exactly.Count = 1
			second := *d.Requests[0].DeepCopy()
			second.Name = "s"
			d.Requests = append(d.Requests, second)
		}, "leave out constraint matchAttribute x/at of ResourceClaim p"},
		"none helps": {nil, func(*resourcev1.DeviceClaim) {}, ""},
		"alternatives are not changed": {tainted(1), func(d *resourcev1.DeviceClaim) {
			d.Requests[0] = resourcev1.DeviceRequest{Name: "r", FirstAvailable: []resourcev1.DeviceSubRequest{{
				Name: "s", DeviceClassName: "card", Count: 1,
				AllocationMode: resourcev1.DeviceAllocationModeExactCount,
			}}}
		}, ""},
		"all": {tainted(1), func(d *resourcev1.DeviceClaim) {
			d.Requests[0].Exactly.AllocationMode, d.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeAll, 0
		}, "tolerate the taints of devices in request r of ResourceClaim p"},
	} {
		c := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: "card", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			}}},
		}}}
		c.Name, c.Namespace, c.UID = "p", "default", "p"
		tt.change(&c.Spec.Devices)
		a := newAsked(t, "a")
		a.core.Imagined.SharedDRAManager = &dra{
			claims: map[string]*resourcev1.ResourceClaim{"p": c}, devices: tt.devices,
			pending: map[types.UID]*resourcev1.AllocationResult{},
		}
		before := c.DeepCopy()
		pod := exclusive("p", "2", func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &c.Name}}
		})
		a.add(pod)
		said := view.Explain(describe.Pod(pod), view.Verdict{Served: true, Findings: []why.Finding{
			{Reason: why.Reason{Code: why.InsufficientClaimDevices}, Phase: why.Filter, Object: "a"},
		}}, nil)
		fixes, _, err := a.whatIf.Fixes(t.Context(), pod, &said)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := ""
		for _, f := range fixes {
			if f.Kind == view.FixClaim {
				got, _, _ = strings.Cut(f.Message, " (tried: schedules on a)")
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if diff := cmp.Diff(before, c); diff != "" {
			t.Errorf("%s: the claim has changed: %s", name, diff)
		}
	}
}

// TestClaimsCanBeIgnored: a pod requires 4 CPUs of one NUMA node, where the only device is on NUMA node 0, whose CPUs
// are in use. With --ignore-claims the plugin for claims decides alone, and devices are in no account.
func TestClaimsCanBeIgnored(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want why.Code
	}{
		{nil, why.ClaimNotAligned}, {[]string{"--ignore-claims"}, why.None},
	} {
		d := &dra{
			claims: map[string]*resourcev1.ResourceClaim{}, devices: cards(1),
			pending: map[types.UID]*resourcev1.AllocationResult{},
		}
		d.devices[0].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"resource.kubernetes.io/numaNode": {IntValue: ptr.To[int64](0)},
		}
		c := &resourcev1.ResourceClaim{}
		c.Name, c.Namespace, c.UID = "c", "default", "c"
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "card", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		}}}
		d.claims["c"] = c
		a := askedOf(t, newScheduler(t, tt.args...), "a")
		a.core.Imagined.SharedDRAManager = d
		a.add(bound("busy", "a", "0-3,16-19"), exclusive("p", "4", func(p *corev1.Pod) {
			p.Annotations = map[string]string{
				"scheduling.koordinator.sh/numa-topology-spec": `{"numaTopologyPolicy": "SingleNUMANode"}`,
			}
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: ptr.To("c")}}
		}))
		answer, err := a.answer(`{"ask":{"pods":["default/p"]}}`)
		if err != nil {
			t.Fatal(err)
		}
		got := why.None
		for i := range answer.Unschedulable {
			got = answer.Unschedulable[i].RootCause.Code
		}
		if got != tt.want {
			t.Errorf("%v: got %v, want %v: %+v", tt.args, got, tt.want, answer)
		}
	}
}

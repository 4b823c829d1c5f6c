package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/sched/journal"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// recordedClass is the class of all devices; of one that pods may request as a resource if extended is set.
func recordedClass(extended string) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{}
	if c.Name = "card"; extended != "" {
		c.Spec.ExtendedResourceName = &extended
	}
	return c
}

// recordedSlice has devices d0, d1 and so on of node n.
func recordedSlice(devices int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: "x", NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 1},
	}}
	s.Name = "s"
	for i := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("d", i)})
	}
	return s
}

// recordedClaim is a version of a claim of one device, which it has unless device is "". pods have reserved it.
func recordedClaim(name, version, device string, pods ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{}
	c.Namespace, c.Name, c.UID, c.ResourceVersion = "default", name, types.UID(name), version
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "card", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}}}
	if device != "" {
		c.Status.Allocation = &resourcev1.AllocationResult{}
		c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: "x", Pool: "n", Device: device},
		}
	}
	for _, pod := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID(pod)})
	}
	return c
}

// madeClaim is a version of the claim for the extended resource of a pod, which has a device unless that is "".
func madeClaim(pod, version, device string) *resourcev1.ResourceClaim {
	c := recordedClaim(pod+"-made", version, device, pod)
	c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	c.OwnerReferences = []metav1.OwnerReference{{Name: pod, UID: types.UID(pod), Controller: new(true)}}
	return c
}

// usingClaim is an option of pods.
func usingClaim(name string) testobject.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: name, ResourceClaimName: &name}}
	}
}

func onNode(p *corev1.Pod) { p.Spec.NodeName = "n" }

// promising is the decision that a pod gets node n, and its claim a device.
func promising(pod, claim, device string) *journal.Record {
	r := decide("default/"+pod, pod, "n")
	r.Decision.Claims = []journal.Promise{{
		Claim: "default/" + claim, UID: claim, Allocation: recordedClaim(claim, "", device).Status.Allocation,
	}}
	return r
}

// refusing is the decision that a pod gets no node.
func refusing(pod, text string) *journal.Record {
	r := decide("default/"+pod, pod, "")
	r.Decision.Refused, r.Decision.Feasible = text, 0
	return r
}

// TestDecisionsAboutPodsWithClaimsAreMadeAgain: node n has devices d0 and d1, and claim c is recorded with d0 for pod
// p. Then pod q with a claim is decided about, which gets the first device that the replay knows to be free.
func TestDecisionsAboutPodsWithClaimsAreMadeAgain(t *testing.T) {
	t.Parallel()
	taint := &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("x"), Pool: new("n"), Device: new("d0")},
		Taint:          resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule},
	}}
	taint.Name = "t"
	type records = []*journal.Record
	release := func() *journal.Record {
		return &journal.Record{Type: journal.EventType, Event: &journal.Event{
			Op: journal.Release, Kind: "Pod", UID: "p", Key: "default/p",
		}}
	}
	write := func() *journal.Record { return event(t, journal.Written, recordedClaim("c", "5", "d0", "p")) }
	bind := func(more ...*journal.Record) records {
		return append(records{
			write(), put(t, recordedClaim("c", "5", "d0", "p")), put(t, podNamed("p", usingClaim("c"), onNode)),
		}, more...)
	}
	ask := func(pod, claim, device string) records {
		return records{put(t, podNamed(pod, usingClaim(claim))), promising(pod, claim, device)}
	}
	asks := func(claim, device string, before ...*journal.Record) records {
		return append(before, ask("q", claim, device)...)
	}
	gang := func(pods, claims []string, first, second string, before ...*journal.Record) records {
		taken, pods := pods, pods[:2] // a third one is named where the queue gave out the second pod
		for i, name := range pods {
			before = append(before, put(t, podNamed(name, usingClaim(claims[i]), testobject.Gang("g", "2"))))
		}
		head := promising(pods[0], claims[0], first)
		head.Decision.Pulled = taken[1:]
		return append(before, put(t, recordedClaim("f", "2", "")), head, promising(pods[1], claims[1], second))
	}
	const card = "container-0-request-0" // what q asks for
	mapped := func(device string, before ...*journal.Record) records {
		decision := promising("q", "<extended-resources>", device)
		decision.Decision.Claims[0].Allocation.Devices.Results[0].Request = card
		return append(before, put(t, recordedClass("example.com/card")),
			put(t, podNamed("q", testobject.Both("example.com/card", "1"))), decision)
	}
	made := func(device string) records {
		return records{
			put(t, madeClaim("q", "6", "")), event(t, journal.Written, madeClaim("q", "7", device)),
			put(t, madeClaim("q", "7", device)),
			put(t, podNamed("q", testobject.Both("example.com/card", "1"), onNode)),
		}
	}
	shares := func(before ...*journal.Record) records {
		return append(before, put(t, podNamed("q", usingClaim("c"))), decide("default/q", "q", "n"))
	}
	needs := func(option testobject.PodOption) records {
		return records{put(t, podNamed("q", option)), decide("default/q", "q", "n")}
	}
	for name, c := range map[string]struct {
		reserved bool // p is reserved at the snapshot, and not decided about
		between  records
		want     string // the difference, and what is skipped; "" for as recorded
	}{
		"p is reserved":           {false, asks("e", "d1"), ""},
		"p was reserved long ago": {true, asks("e", "d1"), ""},
		"another device is recorded": {
			false, asks("e", "d0"), "claims [default/e: r=x/n/d0] [default/e: r=x/n/d1]",
		},
		"p is not bound": {false, asks("e", "d0", release()), ""},
		"p was reserved long ago and is not bound": {true, asks("e", "d0", release()), ""},
		"p was reserved long ago and is deleted": {
			true, asks("e", "d0", event(t, journal.Delete, podNamed("p"))), "",
		},
		"the claim of p is written":            {false, asks("e", "d1", write()), ""},
		"p is bound":                           {false, asks("e", "d1", bind()...), ""},
		"p was reserved long ago and is bound": {true, asks("e", "d1", bind()...), ""},
		"p has ended, and its claim is deleted": {
			false, asks("e", "d0", bind(event(t, journal.Delete, podNamed("p")),
				event(t, journal.Delete, recordedClaim("c", "6", "")))...), "",
		},
		"p has ended, and its claim is deallocated": {
			false, asks("e", "d0", bind(event(t, journal.Delete, podNamed("p")),
				put(t, recordedClaim("c", "6", "")))...), "",
		},
		"another scheduler has allocated d1": {
			false, asks("e", "d0", release(), put(t, recordedClaim("f", "7", "d1", "z"))), "",
		},
		"d0 is tainted": {false, asks("e", "d1", release(), put(t, taint)), ""},
		"d0 is no longer tainted": {
			false, asks("e", "d0", release(), put(t, taint), event(t, journal.Delete, taint)), "",
		},
		"no device is left": {
			false, records{
				put(t, recordedSlice(1)), put(t, podNamed("q", usingClaim("e"))), refusing("q", "no room"),
			}, "refused no room ",
		},
		"the devices are gone": {
			false, records{
				event(t, journal.Delete, recordedSlice(2)), put(t, podNamed("q", usingClaim("e"))),
				refusing("q", "no room"),
			}, "refused no room ",
		},
		"q shares the claim before it is written":   {false, shares(), "node n "},
		"q shares the claim once it is written":     {false, shares(write()), ""},
		"an older state comes after it was written": {false, shares(write(), put(t, recordedClaim("c", "4", ""))), ""},
		"q shares the claim of a pod that was reserved long ago": {
			true, shares(), "1 not compared: " + lacksSharing,
		},
		"a claim that the journal does not have": {
			false, asks("g", "d1"), "1 not compared: " + lacksClaims,
		},
		"a template without a claim": {
			false, needs(func(p *corev1.Pod) {
				p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimTemplateName: new("a")}}
			}), "1 not compared: " + lacksClaims,
		},
		"a volume": {
			false, needs(func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "v"},
				}}}
			}), "1 not compared: " + lacksVolumes,
		},
		"a gang with claims": {
			false, gang([]string{"q", "r"}, []string{"e", "f"}, "d0", "d1", release()), "",
		},
		"a gang with other devices": {
			false, gang([]string{"q", "r"}, []string{"e", "f"}, "d1", "d0", release()), "claims [default/e: r=x/n/d1]",
		},
		"a gang whose second pod came out of the queue first": {
			false, gang([]string{"q", "r", "q"}, []string{"e", "e"}, "d1", "d1"), "",
		},
		"a gang that shares a claim": {false, gang([]string{"q", "r"}, []string{"e", "e"}, "d1", "d1"), ""},
		"an extended resource":       {false, mapped("d1"), ""},
		"another device for an extended resource": {
			false, mapped("d0"), "claims [default/<extended-resources>: container-0-request-0=x/n/d0]",
		},
		"an extended resource of a pod that is not bound yet": {
			false, slices.Concat(mapped("d0", release()), ask("s", "e", "d1")), "",
		},
		"an extended resource of a pod that is bound": {
			false, slices.Concat(mapped("d0", release()), made("d0"), ask("s", "e", "d1")), "",
		},
		"an extended resource of a pod that is gone": {
			false, slices.Concat(mapped("d0", release()), made("d0"), records{
				event(t, journal.Delete, podNamed("q")), event(t, journal.Delete, madeClaim("q", "8", "d0")),
			}, ask("s", "e", "d0")), "",
		},
		"a claim of an earlier binding": {
			false, append(records{put(t, recordedClass("example.com/card")), put(t, madeClaim("q", "7", "d1"))},
				put(t, podNamed("q", testobject.Both("example.com/card", "1"))), refusing("q", "no room")),
			"cannot schedule extended resource claim",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start, p := began(t), promising("p", "c", "d0")
			all := records{
				start, put(t, testobject.Node("n", nil, "cpu", "16", "pods", "110")), put(t, recordedClass("")),
				put(t, recordedSlice(2)), put(t, recordedClaim("c", "1", "")), put(t, recordedClaim("e", "2", "")),
				put(t, podNamed("p", usingClaim("c"))),
			}
			if c.reserved {
				start.Snapshot.Objects, start.Snapshot.Reserved = len(all)-1, []journal.Decision{*p.Decision}
			} else {
				all = append(all, p)
			}
			got, err := Replay(t.Context(), seal(t, time.Now(), append(all, c.between...)...), time.Time{})
			testkit.Check(t, err)
			said := ""
			if d := got.Difference; d != nil {
				said = strings.Join([]string{d.Field, d.Recorded, d.Replayed}, " ")
			}
			for why := range maps.Keys(got.Skipped) {
				said += fmt.Sprintf("%d not compared: %s", got.Skipped[why], why)
			}
			if c.want == "" && said != "" || !strings.Contains(said, c.want) {
				t.Errorf("got %q after %d decisions, want %q", said, got.Decisions, c.want)
			}
		})
	}
}

// TestADeviceThatIsNoLongerListedUsesItsCounters: a claim has a part of 40 of a card with 80, which its driver then
// stops listing. The whole card fits once the claim is deallocated.
func TestADeviceThatIsNoLongerListedUsesItsCounters(t *testing.T) {
	t.Parallel()
	memory := func(n int64) map[string]resourcev1.Counter {
		return map[string]resourcev1.Counter{"memory": {Value: *resource.NewQuantity(n, resource.DecimalSI)}}
	}
	part := func(name string, uses int64) resourcev1.Device {
		return resourcev1.Device{Name: name, ConsumesCounters: []resourcev1.DeviceCounterConsumption{
			{CounterSet: "card", Counters: memory(uses)},
		}}
	}
	card := recordedSlice(0)
	card.Name, card.Spec.Pool.ResourceSliceCount = "card", 2
	card.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "card", Counters: memory(80)}}
	listing := func(devices ...resourcev1.Device) *journal.Record {
		s := recordedSlice(0)
		s.Spec.Pool.ResourceSliceCount, s.Spec.Devices = 2, devices
		return put(t, s)
	}
	held := func() *journal.Record { return put(t, recordedClaim("c", "1", "d0", "p")) }
	asks := func() []*journal.Record {
		return []*journal.Record{put(t, podNamed("q", usingClaim("e"))), promising("q", "e", "d1")}
	}
	for name, c := range map[string]struct {
		between []*journal.Record
		fits    bool
	}{
		"listed": {append([]*journal.Record{held()}, asks()...), false},
		"no longer listed": {
			append([]*journal.Record{held(), listing(part("d1", 80))}, asks()...), false,
		},
		"no longer listed, and deallocated": {
			append([]*journal.Record{held(), listing(part("d1", 80)), put(t, recordedClaim("c", "2", ""))}, asks()...),
			true,
		},
		"never allocated": {append([]*journal.Record{listing(part("d1", 80))}, asks()...), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := append([]*journal.Record{
				began(t), put(t, testobject.Node("n", nil, "cpu", "16", "pods", "110")), put(t, recordedClass("")),
				put(t, card), listing(part("d0", 40), part("d1", 80)), put(t, recordedClaim("e", "1", "")),
			}, c.between...)
			got, err := Replay(t.Context(), seal(t, time.Now(), all...), time.Time{})
			testkit.Check(t, err)
			if fits := got.Difference == nil; fits != c.fits || !fits && got.Difference.Field != "node" {
				t.Errorf("got %+v, want it to fit: %v", got.Difference, c.fits)
			}
		})
	}
}

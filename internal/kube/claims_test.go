package kube_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// publishes is a slice of a driver on a node, with devices as "name=uuid" or "name@PCI address".
func publishes(name, driver, node string, generation int64, devices ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Driver, s.Spec.NodeName = driver, &node
	s.Spec.Pool = resourcev1.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: 1}
	for _, text := range devices {
		for i, separator := range text {
			attribute := resourcev1.QualifiedName("uuid")
			switch separator {
			case '@':
				attribute = "resource.kubernetes.io/pciBusID"
			case '=':
			default:
				continue
			}
			id := text[i+1:]
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
				Name: text[:i], Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
					attribute: {StringValue: &id},
				},
			})
			break
		}
	}
	return s
}

// allocated is a claim with devices of a driver on a node.
func allocated(name, version, driver, node string, devices ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: version,
	}}
	if len(devices) == 0 {
		return c
	}
	c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}
	for _, d := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: driver, Pool: node, Device: d})
	}
	return c
}

// cards is a node with two GPUs and the account of claims.
func cards() (*kube.Store, *kube.Claims) {
	s := kube.NewStore()
	s.PutNode(testobject.Node("n", nil, "cpu", "8"))
	d := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for i, id := range []string{"GPU-a", "GPU-b"} {
		minor := int32(i)
		d.Spec.Devices = append(d.Spec.Devices, devicev1alpha1.DeviceInfo{
			Type: "gpu", ID: id, Minor: &minor, Health: true,
			Topology: &devicev1alpha1.DeviceTopology{BusID: fmt.Sprintf("0000:0%d:00.0", i)},
		})
	}
	s.PutDevice(d)
	return s, kube.NewClaims(s)
}

// who says who has the GPUs of a node, and how many may have any.
func who(s *kube.Store) (text []string) {
	v := s.View("n")
	for d := range v.Devices().Devices() {
		for e := range v.Entries() {
			for _, g := range v.GrantsOf(&e) {
				if g.IsOf(&d) {
					text = append(text, d.ID+" "+e.Namespace+"/"+e.Name)
				}
			}
		}
	}
	if n := v.UnknownHolders(); n > 0 {
		text = append(text, fmt.Sprintf("%d unknown", n))
	}
	return text
}

// TestClaimsHoldCards: each step is an event; want is who has which card after the last one.
func TestClaimsHoldCards(t *testing.T) {
	t.Parallel()
	type step = func(c *kube.Claims)
	slice := func(s *resourcev1.ResourceSlice) step { return func(c *kube.Claims) { c.PutSlice(s) } }
	put := func(o *resourcev1.ResourceClaim) step { return func(c *kube.Claims) { c.PutClaim(o) } }
	gone := func(o *resourcev1.ResourceClaim) step { return func(c *kube.Claims) { c.RemoveClaim(o) } }
	pend := func(o *resourcev1.ResourceClaim) step { return func(c *kube.Claims) { c.Pend(o) } }
	unpend := func(c *kube.Claims) { c.Unpend("c") }
	has := allocated("c", "5", "gpu", "n", "g0")
	gpus := publishes("s", "gpu", "n", 1, "g0=GPU-a", "g1@00:01:00.0")
	admin := allocated("c", "5", "gpu", "n", "g0")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	share := allocated("c2", "5", "gpu", "n", "g0")
	share.Status.Allocation.Devices.Results[0].ShareID = new(types.UID("x"))
	perDevice := publishes("s", "gpu", "", 1, "g0=GPU-a")
	perDevice.Spec.NodeName, perDevice.Spec.PerDeviceNodeSelection = nil, new(true)
	perDevice.Spec.Pool.Name, perDevice.Spec.Devices[0].NodeName = "n", new("n")
	network := publishes("s", "gpu", "", 1, "g0=GPU-a")
	network.Spec.NodeName, network.Spec.Pool.Name, network.Spec.AllNodes = nil, "n", new(true)
	for name, c := range map[string]struct {
		steps []step
		want  []string
	}{
		"a claim before its slice": {[]step{put(has), slice(gpus)}, []string{"GPU-a ns/c"}},
		"a slice before its claim": {[]step{slice(gpus), put(has)}, []string{"GPU-a ns/c"}},
		"by PCI address": {
			[]step{slice(gpus), put(allocated("c", "5", "gpu", "n", "g1"))}, []string{"GPU-b ns/c"},
		},
		"two devices": {
			[]step{slice(gpus), put(allocated("c", "5", "gpu", "n", "g0", "g1"))}, []string{"GPU-a ns/c", "GPU-b ns/c"},
		},
		"a share and another claim": {
			[]step{slice(gpus), put(has), put(share)}, []string{"GPU-a ns/c", "GPU-a ns/c2"},
		},
		"access of an administrator": {[]step{slice(gpus), put(admin)}, nil},
		"without an allocation":      {[]step{slice(gpus), put(allocated("c", "5", "gpu", "n"))}, nil},
		"deallocated":                {[]step{slice(gpus), put(has), put(allocated("c", "6", "gpu", "n"))}, nil},
		"an older state comes late": {
			[]step{slice(gpus), put(has), put(allocated("c", "4", "gpu", "n"))}, []string{"GPU-a ns/c"},
		},
		"what was not written after all": {[]step{
			slice(gpus), put(has), func(c *kube.Claims) { c.Restore(allocated("c", "4", "gpu", "n")) },
		}, nil},
		"deleted": {[]step{slice(gpus), put(has), gone(has)}, nil},
		"pending": {
			[]step{slice(gpus), pend(has)}, []string{"GPU-a ns/c"},
		},
		"taken back": {[]step{slice(gpus), pend(has), unpend}, nil},
		"written, then taken back": {
			[]step{slice(gpus), pend(has), put(has), unpend},
			[]string{"GPU-a ns/c"},
		},
		"pending and deleted": {
			[]step{slice(gpus), pend(has), gone(has)}, nil,
		},
		"written while pending": {
			[]step{slice(gpus), pend(allocated("c", "4", "gpu", "n", "g1")), put(has)},
			[]string{"GPU-a ns/c"},
		},
		"the slice is gone": {
			[]step{slice(gpus), put(has), func(c *kube.Claims) { c.RemoveSlice("s") }}, []string{"1 unknown"},
		},
		"no slice ever": {[]step{put(has)}, []string{"1 unknown"}},
		"one of two devices gone": {
			[]step{slice(publishes("s", "gpu", "n", 1, "g0=GPU-a")), put(allocated("c", "5", "gpu", "n", "g0", "g1"))},
			[]string{"1 unknown"},
		},
		"another driver, same pool": {
			[]step{slice(gpus), slice(publishes("other", "nic", "n", 1, "g0=GPU-b")), put(has)}, []string{"GPU-a ns/c"},
		},
		"a newer generation": {[]step{
			slice(gpus), put(has), slice(publishes("s2", "gpu", "n", 2, "g0=GPU-b")),
		}, []string{"GPU-b ns/c"}},
		"a newer generation that is not whole yet": {[]step{
			slice(gpus), put(has), slice(publishes("s2", "gpu", "n", 2, "g1=GPU-b")),
		}, []string{"GPU-a ns/c"}},
		"one name twice in a pool": {[]step{
			slice(gpus), slice(publishes("s2", "gpu", "n", 1, "g0=GPU-b")), put(has),
		}, []string{"GPU-a ns/c", "GPU-b ns/c"}},
		"the slice changes pools": {
			[]step{slice(gpus), put(has), slice(publishes("s", "nic", "n", 1, "g0=GPU-a"))}, []string{"1 unknown"},
		},
		"the card changes": {
			[]step{slice(gpus), put(has), slice(publishes("s", "gpu", "n", 1, "g0=GPU-b"))}, []string{"GPU-b ns/c"},
		},
		"a device with its node":    {[]step{slice(perDevice), put(has)}, []string{"GPU-a ns/c"}},
		"a device of all nodes":     {[]step{slice(network), put(has)}, nil},
		"a device without a card":   {[]step{slice(publishes("s", "gpu", "n", 1, "g0=")), put(has)}, nil},
		"a card that no Device has": {[]step{slice(publishes("s", "gpu", "n", 1, "g0=GPU-z")), put(has)}, nil},
	} {
		s, claims := cards()
		for _, step := range c.steps {
			step(claims)
		}
		if diff := cmp.Diff(c.want, who(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestAClaimNamesThePodsThatUseIt: those that it is reserved for, on each node that it has devices of.
func TestAClaimNamesThePodsThatUseIt(t *testing.T) {
	t.Parallel()
	_, claims := cards()
	claims.PutSlice(publishes("s", "gpu", "n", 1, "g0=GPU-a"))
	c := allocated("c", "5", "gpu", "n", "g0")
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{UID: "a"}, {UID: "b"}}
	if got := claims.Entries(c)["n"].Users; !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v", got)
	}
}

// TestClaimsAreNotTakenForLostPods: the audit compares the accounts with pods, and no pod has the UID of a claim.
func TestClaimsAreNotTakenForLostPods(t *testing.T) {
	t.Parallel()
	s, claims := cards()
	claims.PutSlice(publishes("s", "gpu", "n", 1, "g0=GPU-a"))
	claims.PutClaim(allocated("c", "5", "gpu", "n", "g0"))
	if found := s.Differences(nil); len(found) > 0 {
		t.Errorf("the audit found %+v", found)
	}
	if kube.NewClaims(nil) != nil {
		t.Error("an account of claims without accounts of nodes")
	}
}

// TestPendingClaimsThatPodsContest names both holders.
func TestPendingClaimsThatPodsContest(t *testing.T) {
	t.Parallel()
	s, claims := cards()
	claims.PutSlice(publishes("s", "gpu", "n", 1, "g0=GPU-a", "g1=GPU-b", "g2=GPU-z"))
	const half = `"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory-ratio":"50"`
	s.PutPod(testobject.Pod("p", testobject.On("n"),
		testobject.Both("koordinator.sh/gpu-core", "50", "koordinator.sh/gpu-memory-ratio", "50"),
		testobject.Annotation(annotation.DeviceAllocatedKey,
			`{"gpu":[{"minor":0,"id":"GPU-a","resources":{`+half+`}}]}`)))
	contested := func() string { return kube.Contested(s.View("n"), claims.Pending("n")) }
	claims.Pend(allocated("free", "5", "gpu", "n", "g1", "g2"))
	if text := contested(); text != "" {
		t.Errorf("free cards: %s", text)
	}
	taken := allocated("c", "5", "gpu", "n", "g0")
	claims.Pend(taken)
	if want := "device gpu/n/g0, allocated to claim ns/c, is held outside DRA by default/p"; contested() != want {
		t.Errorf("got %q, want %q", contested(), want)
	}
	claims.PutClaim(taken)
	if text := contested(); text != "" || len(claims.Pending("n")) != 1 || len(claims.Pending("m")) != 0 {
		t.Errorf("a claim that is written is pending: %q", text)
	}
	if text := kube.Contested(ledger.New(ledger.Facts{}).View(), claims.Pending("n")); text != "" {
		t.Errorf("a node without devices: %s", text)
	}
}

// TestAttributesOfDrivers: names as drivers publish them.
func TestAttributesOfDrivers(t *testing.T) {
	t.Parallel()
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	type attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute
	for name, c := range map[string]struct {
		attributes
		want string
	}{
		"NVIDIA": {
			attributes{"uuid": text("GPU-a"), "resource.kubernetes.io/pciBusID": text("0000:01:00.0")},
			"GPU-a||0000:01:00.0",
		},
		"MIG of NVIDIA": {attributes{"uuid": text("MIG-a"), "parentUUID": text("GPU-a")}, "MIG-a|GPU-a|"},
		"DraNet":        {attributes{"dra.net/pciAddress": text("0000:02:00.0")}, "||0000:02:00.0"},
		"AMD":           {attributes{"pciAddr": text("0000:03:00.0")}, "||0000:03:00.0"},
		"standard first": {
			attributes{"pciAddr": text("0000:03:00.0"), "x.y/pciBusID": text("0000:04:00.0")}, "||0000:04:00.0",
		},
		"not an address": {
			attributes{"pciBusID": text("slot 3"), "pciAddr": text("0000:03:00.0")}, "||0000:03:00.0",
		},
		"number":            {attributes{"uuid": {IntValue: new(int64(7))}}, "||"},
		"CPUs":              {attributes{"dra.cpu/numaNodeID": {IntValue: new(int64(1))}}, "||"},
		"similar":           {attributes{"notuuid": text("GPU-a"), "x/uuids": text("GPU-b")}, "||"},
		"empty":             {attributes{"uuid": text("")}, "||"},
		"domain of its own": {attributes{"gpu.nvidia.com/uuid": text("GPU-a")}, "GPU-a||"},
	} {
		s := &resourcev1.ResourceSlice{}
		s.Spec.Driver, s.Spec.Pool.Name, s.Spec.NodeName = "d", "p/q", new("n")
		s.Spec.Devices = []resourcev1.Device{{Name: "x", Attributes: c.attributes}}
		got := convert.PublishedBy(s)[0]
		ids := got.UUID + "|" + got.Parent + "|" + got.Bus
		if ids != c.want || got.Name != "d/p/q/x" || got.Node != "n" {
			t.Errorf("%s: %q of %s on %s, want %q", name, ids, got.Name, got.Node, c.want)
		}
	}
	if got := convert.OnlyNode(nil); got != "" {
		t.Errorf("no selector selects %q", got)
	}
	selector := allocated("c", "1", "d", "n", "x").Status.Allocation.NodeSelector
	if got := convert.OnlyNode(selector); got != "n" {
		t.Errorf("a selector of one node selects %q", got)
	}
	selector.NodeSelectorTerms[0].MatchFields[0].Values = []string{"n", "m"}
	if got := convert.OnlyNode(selector); got != "" {
		t.Errorf("a selector of two nodes selects %q", got)
	}
	selector.NodeSelectorTerms = slices.Repeat(selector.NodeSelectorTerms, 2)
	if got := convert.OnlyNode(selector); got != "" {
		t.Errorf("two terms select %q", got)
	}
}

// TestDevicesThatClaimsHaveAndNoSliceLists: driver d has published device x of pool n with counters in slice s, and
// claim c has it.
func TestDevicesThatClaimsHaveAndNoSliceLists(t *testing.T) {
	t.Parallel()
	counted := func(name string, generation int64, devices ...string) *resourcev1.ResourceSlice {
		s := publishes(name, "d", "n", generation, devices...)
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "set"}}
		}
		return s
	}
	elsewhere := counted("s", 1, "y=b")
	elsewhere.Spec.Pool.Name = "m"
	for name, c := range map[string]struct {
		then func(c *kube.Claims)
		want string
	}{
		"listed":        {func(*kube.Claims) {}, ""},
		"not listed":    {func(c *kube.Claims) { c.PutSlice(counted("s", 1, "y=b")) }, "x"},
		"in no slice":   {func(c *kube.Claims) { c.RemoveSlice("s") }, "x"},
		"in no pool":    {func(c *kube.Claims) { c.PutSlice(elsewhere) }, "x"},
		"still missing": {func(c *kube.Claims) { c.RemoveSlice("s"); c.PutSlice(counted("r", 1, "y=b")) }, "x"},
		"listed by an older generation": {
			func(c *kube.Claims) { c.PutSlice(counted("r", 2, "y=b")) }, "x",
		},
		"listed by a newer generation": {
			func(c *kube.Claims) { c.PutSlice(counted("r", 2, "x=a")); c.RemoveSlice("s") }, "",
		},
		"listed by another slice": {
			func(c *kube.Claims) { c.PutSlice(counted("r", 1, "x=a")); c.RemoveSlice("s") }, "",
		},
		"listed again": {
			func(c *kube.Claims) { c.RemoveSlice("s"); c.PutSlice(counted("r", 1, "x=a")) }, "",
		},
		"listed again without any": {func(c *kube.Claims) { c.PutSlice(publishes("s", "d", "n", 1, "x=a")) }, ""},
		"not listed, and deallocated": {
			func(c *kube.Claims) { c.RemoveSlice("s"); c.PutClaim(allocated("c", "2", "d", "n")) }, "",
		},
		"not listed, and the claim is gone": {
			func(c *kube.Claims) { c.RemoveSlice("s"); c.RemoveClaim(allocated("c", "2", "d", "n")) }, "",
		},
		"not listed, for an administrator": {
			func(c *kube.Claims) {
				admin := allocated("c", "2", "d", "n", "x")
				admin.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
				c.PutClaim(admin)
				c.RemoveSlice("s")
			}, "",
		},
		"promised and not listed": {
			func(c *kube.Claims) {
				c.RemoveClaim(allocated("c", "2", "d", "n"))
				c.Pend(allocated("e", "1", "d", "n", "x"))
				c.RemoveSlice("s")
			}, "x",
		},
		"not listed, and promised no more": {
			func(c *kube.Claims) {
				c.RemoveClaim(allocated("c", "2", "d", "n"))
				c.Pend(allocated("e", "1", "d", "n", "x"))
				c.RemoveSlice("s")
				c.Unpend("e")
			}, "",
		},
		"promised, not listed, and the claim is gone": {
			func(c *kube.Claims) {
				c.RemoveClaim(allocated("c", "2", "d", "n"))
				c.Pend(allocated("e", "1", "d", "n", "x"))
				c.RemoveSlice("s")
				c.RemoveClaim(allocated("e", "1", "d", "n"))
			}, "",
		},
		"without counters": {
			func(c *kube.Claims) { c.PutSlice(publishes("s", "d", "n", 1, "x=a")); c.RemoveSlice("s") }, "",
		},
	} {
		_, claims := cards()
		claims.PutSlice(counted("s", 1, "x=a"))
		claims.PutClaim(allocated("c", "1", "d", "n", "x"))
		c.then(claims)
		got := ""
		for _, d := range claims.Lost() {
			got += d.Device.Name
			if d.Driver != "d" || d.Pool != "n" || *d.NodeName != "n" {
				t.Errorf("%s: got %+v", name, d)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q is lost, want %q", name, got, c.want)
		}
	}
}

// TestClaimsWithNegativeShares are known while they are written.
func TestClaimsWithNegativeShares(t *testing.T) {
	t.Parallel()
	share := func(version, amount string) *resourcev1.ResourceClaim {
		c := allocated("c", version, "d", "n", "x")
		c.Status.Allocation.Devices.Results[0].ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{
			"memory": resource.MustParse(amount),
		}
		return c
	}
	_, claims := cards()
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"positive", func() { claims.PutClaim(share("1", "40")) }, 0},
		{"negative", func() { claims.PutClaim(share("2", "-40")) }, 1},
		{"zero", func() { claims.PutClaim(share("3", "0")) }, 0},
		{"negative again", func() { claims.PutClaim(share("4", "-1")) }, 1},
		{"deallocated", func() { claims.PutClaim(allocated("c", "5", "d", "n")) }, 0},
		{"negative at last", func() { claims.PutClaim(share("6", "-1")) }, 1},
		{"gone", func() { claims.RemoveClaim(share("6", "-1")) }, 0},
	} {
		if step.do(); len(claims.Negative()) != step.want {
			t.Errorf("%s: got %v", step.name, claims.Negative())
		}
	}
}

// TestWhatAPodIsPromised: its claims without a written allocation, and the one that is made for its extended resources.
func TestWhatAPodIsPromised(t *testing.T) {
	t.Parallel()
	_, claims := cards()
	extended, written := allocated("x", "1", "d", "n", "x"), allocated("w", "1", "d", "n", "y")
	controls := true
	extended.OwnerReferences = []metav1.OwnerReference{{UID: "pod", Controller: &controls}}
	claims.Pend(extended)
	claims.Pend(allocated("b", "1", "d", "n", "x"))
	claims.Pend(allocated("other", "1", "d", "n", "x"))
	claims.PutClaim(written)
	var got []string
	own := []*resourcev1.ResourceClaim{allocated("b", "1", "d", "n"), written, allocated("none", "1", "d", "n")}
	for _, c := range claims.PendingOf("pod", own...) {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff([]string{"b", "x"}, got); diff != "" {
		t.Errorf("promised (-want +got):\n%s", diff)
	}
}

// TestClaimsDependOnTheLastObjectsAlone: whatever has happened to claims, slices and Devices, the accounts are those of
// a new process that gets what is left in any order; promises come and go in between.
func TestClaimsDependOnTheLastObjectsAlone(t *testing.T) {
	t.Parallel()
	held := 0
	rapid.Check(t, func(t *rapid.T) {
		lived, claims := cards()
		version := 0
		slices, states := map[string]*resourcev1.ResourceSlice{}, map[string]*resourcev1.ResourceClaim{}
		one := func(values ...string) string { return rapid.SampledFrom(values).Draw(t, "one") }
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			version++
			name := one("0", "1")
			switch one("slice", "claim", "claim", "no slice", "no claim", "promise") {
			case "slice":
				slices[name] = publishes(name, one("d", "e"), "n", int64(version%2),
					"x="+one("GPU-a", "GPU-b", "z"), "y@"+one("00:00.0", "01:00.0"))
				claims.PutSlice(slices[name])
			case "no slice":
				delete(slices, name)
				claims.RemoveSlice(name)
			case "claim":
				states[name] = allocated(name, fmt.Sprint(version), one("d", "e"), "n",
					[][]string{nil, {"x"}, {"x", "y"}, {"gone"}}[rapid.IntRange(0, 3).Draw(t, "devices")]...)
				claims.PutClaim(states[name])
			case "no claim":
				if states[name] != nil {
					claims.RemoveClaim(states[name])
				}
				delete(states, name)
			case "promise":
				promised := allocated("promised", "1", "d", "n", "x")
				claims.Pend(promised)
				claims.Unpend(promised.UID)
			}
		}
		rebuilt, again := cards()
		if one("claims first", "slices first") == "claims first" {
			for _, c := range states {
				again.PutClaim(c)
			}
		}
		for _, s := range slices {
			again.PutSlice(s)
		}
		for _, c := range states {
			again.PutClaim(c)
		}
		held += len(who(lived))
		if diff := cmp.Diff(who(rebuilt), who(lived)); diff != "" || !rebuilt.View("n").Equal(lived.View("n")) {
			t.Fatalf("accounts (-of the last objects +of the history):\n%s", diff)
		}
	})
	if held == 0 && !testing.Short() {
		t.Error("no claim had a card: the generator is too narrow")
	}
}

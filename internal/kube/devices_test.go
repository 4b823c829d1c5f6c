package kube_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// serverOf is the Device of a node with four GPUs and two NICs, of which some may fail, be gone or have other minors.
type serverOf struct {
	sick, gone int   // indices; -1 = none
	shift      int32 // of minors
	mode       string
}

func (s serverOf) device(node string) *devicev1alpha1.Device {
	d := &devicev1alpha1.Device{}
	d.Name = node
	if s.mode != "" {
		d.Annotations = map[string]string{annotation.DeviceModeKey: s.mode}
	}
	for i := range 6 {
		kind, minor := "gpu", (int32(i)+s.shift)%4
		amounts := `{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"16Gi"}`
		if i > 3 {
			kind, amounts = "rdma", `{"koordinator.sh/rdma":"100"}`
		}
		one, _, err := devicev1alpha1.Decode(fmt.Appendf(nil,
			`{"spec":{"devices":[{"type":%q,"id":"%s-%s-%d","minor":%d,"health":%t,"resources":%s,`+
				`"topology":{"socketID":0,"nodeID":%d,"busID":"0000:0%d:00.0"}}]}}`,
			kind, node, kind, i, minor, i != s.sick, amounts, i%2, i))
		if err != nil {
			panic(err)
		}
		if i != s.gone {
			d.Spec.Devices = append(d.Spec.Devices, one.Spec.Devices...)
		}
	}
	return d
}

func drawServer(t *rapid.T) serverOf {
	return serverOf{
		sick: rapid.IntRange(-1, 5).Draw(t, "sick"), gone: rapid.IntRange(-1, 5).Draw(t, "gone"),
		shift: rapid.Int32Range(0, 1).Draw(t, "shift"),
		mode:  rapid.SampledFrom([]string{"", "", "Follow", "odd"}).Draw(t, "mode"),
	}
}

// statuses is the account of a node's devices.
func statuses(v *ledger.View) []string {
	var out []string
	if v.Devices() == nil {
		return nil
	}
	for s := range v.Devices().Devices() {
		out = append(out, fmt.Sprintf("%s %s: used %v, free %v, %d holders", s.Type, s.ID, s.Used, s.Free, s.Holders))
	}
	return out
}

// holding is a pod of node, or of none, with a device-allocated annotation; "" for none.
func holding(name, node, allocated string) *corev1.Pod {
	p := pod(name, node, 0, "")
	p.Labels, p.Spec.Containers[0].Resources = nil, corev1.ResourceRequirements{}
	if allocated != "" {
		p.Annotations[annotation.DeviceAllocatedKey] = allocated
	}
	return p
}

// TestLiveDevicesEqualARebuild is P1: whatever the order of events, with duplicates and replays, the account is the one
// of the last objects.
func TestLiveDevicesEqualARebuild(t *testing.T) {
	t.Parallel()
	big, small := machine(t, 2, 4), machine(t, 1, 4)
	held := 0
	rapid.Check(t, func(rt *rapid.T) {
		world := map[string]func(*kube.Store){} // last event of each object
		live := kube.NewStore()
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			name := fmt.Sprintf("n%d", rapid.IntRange(0, 1).Draw(rt, "node"))
			uid := fmt.Sprintf("p%d", rapid.IntRange(0, 5).Draw(rt, "pod"))
			var key string
			var event func(*kube.Store)
			switch rapid.IntRange(0, 9).Draw(rt, "kind") {
			case 0:
				isolation := rapid.SampledFrom([]string{"", "a"}).Draw(rt, "isolation")
				labels := map[string]string{annotation.GPUIsolationLabel: isolation}
				if rapid.Bool().Draw(rt, "odd label") {
					labels[annotation.NodeNUMATopologyPolicy] = "odd"
				}
				n := node(name, labels)
				if rapid.IntRange(0, 3).Draw(rt, "leaving") == 0 {
					n.Annotations = map[string]string{annotation.LeaveKey: "true"}
				}
				key, event = "node/"+name, func(s *kube.Store) { s.PutNode(n) }
			case 1:
				key, event = "node/"+name, func(s *kube.Store) { s.RemoveNode(name) }
			case 2:
				m := rapid.SampledFrom([]*topo.Machine{big, small}).Draw(rt, "machine")
				key, event = "topology/"+name, func(s *kube.Store) { s.PutTopology(topology(t, name, m)) }
			case 3:
				key, event = "topology/"+name, func(s *kube.Store) { s.RemoveTopology(name) }
			case 4, 5:
				server := drawServer(rt)
				key, event = "device/"+name, func(s *kube.Store) { s.PutDevice(server.device(name)) }
			case 6:
				key, event = "device/"+name, func(s *kube.Store) { s.RemoveDevice(name) }
			case 7:
				key, event = "pod/"+uid, func(s *kube.Store) { s.RemovePod(holding(uid, "", "")) }
			default:
				allocated := drawAllocated(rt, name)
				key, event = "pod/"+uid, func(s *kube.Store) { s.PutPod(holding(uid, name, allocated)) }
			}
			world[key] = event
			for range rapid.IntRange(1, 2).Draw(rt, "copies") {
				event(live)
			}
			if rapid.IntRange(0, 9).Draw(rt, "replay") == 0 {
				for _, k := range keysIn(rt, world) {
					world[k](live)
				}
			}
		}
		rebuilt := kube.NewStore()
		for _, k := range keysIn(rt, world) {
			world[k](rebuilt)
		}
		for _, name := range []string{"n0", "n1"} {
			got, want := live.View(name), rebuilt.View(name)
			if diff := cmp.Diff(statuses(want), statuses(got)); diff != "" || !got.Equal(want) {
				rt.Fatalf("account of %s (-rebuilt +live):\n%s", name, diff)
			}
			if (rebuilt.Known(name) == nil) != (live.Known(name) == nil) {
				rt.Fatalf("Known(%s): rebuilt %v, live %v", name, rebuilt.Known(name), live.Known(name))
			}
			last, _ := rebuilt.Node(name)
			now, _ := live.Node(name)
			if diff := cmp.Diff(last.Problems, now.Problems, cmpopts.EquateEmpty()); diff != "" {
				rt.Fatalf("problems of %s (-rebuilt +live):\n%s", name, diff)
			}
			held += strings.Count(strings.Join(statuses(got), "\n"), " 1 holders")
		}
	})
	if held < 20 && !testing.Short() {
		t.Errorf("only %d devices were held at the end: the generator is too narrow", held)
	}
}

// drawAllocated draws an annotation about devices of a server: with ids, or with the minors of old versions.
func drawAllocated(t *rapid.T, node string) string {
	return rapid.SampledFrom([]string{
		`{"gpu":[{"id":"` + node + `-gpu-0","minor":0,"resources":{"koordinator.sh/gpu-core":"50",` +
			`"koordinator.sh/gpu-memory":"4Gi"}}]}`,
		`{"gpu":[{"id":"` + node + `-gpu-1","minor":1,"resources":{"koordinator.sh/gpu-core":"100",` +
			`"koordinator.sh/gpu-memory-ratio":"100"}},` +
			`{"id":"` + node + `-gpu-2","minor":2,"resources":{"koordinator.sh/gpu-core":"100",` +
			`"koordinator.sh/gpu-memory-ratio":"100"}}]}`,
		`{"gpu":[{"minor":3,"resources":{"koordinator.sh/gpu-core":"20"}}],"rdma":[{"minor":1,"resources":` +
			`{"koordinator.sh/rdma":"1"}}]}`,
		`{"rdma":[{"id":"gone","resources":{"koordinator.sh/rdma":"100"}}]}`,
	}).Draw(t, "allocated")
}

// requestFor is what a pod asks for that is not bound yet.
func requestFor(t interface{ Fatal(...any) }, name string, asks map[string]int64) *place.Request {
	r, reason, detail := convert.Request(holding(name, "", ""), convert.DefaultArgs())
	if !reason.OK() {
		t.Fatal(reason, detail)
	}
	var faults []device.Fault
	r.Devices, faults = device.NewRequest(device.Pod{
		Containers: []device.Container{{Name: "c", Requests: asks, Limits: asks}},
	}, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return r
}

// TestNoDeviceIsGivenTwice is P2 through commits: no device has more used than it has, whatever becomes of devices and
// pods, and a pod that the API server confirms changes nothing.
func TestNoDeviceIsGivenTwice(t *testing.T) {
	t.Parallel()
	committed, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		live := kube.NewStore()
		live.PutNode(node("n", nil))
		if rapid.Bool().Draw(rt, "topology") {
			live.PutTopology(topology(t, "n", machine(t, 2, 4)))
		}
		server := serverOf{sick: -1, gone: -1}
		live.PutDevice(server.device("n"))
		bound, offers := map[string]*corev1.Pod{}, map[string]ledger.Offer{} // by pod; confirmed or not
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			uid := fmt.Sprintf("p%d", rapid.IntRange(0, 7).Draw(rt, "pod"))
			offer, assumed := offers[uid]
			switch rapid.IntRange(0, 6).Draw(rt, "kind") {
			case 0:
				server = drawServer(rt)
				live.PutDevice(server.device("n"))
			case 1:
				live.RemoveDevice("n")
			case 2:
				if assumed {
					before := live.View("n")
					bound[uid] = holding(uid, "n", convert.Allocations(offer.Entry.Devices).String())
					delete(offers, uid)
					if live.PutPod(bound[uid]); live.View("n") != before {
						rt.Fatalf("pod %s with %v is read as another entry", uid, bound[uid].Annotations)
					}
				} else {
					delete(bound, uid)
					live.RemovePod(holding(uid, "", ""))
				}
			case 3:
				if assumed {
					live.Revert("n", offer)
					delete(offers, uid)
				}
			default:
				if bound[uid] != nil || assumed {
					continue
				}
				asks := rapid.SampledFrom([]map[string]int64{
					{device.GPUPercent: 60},
					{device.GPUPercent: 30},
					{device.NVIDIAGPU: 2},
					{device.GPURatio: 20},
					{device.RDMAShare: 60},
					{device.NVIDIAGPU: 1, device.RDMAShare: 100},
				}).Draw(rt, "asks")
				view := live.View("n")
				offer, reason := place.Try(view, requestFor(t, uid, asks))
				if !reason.OK() || len(offer.Entry.Devices) == 0 { // left to the kubelet
					refused++
					continue
				}
				if err := live.Commit("n", offer); err != nil {
					rt.Fatalf("commit %v: %v", asks, err)
				}
				if err := live.Commit("n", offer); !errors.Is(err, ledger.ErrExpired) {
					rt.Fatalf("the same offer again: %v", err)
				}
				offers[uid] = offer
				committed++
			}
			if v := live.View("n").Devices(); v != nil {
				for s := range v.Devices() {
					if !s.Used.Within(&s.Total) {
						rt.Fatalf("device %s: used %v of %v", s.ID, s.Used, s.Total)
					}
				}
			}
		}
		live.PutDevice(serverOf{sick: -1, gone: -1}.device("n"))
		for uid, offer := range offers {
			bound[uid] = holding(uid, "n", convert.Allocations(offer.Entry.Devices).String())
			live.PutPod(bound[uid])
		}
		rebuilt := kube.NewStore()
		rebuilt.PutDevice(serverOf{sick: -1, gone: -1}.device("n"))
		for _, p := range bound {
			rebuilt.PutPod(p)
		}
		if diff := cmp.Diff(statuses(rebuilt.View("n")), statuses(live.View("n"))); diff != "" {
			rt.Fatalf("all is healthy again (-rebuilt +live):\n%s", diff)
		}
	})
	if (committed < 100 || refused < 20) && !testing.Short() {
		t.Errorf("%d pods committed, %d refused: the generator is too narrow", committed, refused)
	}
}

// TestARecreatedDeviceFindsItsHolders: a GPU in use is not given again after the object was away.
func TestARecreatedDeviceFindsItsHolders(t *testing.T) {
	t.Parallel()
	s, server := kube.NewStore(), serverOf{sick: -1, gone: -1}
	s.PutNode(node("n", nil))
	s.PutDevice(server.device("n"))
	offer, reason := place.Try(s.View("n"), requestFor(t, "a", map[string]int64{device.NVIDIAGPU: 4}))
	if !reason.OK() {
		t.Fatal(reason)
	}
	testkit.Check(t, s.Commit("n", offer))
	before := statuses(s.View("n"))
	s.PutPod(holding("a", "n", convert.Allocations(offer.Entry.Devices).String()))
	s.RemoveDevice("n")
	another := requestFor(t, "b", map[string]int64{device.GPUPercent: 10})
	if _, reason = place.Try(s.View("n"), another); reason.Code != why.DeviceMissing {
		t.Errorf("without the object: %v, want DeviceMissing", reason)
	}
	renumbered := server
	renumbered.shift = 1
	s.PutDevice(renumbered.device("n"))
	if diff := cmp.Diff(before, statuses(s.View("n"))); diff != "" {
		t.Errorf("with the object again (-before +after):\n%s", diff)
	}
	if _, reason = place.Try(s.View("n"), another); reason.Code != why.InsufficientDevices {
		t.Errorf("with the object again: %v, want InsufficientDevices", reason)
	}
	s.RemovePod(holding("a", "n", ""))
	if _, reason = place.Try(s.View("n"), another); !reason.OK() {
		t.Errorf("without the pod: %v", reason)
	}
}

func TestADamagedAllocationOfARunningPodKeepsItsDevices(t *testing.T) {
	t.Parallel()
	damages := map[string]func(*corev1.Pod){
		"removed":  func(p *corev1.Pod) { delete(p.Annotations, annotation.DeviceAllocatedKey) },
		"not JSON": func(p *corev1.Pod) { p.Annotations[annotation.DeviceAllocatedKey] = "gpu" },
		"empty":    func(p *corev1.Pod) { p.Annotations[annotation.DeviceAllocatedKey] = "{}" },
		"removed, with a change of its class": func(p *corev1.Pod) {
			delete(p.Annotations, annotation.DeviceAllocatedKey)
			p.Labels = map[string]string{annotation.QoSClass: "BE"}
		},
	}
	for name, damage := range damages {
		s := kube.NewStore()
		s.PutDevice(serverOf{sick: -1, gone: -1}.device("n"))
		s.PutPod(holding("p", "n", `{"gpu":[{"id":"n-gpu-0","resources":{"koordinator.sh/gpu-core":"50"}}]}`))
		before := statuses(s.View("n"))
		damaged := holding("p", "n", "")
		damage(damaged)
		s.PutPod(damaged)
		if diff := cmp.Diff(before, statuses(s.View("n"))); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
		if got := s.Differences([]*corev1.Pod{damaged}); len(got) != 0 {
			t.Errorf("%s: the audit finds %v", name, got)
		}
		damaged.Status.Phase = corev1.PodSucceeded
		s.PutPod(damaged)
		if diff := cmp.Diff(before, statuses(s.View("n"))); diff == "" {
			t.Errorf("%s: a pod that has ended holds devices", name)
		}
	}
}

func TestDeviceCacheKeepsTheSpecAndWhatCouldNotBeRead(t *testing.T) {
	object := func(name, spec string) *unstructured.Unstructured {
		return decoded(t, `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Device","metadata":{"name":`+
			`"`+name+
			`","labels":{"a":"b"},"managedFields":[{"manager":"m"}]},"spec":`+spec+
			`,"status":{"allocations":[{"type":"gpu","entries":[{"name":"p"}]}]}}`)
	}
	c, _ := client(t, object("fine", `{"devices":[{"deviceType":"gpu","id":"GPU-0","health":true}]}`),
		object("odd", `{"devices":[{"type":"gpu","id":7},{"type":"gpu","id":"GPU-1"}]}`))
	i := kube.NewDeviceInformer(c)
	start(t, i)
	keys := i.GetStore().ListKeys()
	if slices.Sort(keys); !slices.Equal(keys, []string{"fine", "odd"}) {
		t.Fatalf("got %v, want both", keys)
	}
	get := func(name string) *devicev1alpha1.Device {
		o, _, _ := i.GetStore().GetByKey(name)
		return o.(*devicev1alpha1.Device)
	}
	fine, odd := get("fine"), get("odd")
	if fine.Spec.Devices[0].Type != "gpu" || fine.Labels["a"] != "b" || fine.Unread != nil || fine.Kind != "Device" {
		t.Errorf("lost what is read: %+v", fine)
	}
	if fine.Status.Allocations != nil || fine.ManagedFields != nil {
		t.Errorf("kept what is not read: %+v", fine)
	}
	if len(odd.Spec.Devices) != 1 || odd.Unread["spec.devices[0].id"] == "" {
		t.Errorf("one odd device: %+v", odd)
	}
	s := kube.NewStore()
	s.PutDevice(odd)
	if n, _ := s.Node("odd"); n.Devices != odd || len(n.Problems) != 1 || n.Problems[0].Object != "Device/odd" {
		t.Errorf("the node: %+v", n)
	}
	before := s.View("odd")
	reported := odd.DeepCopy()
	reported.ResourceVersion = "2"
	if s.PutDevice(reported); s.View("odd") != before {
		t.Error("a new version that says the same is a change")
	}
	if s.RemoveDevice("odd"); s.Known("odd") != nil {
		t.Error("a node that nothing names is forgotten")
	}
}

// The kinds of devices are those of all Device objects, in one order, and another value only when they have changed.
func TestKindsOfAllNodes(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	put := func(node, devices string) *device.Kinds {
		d, err := kube.ReadDevice([]byte(`{"metadata":{"name":"` + node + `"},"spec":{"devices":[` + devices + `]}}`))
		testkit.Check(t, err)
		s.PutDevice(d)
		return s.Kinds().Load()
	}
	const dpu = `{"type":"dpu","id":"d","health":true,"resources":{"example.com/dpu":"1"}}`
	const qat = `{"type":"qat","id":"q","health":true,"resources":{"example.com/qat":"100"}}`
	if kinds := put("n0", `{"type":"gpu","id":"g","health":true}`); kinds != nil {
		t.Errorf("with a GPU alone: %v", kinds)
	}
	first := put("n1", qat+","+dpu)
	want := device.Kinds{
		{Type: "dpu", Resource: "example.com/dpu", Unit: 1}, {Type: "qat", Resource: "example.com/qat", Unit: 100},
	}
	if first == nil || !slices.Equal(*first, want) {
		t.Fatalf("got %v, want %v", first, want)
	}
	if again := put("n2", dpu); again != first {
		t.Errorf("a second node makes another value: %v", *again)
	}
	s.RemoveDevice("n1")
	if left := s.Kinds().Load(); !slices.Equal(*left, want[:1]) {
		t.Errorf("after one of them is gone: %v, want %v", *left, want[:1])
	}
	put("n2", `{"type":"gpu","id":"g","health":true}`)
	if left := s.Kinds().Load(); len(*left) != 0 {
		t.Errorf("after all are gone: %v", *left)
	}
}

// TestANodeIsClosedUntilItsHoldersAreKnown: in any order of events, no pod gets a device while another one may have any
// of them, and none gets what the kubelet gave away.
func TestANodeIsClosedUntilItsHoldersAreKnown(t *testing.T) {
	t.Parallel()
	closed, opened := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		live := kube.NewStore()
		live.PutNode(node("n", nil))
		server := serverOf{sick: -1, gone: -1, mode: rapid.SampledFrom([]string{"Own", "Moving"}).Draw(rt, "mode")}
		live.PutDevice(server.device("n"))
		there, reported := map[string]bool{}, map[string]int{} // pods of another scheduler, and their GPUs
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			uid := fmt.Sprintf("p%d", rapid.IntRange(0, 2).Draw(rt, "pod"))
			switch rapid.IntRange(0, 2).Draw(rt, "event") {
			case 0:
				p := holding(uid, "n", "")
				p.Spec.Containers[0].Resources.Limits = testobject.List("nvidia.com/gpu", "1")
				live.PutPod(p)
				there[uid] = true
			case 1:
				live.RemovePod(holding(uid, "", ""))
				delete(there, uid)
			default:
				clear(reported)
				list := annotation.DevicesCheckpoints{}
				for _, minor := range rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 0, 3, rapid.ID).Draw(rt, "reported") {
					gpu := rapid.IntRange(0, 3).Draw(rt, "GPU")
					reported[fmt.Sprintf("p%d", minor)] = gpu
					list = append(list, annotation.DevicesCheckpoint{
						PodUID: types.UID(fmt.Sprintf("p%d", minor)), ResourceName: "nvidia.com/gpu",
						DeviceIDs: []string{fmt.Sprintf("n-gpu-%d::0", gpu)},
					})
				}
				d := server.device("n")
				d.Annotations[annotation.DevicesCheckpointsKey] = list.String()
				live.PutDevice(d)
			}
			unknown, taken := false, map[string]bool{}
			for uid := range there {
				_, known := reported[uid]
				unknown = unknown || !known
			}
			for _, gpu := range reported {
				taken[fmt.Sprintf("n-gpu-%d", gpu)] = true
			}
			offer, reason := place.Try(live.View("n"), requestFor(rt, "new", map[string]int64{"nvidia.com/gpu": 1}))
			switch {
			case unknown:
				closed++
				if reason.Code != why.ForeignDevices {
					rt.Fatalf("got %v and %+v, want the node to be closed", reason, offer.Entry.Devices)
				}
			case !reason.OK():
				rt.Fatalf("%d GPUs are taken, and none is given: %v", len(taken), reason)
			default:
				opened++
				if id := offer.Entry.Devices[0].ID; taken[id] {
					rt.Fatalf("GPU %s is given, which the kubelet gave away", id)
				}
			}
		}
	})
	if (closed == 0 || opened == 0) && !testing.Short() {
		t.Errorf("closed %d times, open %d times: the generator is too narrow", closed, opened)
	}
}

package sim

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestKnownFaultsOfAllocators: inputs that allocators have answered wrongly. Node n0 has two NUMA nodes.
func TestKnownFaultsOfAllocators(t *testing.T) {
	t.Parallel()
	class := func(driver string) string {
		return resourceObject("DeviceClass", driver, "spec: {selectors: [{cel: {expression: \"device.driver == '"+
			driver+"'\"}}]}")
	}
	// counted is a pool with counter memory of set, and devices of which each is NAME USE, FIELDS.
	counted := func(driver string, memory int, devices ...string) string {
		var list []string
		for _, d := range devices {
			name, rest, _ := strings.Cut(d, " ")
			use, fields, _ := strings.Cut(rest, ",")
			if fields != "" {
				fields = "," + fields
			}
			list = append(list, fmt.Sprintf("{name: %s, consumesCounters: [{counterSet: set, counters: {memory: "+
				"{value: %s}}}]%s}", name, use, fields))
		}
		return sliceOf(driver+"a", driver, "n0", 1, 2, fmt.Sprintf("sharedCounters: [{name: set, counters: {memory: "+
			"{value: %d}}}]", memory)) + sliceOf(driver+"b", driver, "n0", 1, 2, "devices: ["+
			strings.Join(list, ", ")+"]")
	}
	named := func(name, claim string) string { return strings.Replace(claim, "name: c}", "name: "+name+"}", 1) }
	numa := func(values ...int) string {
		var list []string
		for i, n := range values {
			list = append(list, fmt.Sprintf("{name: d%d, attributes: {numa: {int: %d}}}", i, n))
		}
		return sliceOf("s", "gpu", "n0", 1, 1, "devices: ["+strings.Join(list, ", ")+"]")
	}
	selecting := func(name string) string {
		return ofGPU("r", ", selectors: [{cel: {expression: \"device.attributes['gpu'].kind == '"+name+"'\"}}]")
	}
	kind := func(k string) string { return ", attributes: {kind: {string: " + k + "}}" }
	// sized are devices by size, of which the last one is tainted; five are more results of a claim with d0.
	sized := func(sizes ...int) string {
		var list []string
		for i, n := range sizes {
			list = append(list, fmt.Sprintf("{name: d%d, attributes: {size: {int: %d}}}", i, n))
		}
		last := len(list) - 1
		list[last] = strings.TrimSuffix(list[last], "}") + ", taints: [{key: k, effect: NoSchedule}]}"
		return sliceOf("s", "gpu", "n0", 1, 1, "devices: ["+strings.Join(list, ", ")+"]")
	}
	five := ""
	for i := range 4 {
		five += fmt.Sprintf(", {request: r, driver: gpu, pool: n0, device: d%d}", i+1)
	}
	const share = ", shareID: 2f9f3a2e-0000-4000-8000-00000000000"
	const shared = ", allowMultipleAllocations: true"
	holder := exclusive("o", 2, "LS", ", uid: o", "\n  nodeName: n0"+with("=held"))
	pod := exclusive("p", 2, "LS", "", with("=c"))
	for name, c := range map[string]struct{ in, want string }{
		"two drivers have counter sets of one name in pools of one name": {
			class("nic") + counted("gpu", 1, "d0 1") + counted("nic", 1, "d0 1") +
				claimFor(ofGPU("r", "")+", {name: q, exactly: {deviceClassName: nic}}", ""),
			"p Scheduled gpu/n0/d0 nic/n0/d0",
		},
		"a share uses the counter of its device up": {
			counted("gpu", 80, "d0 80"+shared+kind("whole"), "d1 40"+kind("part")) + holder +
				named("held", claimFor(ofGPU("r", ""), given("d0", share+"1", "o"))) + claimFor(selecting("part"), ""),
			"p Unschedulable InsufficientClaimDevices",
		},
		"all devices with counters": {
			counted("gpu", 80, "d0 40", "d1 40") + claimFor(ofGPU("r", ", allocationMode: All"), ""),
			"p Scheduled gpu/n0/d0 gpu/n0/d1",
		},
		"a second share of a device uses its counter once": {
			counted("gpu", 1, "d0 1"+shared) + holder +
				named("held", claimFor(ofGPU("r", ""), given("d0", share+"1", "o"))) + claimFor(ofGPU("r", ""), ""),
			"p Scheduled gpu/n0/d0",
		},
		"a tainted device uses no counter": {
			counted("gpu", 1, "d0 1, taints: [{key: k, effect: NoSchedule}]", "d1 1") + claimFor(ofGPU("r", ""), ""),
			"p Scheduled gpu/n0/d1",
		},
		"three distinct devices of four": {
			numa(1, 2, 1, 3) + claimFor(ofGPU("r", ", count: 3"), ", constraints: [{distinctAttribute: gpu/numa}]"),
			"p Scheduled gpu/n0/d0 gpu/n0/d1 gpu/n0/d3",
		},
		"a capacity that overflows when rounded up": {
			sliceOf("s", "gpu", "n0", 1, 1, "devices: [{name: d0"+shared+", capacity: {memory: {value: "+
				"9223372036854775807, requestPolicy: {default: 10, validRange: {min: 10, step: 10}}}}}]") +
				claimFor(ofGPU("r", ", capacity: {requests: {memory: 9223372036854775805}}"), ""),
			"p Unschedulable",
		},
		"all devices, and the pool of one node is invalid": {
			machine("n1") + strings.ReplaceAll(sliceOf("x", "gpu", "n0", 1, 1, "devices: [{name: d0}]"), "n0", "n1") +
				sliceOf("a", "gpu", "n0", 1, 2, "devices: [{name: d0}]") +
				sliceOf("b", "gpu", "n0", 1, 2, "devices: [{name: d0}]") +
				claimFor(ofGPU("r", ", allocationMode: All"), ""),
			"p Scheduled gpu/n1/d0",
		},
		"all of two is the first alternative, and one is taken": {
			numa(0, 1) + holder + named("held", claimFor(ofGPU("r", ""), given("d0", "", "o"))) +
				claimFor("{name: r, firstAvailable: [{name: all, deviceClassName: gpu, allocationMode: All}, "+
					"{name: one, deviceClassName: gpu}]}", ""),
			"p Scheduled gpu/n0/d1",
		},
		"all devices, and one is taken": {
			numa(0, 0, 1, 1) + holder + named("held", claimFor(ofGPU("r", ""), given("d0", "", "o"))) +
				claimFor(ofGPU("r", ", allocationMode: All"), ""),
			"1 allocated to default/held, 3 free",
		},
		"a whole card beside an allocated part": {
			counted("gpu", 80, "d0 40"+kind("part"), "d1 40"+kind("part"), "d2 80"+kind("full")) + holder +
				named("held", claimFor(ofGPU("r", ""), given("d0", "", "o"))) + claimFor(selecting("full"), ""),
			"1 with too little counter set/memory",
		},
		"a part beside an allocated part": {
			counted("gpu", 80, "d0 40"+kind("part"), "d1 40"+kind("part"), "d2 80"+kind("full")) + holder +
				named("held", claimFor(ofGPU("r", ""), given("d0", "", "o"))) + claimFor(selecting("part"), ""),
			"p Scheduled gpu/n0/d1",
		},
		"two shares of one device use its counter once": {
			counted("gpu", 4, "d0 3"+shared+", capacity: {memory: {value: 2}}") +
				claimFor(ofGPU("r", ", capacity: {requests: {memory: 1}}")+", "+
					ofGPU("q", ", capacity: {requests: {memory: 1}}"), ""),
			"p Scheduled gpu/n0/d0 gpu/n0/d0",
		},
		"two pods share an allocated claim, beside claims of their own": {
			numa(0, 0, 1) + holder + named("held", claimFor(ofGPU("r", ""), given("d0", "", "o"))) +
				claimFor(ofGPU("r", ""), "") + exclusive("q", 2, "LS", "", with("=c", "=held")),
			"p Scheduled gpu/n0/d1\nq Scheduled gpu/n0/d1 gpu/n0/d0",
		},
		"a stored share that is negative": {
			sliceOf("s", "gpu", "n0", 1, 1, "devices: [{name: d0"+shared+", capacity: {memory: {value: 80, "+
				"requestPolicy: {default: 40}}}}]") + holder + named("held", claimFor(ofGPU("r", ""),
				given("d0", share+"1, consumedCapacity: {memory: 80}", "o"))) + named("less", claimFor(ofGPU("r", ""),
				given("d0", share+"2, consumedCapacity: {memory: -40}", "o"))) + claimFor(ofGPU("r", ""), ""),
			"p Unschedulable InsufficientClaimDevices",
		},
		"a share that is asked for and negative": {
			sliceOf("s", "gpu", "n0", 1, 1, "devices: [{name: d0"+shared+", capacity: {memory: {value: 80}}}]") +
				claimFor(ofGPU("r", ", capacity: {requests: {memory: -40}}"), ""),
			"p Unschedulable PluginFailed",
		},
		"each device is counted once, at what first bars it": {
			sized(80, 80, 80, 80, 80, 40, 40, 80) + holder + named("held", claimFor(
				ofGPU("r", ", count: 5"), strings.Replace(given("d0", "", "o"), "d0}", "d0}"+five, 1))) +
				claimFor(ofGPU("r", ", selectors: [{cel: {expression: \"device.attributes['gpu'].size >= 80\"}}]"), ""),
			"requests 1 of 8 devices of class gpu: 2 fail selector `device.attributes['gpu'].size >= 80`, 1 tainted " +
				"k:NoSchedule, 5 allocated to default/held, 0 free",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := outcomeOf(t, machine("n0")+classGPU+c.in+pod); !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestConfigurationOfDevicesStaysWithItsRequests: pod p gets device d1, which is not the first one, for its CPUs are on
// that NUMA node. The configuration of classes and of the claim comes with the names of the requests that it is for.
func TestConfigurationOfDevicesStaysWithItsRequests(t *testing.T) {
	t.Parallel()
	opaque := func(driver string) string {
		return "opaque: {driver: " + driver + ", parameters: {of: " + driver + "}}"
	}
	class := func(driver string) string {
		return resourceObject("DeviceClass", driver, "spec: {selectors: [{cel: {expression: \"device.driver == '"+
			driver+"'\"}}], config: [{"+opaque(driver)+"}]}")
	}
	slice := func(driver string) string {
		var list []string
		for i := range 4 {
			list = append(list, fmt.Sprintf("{name: d%d, attributes: {resource.kubernetes.io/numaNode: "+
				"{int: %d}}}", i, i%2))
		}
		return sliceOf(driver, driver, "n0", 1, 1, "devices: ["+strings.Join(list, ", ")+"]")
	}
	const either = "{name: r, firstAvailable: [{name: a, deviceClassName: gpu}, {name: b, deviceClassName: gpu}]}"
	other := "{name: q, exactly: {deviceClassName: nic}}"
	for name, c := range map[string]struct {
		requests, config string
		want             []string
	}{
		"two classes": {ofGPU("r", "") + ", " + other, "", []string{"FromClass gpu [r]", "FromClass nic [q]"}},
		"two requests of one class": {
			ofGPU("r", "") + ", " + ofGPU("q", ""), "", []string{"FromClass gpu []"},
		},
		"two alternatives of one of two requests": {
			either + ", " + other, ", config: [{requests: [r/a, r/b], " + opaque("mine") + "}]",
			[]string{"FromClass gpu [r/a]", "FromClass nic [q]", "FromClaim mine [r/a r/b]"},
		},
		"an alternative that is not given": {
			either + ", " + other, ", config: [{requests: [r/b], " + opaque("mine") + "}]",
			[]string{"FromClass gpu [r/a]", "FromClass nic [q]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(withoutLog(t.Context()))
			defer cancel()
			w := worldOf(t, machine("n0")+class("gpu")+class("nic")+slice("gpu")+slice("nic")+
				exclusive("a-filler", 12, "LSR", "", "\n  priority: 9000")+claimFor(c.requests, c.config)+
				exclusive("p", 8, "LSR", "", with("=c")), nil)
			e, err := newEngine(ctx, w)
			testkit.Check(t, err)
			_, err = e.decide(ctx, w, io.Discard)
			testkit.Check(t, err)
			o, _, err := e.api.claims.GetStore().GetByKey("default/c")
			testkit.Check(t, err)
			a := o.(*resourcev1.ResourceClaim).Status.Allocation
			if a == nil || a.Devices.Results[0].Device != "d1" {
				t.Fatalf("got %+v, want device d1", a)
			}
			var got []string
			for _, config := range a.Devices.Config {
				got = append(got, fmt.Sprintf("%s %s %v", config.Source, config.Opaque.Driver, config.Requests))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

// TestManyPodsGetADeviceEach: as many pods come at once as there are devices on two nodes.
func TestManyPodsGetADeviceEach(t *testing.T) {
	t.Parallel()
	const devices = 50
	in := cpuNode("a", 200) + cpuNode("b", 200) + cardsOf("a", devices) + cardsOf("b", devices) + claiming(0, 1, "")
	for i := range 2*devices + 1 {
		in += cpuPod(fmt.Sprint("p", i), 1, "", ", resourceClaims: ["+ownClaim+"]")
	}
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	defer cancel()
	w := worldOf(t, in, nil)
	e, err := newEngine(ctx, w)
	testkit.Check(t, err)
	_, err = e.decide(ctx, w, io.Discard)
	testkit.Check(t, err)
	if got := allocations(t, e); len(got) != 2*devices { // which fails if two claims have one device
		t.Errorf("%d claims have devices, want %d", len(got), 2*devices)
	}
}

// TestAReservationAfterASiblingHasWritten: a pod that has read its claim before a sibling's allocation was written
// reserves another device for it, which counts for nothing.
func TestAReservationAfterASiblingHasWritten(t *testing.T) {
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	defer cancel()
	w := worldOf(t, cpuNode("b", 8)+cardsOf("b", 2)+claiming(2, 1, sharedClaim), nil)
	e, err := newEngine(ctx, w)
	testkit.Check(t, err)
	_, err = e.decide(ctx, w, io.Discard)
	testkit.Check(t, err)
	tracker := e.core.Profiles["default-scheduler"].SharedDRAManager().ResourceClaims()
	written, err := tracker.Get("default", "shared")
	testkit.Check(t, err)
	late := written.DeepCopy()
	late.Status.Allocation.Devices.Results[0].Device = "b1"
	testkit.Check(t, tracker.SignalClaimPendingAllocation(late.UID, late))
	all, err := tracker.ListAllAllocatedDevices()
	testkit.Check(t, err)
	if len(all) != 1 || tracker.GetPendingAllocation(late.UID) != nil {
		t.Errorf("allocated are %v, pending is %v", all, tracker.GetPendingAllocation(late.UID))
	}
}

package sim

import (
	"fmt"
	"strings"
	"testing"
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := outcomeOf(t, machine("n0")+classGPU+c.in+pod); !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

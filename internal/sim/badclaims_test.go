package sim

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// resourceObject is an object of resource.k8s.io/v1; rest are its fields behind the metadata.
func resourceObject(kind, name, rest string) string {
	return fmt.Sprintf("\n{apiVersion: resource.k8s.io/v1, kind: %s, metadata: {name: %s}, "+
		"%s}\n---", kind, name, rest)
}

// claimFor is ResourceClaim c with requests; more are further fields of spec.devices, "; " ends them and begins what
// follows the spec.
func claimFor(requests, more string) string {
	devices, rest, _ := strings.Cut(more, "; ")
	return resourceObject("ResourceClaim", "c", "spec: {devices: {requests: ["+requests+"]"+devices+"}}"+rest)
}

// sliceOf is a slice of a pool of node n0, with generation and number of slices.
func sliceOf(name, driver, pool string, generation, slices int, rest string) string {
	return resourceObject("ResourceSlice", name, fmt.Sprintf("spec: {driver: %s, nodeName: n0, pool: {name: %s, "+
		"generation: %d, resourceSliceCount: %d}, %s}", driver, pool, generation, slices, rest))
}

// ofGPU is a request for a device of class gpu; more are further fields.
func ofGPU(name, more string) string {
	return "{name: " + name + ", exactly: {deviceClassName: gpu" + more + "}}"
}

// given is the status of a claim that has a device; users are UIDs of pods.
func given(device, more string, users ...string) string {
	var refs []string
	for _, u := range users {
		refs = append(refs, "{resource: pods, name: "+u+", uid: "+u+"}")
	}
	return "; , status: {reservedFor: [" + strings.Join(refs, ", ") + "], allocation: {devices: {results: " +
		"[{request: r, " +
		"driver: gpu, pool: n0, device: " + device + more + "}]}, nodeSelector: {nodeSelectorTerms: [{matchFields: " +
		"[{key: metadata.name, operator: In, values: [n0]}]}]}}}"
}

// classGPU selects the devices of driver gpu.
var classGPU = resourceObject("DeviceClass", "gpu", "spec: {selectors: [{cel: {expression: \"device.driver == "+
	"'gpu'\"}}]}")

// outcomeOf is what simulate says of an input: its error, or the pods with their states, devices and reasons.
func outcomeOf(t *testing.T, in string) string {
	t.Helper()
	r, err := Run(t.Context(), Input{Paths: []string{"-"}, Stdin: strings.NewReader(in), Warn: io.Discard})
	if err != nil {
		return "refused: " + err.Error()
	}
	var lines []string
	for i := range r.Pods {
		p := &r.Pods[i]
		line := p.Name + " " + p.State
		for _, c := range p.Claims {
			line += " " + strings.Join(c.Devices, " ")
			if p.State != Scheduled && p.State != Existing {
				t.Errorf("%s has claim %s", line, c.Claim)
			}
		}
		for _, reason := range p.Reasons {
			line += " " + reason.Code.String() + ": " + reason.Message
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestBadClaimsAreRefusedOrSurvived: node n0 and class gpu are good. Pod p uses claim c. A text names the object and
// the rule, and a pod without a node has no devices.
func TestBadClaimsAreRefusedOrSurvived(t *testing.T) {
	t.Parallel()
	const d0 = "devices: [{name: d0}]"
	one, gpus := claimFor(ofGPU("r", ""), ""), sliceOf("s", "gpu", "n0", 1, 1, d0)
	good := one + gpus
	counters := func(sets, use string) string {
		return sliceOf("a", "gpu", "n0", 1, 2, "sharedCounters: ["+sets+"]") +
			sliceOf("b", "gpu", "n0", 1, 2, "devices: [{name: d0, consumesCounters: ["+use+"]}]")
	}
	const of80 = "{name: set, counters: {memory: {value: 80}}}"
	capacity := func(ask string) string {
		return claimFor(ofGPU("r", ", capacity: {requests: {memory: "+ask+"}}"), "") + sliceOf("s", "gpu", "n0", 1, 1,
			"devices: [{name: d0, allowMultipleAllocations: true, capacity: {memory: {value: 80Gi}}}]")
	}
	pod := exclusive("p", 2, "LS", "", with("=c"))
	cards := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("{name: d%d}", i))
		}
		return sliceOf("s", "gpu", "n0", 1, 1, "devices: ["+strings.Join(list, ", ")+"]")
	}
	cel := func(expression string) string {
		return claimFor(ofGPU("r", ", selectors: [{cel: {expression: \""+expression+"\"}}]"), "") + gpus
	}
	match := func(fields string) string {
		return claimFor(ofGPU("r", "")+", "+ofGPU("q", ""), ", constraints: [{"+fields+"}]") + cards(2)
	}
	renamed := func(name, claim string) string { return strings.Replace(claim, "name: c}", "name: "+name+"}", 1) }
	running := func(name, claim string) string {
		return exclusive(name, 2, "LS", ", uid: "+name, "\n  nodeName: n0"+with(claim))
	}
	for name, c := range map[string]struct{ in, want string }{
		"CEL that does not parse": {
			cel("device.driver ==="),
			`(ResourceClaim c): spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: ` +
				`"device.driver ===": compilation failed`,
		},
		"CEL that is not a bool": {
			cel("1 + 1"),
			`(ResourceClaim c): spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "1 + ` +
				`1": must evaluate to bool`,
		},
		"CEL of an unknown variable": {cel("cluster.name == 'x'"), "undeclared reference to 'cluster'"},
		"CEL that is empty": {
			cel(""),
			`(ResourceClaim c): spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: ""`,
		},
		"CEL of an attribute that is missing": {
			cel("device.attributes['gpu'].model == 'A'"),
			"claim default/c: selector #0 on device gpu/n0/d0: CEL runtime error: no such key: model",
		},
		"CEL of another type": {
			claimFor(ofGPU("r", ", selectors: [{cel: {expression: \"device.attributes['gpu'].size > 1\"}}]"), "") +
				sliceOf("s", "gpu", "n0", 1, 1, "devices: [{name: d0, attributes: {size: {string: big}}}]"),
			"claim default/c: selector #0 on device gpu/n0/d0: CEL runtime error: no such overload",
		},
		"CEL in a class that does not parse": {
			resourceObject("DeviceClass", "bad", "spec: {selectors: [{cel: {expression: \"(\"}}]}") + good,
			`document 4 (DeviceClass bad): spec.selectors[0].cel.expression: Invalid value: "("`,
		},
		"a pool with a hole": {
			one + sliceOf("s", "gpu", "n0", 1, 2, d0),
			"1 in incomplete or invalid pool gpu/n0, 0 free",
		},
		"a pool with a hole, and all are asked for": {
			claimFor(ofGPU("r", ", allocationMode: All"), "") + sliceOf("s", "gpu", "n0", 1, 2, d0),
			"claim default/c, request r: asks for all devices, but resource pool gpu/n0 is currently being updated",
		},
		"a newer generation that is incomplete": {
			good + sliceOf("t", "gpu", "n0", 2, 2, "devices: [{name: d1}]"),
			"1 in incomplete or invalid pool gpu/n0, 0 free",
		},
		"an older generation": {
			good + sliceOf("t", "gpu", "n0", 0, 1, "devices: [{name: d1}]"),
			"p Scheduled gpu/n0/d0",
		},
		"more slices than the pool says": {
			good + sliceOf("t", "gpu", "n0", 1, 1, "devices: [{name: d1}]"),
			"2 in incomplete or invalid pool gpu/n0, 0 free",
		},
		"two devices of one name in two slices": {
			one + sliceOf("s", "gpu", "n0", 1, 2, d0) + sliceOf("t", "gpu", "n0", 1, 2, d0),
			"2 in incomplete or invalid pool gpu/n0, 0 free",
		},
		"two devices of one name in one slice": {
			one + sliceOf("s", "gpu", "n0", 1, 1, "devices: [{name: d0}, {name: d0}]"),
			`(ResourceSlice s): spec.devices[1]: Duplicate value: "d0"`,
		},
		"two drivers with one pool name": {
			claimFor(ofGPU("r", ", allocationMode: All"), "") + gpus + sliceOf("t", "nic", "n0", 1, 1, d0),
			"p Scheduled gpu/n0/d0",
		},
		"a slice without a node": {
			one + resourceObject("ResourceSlice", "s", "spec: {driver: gpu, pool: {name: n0, generation: 1, "+
				"resourceSliceCount: 1}, devices: [{name: d0}]}"),
			"(ResourceSlice s): spec: Required value: exactly one of `nodeName`, `nodeSelector`",
		},
		"a slice of two places": {
			one + sliceOf("s", "gpu", "n0", 1, 1, "allNodes: true, "+d0),
			"(ResourceSlice s): spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of",
		},
		"a device name that is not a label": {
			one + sliceOf("s", "gpu", "n0", 1, 1, "devices: [{name: D_0}]"),
			`(ResourceSlice s): spec.devices[0].name: Invalid value: "D_0"`,
		},
		"a pool of no slices": {
			one + sliceOf("s", "gpu", "n0", 1, 0, d0),
			"(ResourceSlice s): spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
		},
		"a driver that is not a domain": {
			one + sliceOf("s", "G_PU", "n0", 1, 1, d0),
			`(ResourceSlice s): spec.driver: Invalid value: "G_PU"`,
		},
		"129 devices in a slice": {
			one + cards(129),
			"(ResourceSlice s): spec.devices: Too many: 129: must have at most 128 items",
		},
		"an unknown counter set": {
			one + counters(of80, "{counterSet: other, counters: {memory: {value: 1}}}"),
			"1 in incomplete or invalid pool gpu/n0, 0 free",
		},
		"an unknown counter": {
			one + counters(of80, "{counterSet: set, counters: {cores: {value: 1}}}"),
			"1 in incomplete or invalid pool gpu/n0, 0 free",
		},
		"more of a counter than there is": {
			one + counters(of80, "{counterSet: set, counters: {memory: {value: 81}}}"),
			"1 with too little counter set/memory, 0 free",
		},
		"a negative counter": {
			one + counters("{name: set, counters: {memory: {value: -80}}}", "{counterSet: set, counters: {memory: "+
				"{value: 1}}}"),
			"1 with too little counter set/memory, 0 free",
		},
		"a negative use of a counter": {
			one + counters(of80, "{counterSet: set, counters: {memory: {value: -1}}}"),
			"p Scheduled gpu/n0/d0",
		},
		"a huge counter": {
			one + counters("{name: set, counters: {memory: {value: 9223372036854775807}}}", "{counterSet: set, "+
				"counters: {memory: {value: 9223372036854775807}}}"),
			"p Scheduled gpu/n0/d0",
		},
		"a share beyond the capacity": {capacity("81Gi"), "1 with too little capacity memory, 0 free"},
		"a negative share": {
			capacity("-1Gi"),
			"claim default/c, request r: checking capacity for device gpu/n0/d0: capacity \"memory\": capacity " +
				"value is negative",
		},
		"a huge share": {
			capacity("9223372036854775807"),
			"1 with too little capacity memory, 0 free",
		},
		"a share that is not a quantity": {capacity("much"), "quantities must match the regular expression"},
		"32 devices":                     {claimFor(ofGPU("r", ", count: 32"), "") + cards(33), "gpu/n0/d31"},
		"33 devices": {
			claimFor(ofGPU("r", ", count: 33"), "") + cards(33),
			"ResourceClaim c requests at least 33 devices: the counts in spec.devices.requests must sum to at " +
				"most 32",
		},
		"all of 33 devices": {
			claimFor(ofGPU("r", ", allocationMode: All"), "") + cards(33),
			"claim default/c, request r: adding 33 devices exceeds the claim limit of 32",
		},
		"two counts of 2^62": {
			claimFor(ofGPU("r", ", count: 4611686018427387904")+", "+ofGPU("q", ", count: "+
				"4611686018427387904"), "") + gpus,
			"ResourceClaim c requests at least 9223372036854775807 devices",
		},
		"a count below zero": {
			claimFor(ofGPU("r", ", count: -1"), "") + gpus,
			`(ResourceClaim c): spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero`,
		},
		"a count of all devices": {
			claimFor(ofGPU("r", ", allocationMode: All, count: 2"), "") + gpus,
			`(ResourceClaim c): spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified ` +
				`when allocationMode is 'All'`,
		},
		"an unknown allocation mode": {
			claimFor(ofGPU("r", ", allocationMode: Some"), "") + gpus,
			`(ResourceClaim c): spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some"`,
		},
		"a request of no kind": {
			claimFor("{name: r}", "") + gpus,
			"spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
		},
		"a request of two kinds": {
			claimFor("{name: r, exactly: {deviceClassName: gpu}, firstAvailable: [{name: s, deviceClassName: "+
				"gpu}]}", "") + gpus,
			"exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
		},
		"two requests of one name": {
			claimFor(ofGPU("r", "")+", "+ofGPU("r", ""), "") + gpus,
			`(ResourceClaim c): spec.devices.requests[1]: Duplicate value: "r"`,
		},
		"no class": {
			claimFor("{name: r, exactly: {}}", "") + gpus,
			`(ResourceClaim c): spec.devices.requests[0].exactly.deviceClassName: Required value`,
		},
		"a class that is missing": {
			claimFor("{name: r, exactly: {deviceClassName: none}}", "") + gpus,
			"DeviceClass none of ResourceClaim default/c is not in the input",
		},
		"a constraint of an unknown request": {
			match("requests: [x], matchAttribute: gpu/numa"),
			`(ResourceClaim c): spec.devices.constraints[0].requests[0]: Invalid value: "x": must be the name of ` +
				`a request`,
		},
		"a constraint of no rule": {
			match("requests: [r, q]"),
			`(ResourceClaim c): spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or ` +
				`"distinctAttribute"`,
		},
		"a constraint without a domain": {
			match("matchAttribute: numa"),
			`(ResourceClaim c): spec.devices.constraints[0].matchAttribute: Invalid value: "numa": a fully ` +
				`qualified name`,
		},
		"a constraint of a missing attribute": {
			match("matchAttribute: gpu/numa"),
			"no set of free devices satisfies matchAttribute gpu/numa",
		},
		"adminAccess without the label": {claimFor(ofGPU("r", ", adminAccess: true"), "") + gpus, "ResourceClaim " +
			"default/c: spec.devices.requests[0].exactly.adminAccess: must not be set unless namespace " +
			"default has the label resource.kubernetes.io/admin-access: true"},
		"a configuration of an unknown request": {
			claimFor(ofGPU("r", ""), ", config: [{requests: [x], opaque: {driver: gpu, parameters: {}}}]") + gpus,
			`(ResourceClaim c): spec.devices.config[0].requests[0]: Invalid value: "x"`,
		},
		"a claim that is missing": {gpus, "ResourceClaim default/c is not in the input"},
		"no slice":                {one, "no ResourceSlice is in the input"},
		"a slice of an unknown driver": {
			one + sliceOf("s", "other", "n0", 1, 1, d0),
			"c/r requests 1 of class gpu, of which the node has no device",
		},
		"a gone device, and a new one": {
			claimFor(ofGPU("r", ""), given("gone", "", "p")) + resourceObject("ResourceClaim", "x", "spec: "+
				"{devices: {requests: ["+ofGPU("r", "")+"]}}") + gpus + exclusive("q", 2, "LS", "", with("=x")),
			"p Scheduled gpu/n0/gone\nq Scheduled gpu/n0/d0",
		},
		"an allocation of another node": {
			strings.Replace(claimFor(ofGPU("r", ""), given("d0", "", "p")), "[n0]", "[n9]", 1) + gpus,
			"p Unschedulable",
		},
		"a stale reservation of a pod that is gone": {
			claimFor(ofGPU("r", ""), given("d0", "", "gone")) + gpus, "p Scheduled gpu/n0/d0",
		},
		"one device allocated twice": {
			good + renamed("x", claimFor(ofGPU("r", ""), given("d0", "", "a"))) + running("a", "=x") +
				renamed("z", claimFor(ofGPU("r", ""), given("d0", "", "b"))) + running("b", "=z"),
			"p Unschedulable InsufficientClaimDevices: cannot allocate all claims: c/r requests 1 of 1 devices of " +
				"class gpu: " +
				"1 allocated to default/",
		},
		"a claim of another pod": {
			renamed("q-r", one) + gpus + resourceObject("ResourceClaimTemplate", "r", "spec: {spec: {devices: "+
				"{requests: ["+
				ofGPU("r", "")+"]}}}") + exclusive("q", 2, "LS", "", with("r")+"\nstatus: {resourceClaimStatuses: "+
				"[{name: r, "+
				"resourceClaimName: q-r}]}"),
			"ResourceClaim default/q-r was not created for Pod default/q (Pod is not owner)",
		},
		"a template that is missing": {
			good + exclusive("q", 2, "LS", "", with("none")), "ResourceClaimTemplate default/none is not in the " +
				"input",
		},
		"a negative share that is stored": {
			claimFor(ofGPU("r", ""), given("d0", ", shareID: 2f9f3a2e-0000-4000-8000-000000000000, "+
				"consumedCapacity: {memory: -40Gi}", "o")) +
				renamed("x", capacity("80Gi")) + exclusive("q", 2, "LS", "", with("=x")), "p Scheduled gpu/n0/d0",
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

package annotation_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
)

func FuzzDeviceAllocations(f *testing.F) {
	roundTrip(f, ParseDeviceAllocations,
		`{"gpu":[{"minor":1,"resources":{"kubernetes.io/gpu-core":100}},{"minor":0,"resources":null}],"rdma":[]}`,
		`{"gpu":[{"id":"1e100","resources":{"koordinator.sh/gpu-memory":"1e100"}}]}`)
}

func FuzzDeviceAllocateHints(f *testing.F) {
	roundTrip(f, ParseDeviceAllocateHints(),
		`{"gpu":{"allocateStrategy":"applyforall","requiredTopologyScope":"pcie"}}`,
		`{"rdma":{"selector":{"matchExpressions":[{"key":"a","operator":"Exists"}]},"vfSelector":{}}}`)
}

func FuzzDeviceJointAllocate(f *testing.F) {
	roundTrip(f, ParseDeviceJointAllocate(), `{"deviceTypes":["GPU"],"requiredScope":"samepcie"}`,
		`{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIeSwitch"}`)
}

func FuzzGPUPartitionSpec(f *testing.F) {
	roundTrip(f, ParseGPUPartitionSpec, `{"allocatePolicy":"restricted","ringBusBandwidth":1e9}`)
}

func FuzzGPUPartitions(f *testing.F) {
	roundTrip(f, ParseGPUPartitions, `{"1":[{"minors":[0],"allocationScore":"-1"}],"02":null}`,
		`{"2":[{"minors":[0,1],"gpuLinkType":"NVLink","rindBusBandwidth":"400Gi"}]}`)
}

func FuzzDeviceLinks(f *testing.F) {
	roundTrip(f, ParseDeviceLinks, `{"links":[{"ids":["a","b"]}],"switches":[{"ids":["a"],"count":18}]}`)
}

func FuzzDevicesCheckpoints(f *testing.F) {
	roundTrip(f, ParseDevicesCheckpoints,
		`[{"podUID":"u","deviceIDs":{"1":["b"],"-1":["a","b"]},"allocResp":"AA=="}]`)
}

func FuzzCPUBurst(f *testing.F) {
	roundTrip(f, ParseCPUBurst, `{"policy":"cpuBurstOnly","cpuBurstPercent":200}`, `{"policy":"AUTO"}`)
}

func FuzzDeviceMode(f *testing.F) { plain(f, ParseDeviceMode, "Moving", "follow") }

func FuzzGPUPartitionPolicy(f *testing.F) { plain(f, ParseGPUPartitionPolicy, "Honor", "prefer") }

func amounts(pairs ...string) DeviceAmounts {
	a := DeviceAmounts{}
	for i := 0; i < len(pairs); i += 2 {
		a[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return a
}

func TestParseDeviceAnnotations(t *testing.T) {
	t.Parallel()
	zero, one := int32(0), int32(1)
	gi400, g25 := resource.MustParse("400Gi"), resource.MustParse("25G")
	for name, test := range map[string]struct {
		parse    parser
		text     string
		want     any
		written  string // "" for text
		warnings []Warning
	}{
		"half a GPU and a virtual function": {
			parse: codec(ParseDeviceAllocations),
			text: `{"gpu":[{"minor":0,"id":"GPU-98583a5c","resources":{"koordinator.sh/gpu-core":"50",` +
				`"koordinator.sh/gpu-memory":"4Gi","koordinator.sh/gpu-memory-ratio":"50"},"extension":{"containers":` +
				`{"main":{"koordinator.sh/gpu-core":"50"}}}}],"rdma":[{"minor":0,"id":"0000:09:00.0","resources":` +
				`{"koordinator.sh/rdma":"1"},"extension":{"vfs":[{"minor":0,"busID":"0000:09:00.2"}]}}]}`,
			want: DeviceAllocations{
				"gpu": {{
					Minor: &zero, ID: "GPU-98583a5c",
					Resources: amounts(ResourceGPUCore, "50", ResourceGPUMemory, "4Gi", ResourceGPUMemoryRatio, "50"),
					Extension: &DeviceExtension{
						Containers: map[string]DeviceAmounts{"main": amounts(ResourceGPUCore, "50")},
					},
				}},
				"rdma": {{
					Minor: &zero, ID: "0000:09:00.0", Resources: amounts(ResourceRDMA, "1"),
					Extension: &DeviceExtension{VFs: []VirtualFunction{{BusID: "0000:09:00.2"}}},
				}},
			},
		},
		"an allocation of an older version": {
			parse: codec(ParseDeviceAllocations),
			text: `{"gpu":[{"minor":1,"resources":{"kubernetes.io/gpu-core":100,` +
				`"kubernetes.io/gpu-memory-ratio":"100"}},{"minor":0,"resources":{}}]}`,
			want: DeviceAllocations{"gpu": {
				{Minor: &one, Resources: amounts(ResourceGPUCore, "100", ResourceGPUMemoryRatio, "100")},
				{Minor: &zero},
			}},
			written: `{"gpu":[{"minor":0,"resources":{}},{"minor":1,"resources":{"koordinator.sh/gpu-core":"100",` +
				`"koordinator.sh/gpu-memory-ratio":"100"}}]}`,
		},
		"minors repeat where ids differ": {
			parse:   codec(ParseDeviceAllocations),
			text:    `{"npu":[{"minor":0,"id":"b","resources":{}},{"minor":0,"id":"a","resources":{}}],"rdma":[]}`,
			want:    DeviceAllocations{"npu": {{Minor: &zero, ID: "b"}, {Minor: &zero, ID: "a"}}},
			written: `{"npu":[{"minor":0,"id":"a","resources":{}},{"minor":0,"id":"b","resources":{}}]}`,
		},
		"an id that looks like a large number": {
			parse: codec(ParseDeviceAllocations),
			text: `{"gpu":[{"id":"12e45678","resources":{"huawei.com/npu-core":"8"},"extension":` +
				`{"gpuSharedResourceTemplate":"1e999"}}]}`,
			want: DeviceAllocations{"gpu": {{
				ID: "12e45678", Resources: amounts("huawei.com/npu-core", "8"),
				Extension: &DeviceExtension{GPUSharedResourceTemplate: "1e999"},
			}}},
		},
		"both names of a resource with one amount": {
			parse:   codec(ParseDeviceAllocations),
			text:    `{"fpga":[{"id":"f","resources":{"kubernetes.io/fpga":"100","koordinator.sh/fpga":100}}]}`,
			want:    DeviceAllocations{"fpga": {{ID: "f", Resources: amounts(ResourceFPGA, "100")}}},
			written: `{"fpga":[{"id":"f","resources":{"koordinator.sh/fpga":"100"}}]}`,
		},
		"hints of two types": {
			parse: codec(ParseDeviceAllocateHints()),
			text: `{"gpu":{"requiredTopologyScope":"PCIe"},"rdma":{"selector":{"matchLabels":{"a":"b"}},` +
				`"vfSelector":{},"allocateStrategy":"ApplyForAll","exclusivePolicy":"PCIeLevel"}}`,
			want: DeviceAllocateHints{
				"gpu": {RequiredTopologyScope: ScopePCIe},
				"rdma": {
					Selector:   &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
					VFSelector: &metav1.LabelSelector{}, AllocateStrategy: ApplyForAll, ExclusivePolicy: ExclusivePCIe,
				},
			},
		},
		"a strategy for GPUs has no effect": {
			parse: codec(ParseDeviceAllocateHints()), text: `{"gpu":{"allocateStrategy":"requestsAsCount"}}`,
			want: DeviceAllocateHints{"gpu": {}}, written: `{"gpu":{}}`,
			warnings: []Warning{
				{
					"gpu.allocateStrategy",
					`"requestsAsCount" is read as "RequestsAsCount": values are case-sensitive on output`,
				},
				{"gpu.allocateStrategy", "has no effect: it is not for GPUs"},
			},
		},
		"a hint about a type of a Device object": {
			parse: codec(ParseDeviceAllocateHints("dpu")), text: `{"dpu":{"allocateStrategy":"ApplyForAll"}}`,
			want: DeviceAllocateHints{"dpu": {AllocateStrategy: ApplyForAll}},
		},
		"GPUs with a type of a Device object": {
			parse: codec(ParseDeviceJointAllocate("dpu")), text: `{"deviceTypes":["gpu","dpu"]}`,
			want: DeviceJointAllocate{DeviceTypes: []string{"gpu", "dpu"}},
		},
		"no hints": {
			parse: codec(ParseDeviceAllocateHints()), text: `null`, want: DeviceAllocateHints(nil), written: `{}`,
		},
		"GPUs with NICs": {
			parse: codec(ParseDeviceJointAllocate()), text: `{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}`,
			want: DeviceJointAllocate{DeviceTypes: []string{"gpu", "rdma"}, RequiredScope: SamePCIe},
		},
		"a scope of one type has no effect": {
			parse: codec(ParseDeviceJointAllocate()), text: `{"deviceTypes":["gpu"],"requiredScope":"SamePCIeSwitch"}`,
			want: DeviceJointAllocate{DeviceTypes: []string{"gpu"}}, written: `{"deviceTypes":["gpu"]}`,
			warnings: []Warning{{"requiredScope", "has no effect: deviceTypes names fewer than two types"}},
		},
		"a demand for a bandwidth": {
			parse: codec(ParseGPUPartitionSpec), text: `{"allocatePolicy":"Restricted","ringBusBandwidth":"400Gi"}`,
			want: GPUPartitionSpec{AllocatePolicy: PartitionRestricted, RingBusBandwidth: &gi400},
		},
		"no demand is BestEffort": {
			parse: codec(ParseGPUPartitionSpec), text: `{}`, want: GPUPartitionSpec{AllocatePolicy: PartitionBestEffort},
			written: `{"allocatePolicy":"BestEffort"}`,
		},
		"an unknown field of a demand is a warning": {
			parse: codec(ParseGPUPartitionSpec), text: `{"allocatePolicy":"BestEffort","ringBusBandwith":"1"}`,
			want: GPUPartitionSpec{AllocatePolicy: PartitionBestEffort}, written: `{"allocatePolicy":"BestEffort"}`,
			warnings: []Warning{{"ringBusBandwith", `unknown field, did you mean "ringBusBandwidth"?`}},
		},
		"partitions": {
			parse: codec(ParseGPUPartitions),
			text: `{"1":[{"minors":[0]},{"minors":[1]}],"2":[{"minors":[0,1],"gpuLinkType":"NVLink",` +
				`"ringBusBandwidth":"400Gi","allocationScore":3}]}`,
			want: GPUPartitions{
				1: {{Minors: []int32{0}}, {Minors: []int32{1}}},
				2: {{Minors: []int32{0, 1}, GPULinkType: "NVLink", RingBusBandwidth: &gi400, AllocationScore: 3}},
			},
		},
		"partitions with a score in quotes and a misspelt bandwidth": {
			parse:   codec(ParseGPUPartitions),
			text:    `{"2":[{"minors":[0,1],"rindBusBandwidth":"400Gi","allocationScore":"3"}],"4":[]}`,
			want:    GPUPartitions{2: {{Minors: []int32{0, 1}, RingBusBandwidth: &gi400, AllocationScore: 3}}},
			written: `{"2":[{"minors":[0,1],"ringBusBandwidth":"400Gi","allocationScore":3}]}`,
		},
		"links, a switch and bridges": {
			parse: codec(ParseDeviceLinks),
			text: `{"links":[{"ids":["GPU-a","GPU-b"],"type":"NVLink","count":4}],"switches":[{"ids":["GPU-a",` +
				`"GPU-b"],"count":18}],"bridges":{"0000:3b:00.0":["pci0000:3a","0000:3a:01.0"]},"laneBandwidth":"25G"}`,
			want: DeviceLinks{
				Links:    []DeviceLink{{IDs: []string{"GPU-a", "GPU-b"}, Type: "NVLink", Count: 4}},
				Switches: []DeviceLink{{IDs: []string{"GPU-a", "GPU-b"}, Count: 18}},
				Bridges:  map[string][]string{"0000:3b:00.0": {"pci0000:3a", "0000:3a:01.0"}},

				LaneBandwidth: &g25,
			},
		},
		"a link without a count is one lane": {
			parse: codec(ParseDeviceLinks), text: `{"links":[{"ids":["a","b"],"type":"HCCS"}]}`,
			want:    DeviceLinks{Links: []DeviceLink{{IDs: []string{"a", "b"}, Type: "HCCS", Count: 1}}},
			written: `{"links":[{"ids":["a","b"],"type":"HCCS","count":1}]}`,
		},
		"what a kubelet gave away": {
			parse: codec(ParseDevicesCheckpoints),
			text: `[{"podUID":"fa8983dc","containerName":"c","resourceName":"nvidia.com/gpu",` +
				`"deviceIDs":["GPU-36b27e44"],"allocResp":"CgA="}]`,
			want: DevicesCheckpoints{{
				PodUID: "fa8983dc", ContainerName: "c", ResourceName: "nvidia.com/gpu",
				DeviceIDs: []string{"GPU-36b27e44"}, AllocResp: "CgA=",
			}},
		},
		"what a kubelet gave away by NUMA node": {
			parse: codec(ParseDevicesCheckpoints),
			text:  `[{"podUID":"u","deviceIDs":{"10":["c"],"-1":["a"],"2":["b","a"]}},{"podUID":"v"}]`,
			want: DevicesCheckpoints{
				{PodUID: "u", DeviceIDs: []string{"a", "b", "c"}}, {PodUID: "v", DeviceIDs: []string{}},
			},
			written: `[{"podUID":"u","deviceIDs":["a","b","c"]},{"podUID":"v","deviceIDs":[]}]`,
		},
		"a kubelet that gave nothing away": {
			parse: codec(ParseDevicesCheckpoints), text: `null`, want: DevicesCheckpoints{}, written: `[]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := test.parse(test.text)
			testkit.Check(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("parse %s (-want +got):\n%s", test.text, diff)
			}
			if diff := cmp.Diff(test.warnings, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if test.written == "" {
				test.written = test.text
			}
			if written := Encode(got); written != test.written {
				t.Errorf("written as %s, want %s", written, test.written)
			}
		})
	}
}

func TestDeviceAnnotationsAreRefusedWithFieldAndRule(t *testing.T) {
	t.Parallel()
	const percent = "must be a whole percentage from 0 to 100, is "
	hints, joint, parts := codec(
		ParseDeviceAllocateHints(),
	), codec(
		ParseDeviceJointAllocate(),
	), codec(
		ParseGPUPartitions,
	)
	gpu := func(resources string) string { return `{"rdma":[],"gpu":[{"id":"a","resources":` + resources + `}]}` }
	for name, test := range map[string]struct {
		parse parser
		text  string
		field string
		want  string // of the text
	}{
		"more than a device": {
			codec(ParseDeviceAllocations), gpu(`{"kubernetes.io/gpu-core":101}`), "gpu",
			"kubernetes.io/gpu-core: " + percent + "101",
		},
		"a part of a percent": {
			codec(ParseDeviceAllocations), gpu(`{"koordinator.sh/gpu-memory-ratio":"500m"}`), "gpu", percent + "500m",
		},
		"less than nothing of a device": {
			codec(ParseDeviceAllocations), gpu(`{"koordinator.sh/rdma":-1}`), "gpu", percent + "-1",
		},
		"less memory than none": {
			codec(ParseDeviceAllocations), gpu(`{"koordinator.sh/gpu-memory":"-4Gi"}`), "gpu",
			"must not be negative, is -4Gi",
		},
		"memory that takes seconds to read": {
			codec(ParseDeviceAllocations), gpu(`{"koordinator.sh/gpu-memory":"1e9999999"}`), "gpu",
			`quantity "1e9999999" is out of range`,
		},
		"memory of a container that takes seconds to read": {
			codec(ParseDeviceAllocations),
			`{"gpu":[{"id":"a","extension":{"containers":{"c":{"koordinator.sh/gpu-memory":1e-9999999}}}}]}`,
			"gpu", `quantity 1e-9999999 is out of range`,
		},
		"memory in words": {
			codec(ParseDeviceAllocations), gpu(`{"koordinator.sh/gpu-memory":"much"}`), "gpu", "quantities must match",
		},
		"two amounts of one resource": {
			codec(ParseDeviceAllocations), gpu(`{"kubernetes.io/gpu-core":50,"koordinator.sh/gpu-core":"60"}`), "gpu",
			"conflicting values for koordinator.sh/gpu-core and its alias kubernetes.io/gpu-core",
		},
		"a device without identity": {
			codec(ParseDeviceAllocations), `{"gpu":[{"minor":0},{"resources":{}}]}`, "gpu",
			"device 1 of the list must have an id or a minor",
		},
		"a device twice": {
			codec(ParseDeviceAllocations), `{"gpu":[{"id":"a","minor":0},{"id":"a","minor":1}]}`, "gpu",
			"id a is listed twice: must be listed once",
		},
		"a minor twice without ids": {
			codec(ParseDeviceAllocations), `{"gpu":[{"minor":3},{"minor":3}]}`, "gpu",
			"minor 3 without id is listed twice",
		},
		"a virtual function of two devices": {
			codec(ParseDeviceAllocations),
			`{"rdma":[{"id":"a","extension":{"vfs":[{"busID":"v"}]}},{"id":"b","extension":{"vfs":[{"busID":"v"}]}}]}`,
			"rdma", `Invalid value "v": the busID of each of extension.vfs must be set, and listed once`,
		},
		"a minor in words": {
			codec(ParseDeviceAllocations), `{"gpu":[{"minor":"0"}]}`, "minor", "want a whole number that fits int32",
		},
		"a hint for an unknown type": {
			hints, `{"gup":{}}`, "gup", `Unsupported value "gup": supported gpu, rdma, fpga`,
		},
		"a hint with an unknown field": {
			hints, `{"gpu":{},"rdma":{"vfSelecto":{}}}`, "rdma.vfSelecto", `unknown field, did you mean "vfSelector"?`,
		},
		"a hint with an unknown field of a selector": {
			hints, `{"rdma":{"selector":{"labels":{}}}}`, "rdma.selector.labels", "unknown field",
		},
		"a hint with a bad selector": {
			hints, `{"rdma":{"vfSelector":{"matchLabels":{"a":"b c"}}}}`, "rdma.vfSelector", `"b c"`,
		},
		"a hint with a bad operator": {
			hints, `{"fpga":{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}}`, "fpga.selector", `"Is"`,
		},
		"an unknown strategy": {
			hints, `{"rdma":{"allocateStrategy":"All"}}`, "rdma.allocateStrategy",
			`Unsupported value "All": supported ApplyForAll, RequestsAsCount`,
		},
		"an unknown scope": {
			hints, `{"rdma":{"requiredTopologyScope":"Rack"}}`, "rdma.requiredTopologyScope",
			`Unsupported value "Rack": supported Device, PCIe, NUMANode, Node`,
		},
		"an unknown exclusive policy": {
			hints, `{"rdma":{"exclusivePolicy":"NUMALevel"}}`, "rdma.exclusivePolicy",
			`Unsupported value "NUMALevel": supported DeviceLevel, PCIeLevel`,
		},
		"hints as a list": {hints, `[]`, "", "want an object, got array"},
		"an unknown joint type": {
			joint, `{"deviceTypes":["gpu","nic"]}`, "deviceTypes", `Unsupported value "nic": supported gpu, rdma, fpga`,
		},
		"an empty joint type": {
			joint, `{"deviceTypes":["gpu",""]}`, "deviceTypes", `Invalid value "": must be one of gpu, rdma, fpga`,
		},
		"a joint type twice": {
			joint, `{"deviceTypes":["gpu","GPU"]}`, "deviceTypes", `Invalid value "gpu": must be listed once`,
		},
		"an unknown joint scope": {
			joint, `{"deviceTypes":["gpu","rdma"],"requiredScope":"SameNUMA"}`, "requiredScope",
			`Unsupported value "SameNUMA": supported SamePCIe, SamePCIeSwitch`,
		},
		"an unknown field of a joint allocation": {
			joint, `{"deviceType":["gpu","rdma"]}`, "deviceType", `unknown field, did you mean "deviceTypes"?`,
		},
		"an unknown policy of partitions": {
			codec(ParseGPUPartitionSpec), `{"allocatePolicy":"Strict"}`, "allocatePolicy",
			`Unsupported value "Strict": supported BestEffort, Restricted`,
		},
		"a negative bandwidth": {
			codec(ParseGPUPartitionSpec), `{"ringBusBandwidth":"-1Gi"}`, "ringBusBandwidth", "must not be negative",
		},
		"a bandwidth that takes seconds to read": {
			codec(ParseGPUPartitionSpec), `{"ringBusBandwidth":"1e1000000"}`, "ringBusBandwidth", "is out of range",
		},
		"a partition of another size": {
			parts, `{"2":[{"minors":[0,1,2]}]}`, "2",
			"has a partition of 3 minors: must be as many as the key says, from 1 on",
		},
		"a partition of nothing": {parts, `{"0":[{"minors":[]}]}`, "0", "has a partition of 0 minors"},
		"a partition that has a GPU twice": {
			parts, `{"2":[{"minors":[1,1]}]}`, "2.minors", `Invalid value "1": must be listed once in a partition`,
		},
		"a partition with a negative minor": {parts, `{"1":[{"minors":[-1]}]}`, "1.minors", "must not be negative"},
		"a partition with a negative bandwidth": {
			parts, `{"1":[{"minors":[0],"rindBusBandwidth":-1}]}`, "1.ringBusBandwidth", "must not be negative",
		},
		"minors in quotes": {
			parts, `{"1":[{"minors":["0"]}]}`, "minors", "want a whole number that fits int32, got string",
		},
		"a score in words": {
			parts, `{"1":[{"minors":[0],"allocationScore":"best"}]}`, "1",
			`want a whole number that fits int32, got "best"`,
		},
		"a size in words": {parts, `{"two":[]}`, "", "want a whole number that fits int, got number two"},
		"a link of three": {
			codec(ParseDeviceLinks), `{"links":[{"ids":["a","b","c"]}]}`, "links.ids", "must be 2 devices, got 3",
		},
		"a link of a device with itself": {
			codec(ParseDeviceLinks), `{"links":[{"ids":["a","a"]}]}`, "links.ids",
			`"a": must be ids of devices, each once`,
		},
		"a switch with a device without id": {
			codec(ParseDeviceLinks), `{"switches":[{"ids":["a",""]}]}`, "switches.ids", `"": must be ids of devices`,
		},
		"a link without lanes": {
			codec(ParseDeviceLinks), `{"links":[{"ids":["a","b"],"count":0}]}`, "links.count", "must be 1…1000, got 0",
		},
		"a switch of too many lanes": {
			codec(ParseDeviceLinks), `{"switches":[{"ids":["a"],"count":1001}]}`, "switches.count",
			"must be 1…1000, got 1001",
		},
		"lanes that carry less than nothing": {
			codec(ParseDeviceLinks), `{"laneBandwidth":"-1"}`, "laneBandwidth", "must not be negative",
		},
		"a bridge twice": {
			codec(ParseDeviceLinks), `{"bridges":{"d":["b","b"]}}`, "bridges", `Invalid value "b": must be addresses`,
		},
		"bridges of no device": {
			codec(ParseDeviceLinks), `{"bridges":{"":["b"]}}`, "bridges", "below the address of a device",
		},
		"a checkpoint of no pod": {
			codec(ParseDevicesCheckpoints), `[{"deviceIDs":["a"]}]`, "[0].podUID", "must be the UID of a pod",
		},
		"a checkpoint with an empty id": {
			codec(ParseDevicesCheckpoints), `[{"podUID":"u","deviceIDs":{"0":[""]}}]`, "",
			`want ids that are not empty, got {"0":[""]}`,
		},
		"a checkpoint with one id": {
			codec(ParseDevicesCheckpoints), `[{"podUID":"u","deviceIDs":"a"}]`, "",
			`want a list of ids, or lists by NUMA node, got "a"`,
		},
		"an unknown device mode": {
			codec(ParseDeviceMode), `Blind`, "", `Unsupported value "Blind": supported Own, Follow, Moving`,
		},
		"an unknown partition policy": {
			codec(ParseGPUPartitionPolicy), `Never`, "", `Unsupported value "Never": supported Prefer, Honor`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, err := test.parse(test.text)
			var e *Error
			if !errors.As(err, &e) || e.Field != test.field || !strings.Contains(e.Text, test.want) {
				t.Fatalf("parse %s: %v, %#v, want field %q and %q in the text", test.text, got, err, test.field,
					test.want)
			}
			if outer, _, _ := strings.Cut(e.Field, "."); outer != "" && outer[0] != '[' && e.Offset == 0 {
				t.Errorf("parse %s: %v does not say where", test.text, err)
			}
		})
	}
}

func TestAbsentModesAndPoliciesHaveDefaults(t *testing.T) {
	t.Parallel()
	for want, parse := range map[string]func(string) (string, []Warning, error){
		DeviceOwn: ParseDeviceMode, PartitionPrefer: ParseGPUPartitionPolicy,
	} {
		if got, warnings, err := parse(""); got != want || warnings != nil || err != nil {
			t.Errorf("%q, %v, %v; want %s", got, warnings, err, want)
		}
	}
}

func TestOnlyAliasesOfDevicesHaveAnotherName(t *testing.T) {
	t.Parallel()
	for name, want := range map[corev1.ResourceName]corev1.ResourceName{
		"kubernetes.io/gpu": ResourceGPU, "kubernetes.io/gpu-core": ResourceGPUCore,
		"kubernetes.io/gpu-memory": ResourceGPUMemory, "kubernetes.io/gpu-memory-ratio": ResourceGPUMemoryRatio,
		"kubernetes.io/rdma": ResourceRDMA, "kubernetes.io/fpga": ResourceFPGA,
		"kubernetes.io/batch-cpu": "kubernetes.io/batch-cpu", "kubernetes.io/gpu.shared": "kubernetes.io/gpu.shared",
		"nvidia.com/gpu": "nvidia.com/gpu", ResourceGPU: ResourceGPU, "cpu": "cpu",
	} {
		if got := CanonicalResource(name); got != want {
			t.Errorf("CanonicalResource(%s) = %s, want %s", name, got, want)
		}
	}
}

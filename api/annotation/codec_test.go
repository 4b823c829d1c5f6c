package annotation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/tenon-project/tenon/api/annotation"
)

// parser erases a codec's type.
type parser func(text string) (any, []Warning, error)

func codec[T any](parse func(string) (T, []Warning, error)) parser {
	return func(text string) (any, []Warning, error) { return parse(text) }
}

func TestParse(t *testing.T) {
	t.Parallel()
	l3 := int32(1)
	tests := map[string]struct {
		parse    parser
		text     string
		want     any
		warnings []Warning
	}{
		"a spec as seed 000 writes it": {
			parse: codec(ParseResourceSpec),
			text:  `{"preferredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"}`,
			want: ResourceSpec{
				PreferredCPUBindPolicy:      BindSpreadByPCPUs,
				PreferredCPUExclusivePolicy: ExclusivePCPULevel,
			},
		},
		"old names of policies": {
			parse: codec(ParseResourceSpec),
			text:  `{"requiredCPUBindPolicy":"PCPUOnly","preferredCPUExclusivePolicy":"PCPU"}`,
			want:  ResourceSpec{RequiredCPUBindPolicy: BindFullPCPUs, PreferredCPUExclusivePolicy: ExclusivePCPULevel},
		},
		"an exclusive policy of Default leaves the choice open": {
			parse: codec(ParseResourceSpec),
			text:  `{"preferredCPUExclusivePolicy":"Default"}`,
			want:  ResourceSpec{},
		},
		"another case is accepted with a warning": {
			parse: codec(ParseResourceSpec),
			text:  `{"preferredCPUBindPolicy":"fullpcpus"}`,
			want:  ResourceSpec{PreferredCPUBindPolicy: BindFullPCPUs},
			warnings: []Warning{{
				"preferredCPUBindPolicy",
				`"fullpcpus" is read as "FullPCPUs": values are case-sensitive on output`,
			}},
		},
		"an unknown field is a warning": {
			parse:    codec(ParseResourceSpec),
			text:     `{"preferredCPUBindPolcy":"FullPCPUs"}`,
			want:     ResourceSpec{},
			warnings: []Warning{{"preferredCPUBindPolcy", `unknown field, did you mean "preferredCPUBindPolicy"?`}},
		},
		"a repeated field is a warning": {
			parse:    codec(ParseResourceSpec),
			text:     `{"preferredCPUBindPolicy":"FullPCPUs","preferredCPUBindPolicy":"SpreadByPCPUs"}`,
			want:     ResourceSpec{PreferredCPUBindPolicy: BindSpreadByPCPUs},
			warnings: []Warning{{"preferredCPUBindPolicy", "duplicate field: the last one counts"}},
		},
		"field names are case-sensitive": {
			parse:    codec(ParseResourceSpec),
			text:     `{"PreferredCPUBindPolicy":"FullPCPUs"}`,
			want:     ResourceSpec{},
			warnings: []Warning{{"PreferredCPUBindPolicy", `unknown field, did you mean "preferredCPUBindPolicy"?`}},
		},
		"a pod's topology policy in the kubelet's spelling": {
			parse: codec(ParseNUMATopologySpec),
			text:  `{"numaTopologyPolicy":"single-numa-node","singleNUMANodeExclusive":"Preferred"}`,
			want:  NUMATopologySpec{NUMATopologyPolicy: TopologySingleNUMANode, SingleNUMANodeExclusive: "Preferred"},
		},
		"None on a pod is not a policy": {
			parse: codec(ParseNUMATopologySpec), text: `{"numaTopologyPolicy":"None"}`, want: NUMATopologySpec{},
		},
		"a status with both forms of shared pools": {
			parse: codec(ParseResourceStatus),
			text: `{"cpuSharedPools":[{"socket":0,"node":1}],"numaNodeResources":[{"node":1,"resources":{"cpu":4,` +
				`"memory":"8Gi"}}]}`,
			want: ResourceStatus{
				CPUSharedPools: []CPUSharedPool{{Node: 1}},
				NUMANodeResources: []NUMANodeResource{{Node: 1, Resources: corev1.ResourceList{
					"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
				}}},
			},
		},
		"kubelet options in every spelling of true": {
			parse: codec(ParseKubeletCPUManager),
			text: `{"policy":"static","options":{"full-pcpus-only":"True","distribute-cpus-across-numa":"1",` +
				`"x":"yes"},"reservedCPUs":"0-1"}`,
			want: KubeletCPUManager{
				Policy: "static", ReservedCPUs: "0-1",
				Options: map[string]string{
					"full-pcpus-only": "true", "distribute-cpus-across-numa": "true",
					"x": "yes",
				},
			},
		},
		"a topology with and without l3": {
			parse: codec(ParseCPUTopologyDetail),
			text:  `{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":1,"socket":1,"node":1,"l3":1}]}`,
			want:  CPUTopologyDetail{Detail: []CPUInfo{{}, {ID: 1, Core: 1, Socket: 1, Node: 1, L3: &l3}}},
		},
		"allocations as the example of seed 000 has them": {
			parse: codec(ParsePodCPUAllocs),
			text:  `[{"namespace":"default","name":"p","uid":"u","cpu":"4-8","managedByKubelet":"true"}]`,
			want:  PodCPUAllocs{{Namespace: "default", Name: "p", UID: "u", CPUSet: "4-8", ManagedByKubelet: true}},
		},
		"null for no allocations": {parse: codec(ParsePodCPUAllocs), text: `null`, want: PodCPUAllocs{}},
		"a node reservation": {
			parse: codec(ParseReservation),
			text:  `{"resources":{"cpu":"2"},"reservedCPUs":"0-1","applyPolicy":"ReservedCPUsOnly"}`,
			want: Reservation{
				Resources: corev1.ResourceList{"cpu": resource.MustParse("2")}, ReservedCPUs: "0-1",
				ApplyPolicy: ApplyReservedCPUsOnly,
			},
		},
		"a take-over": {
			parse: codec(ParseTakeover),
			text: `{"phase":2,"since":"2026-01-02T03:04:05Z","kubeletPolicy":"static","kubeletFreeCPUs":"2-5",` +
				`"remainingPods":3}`,
			want: Takeover{
				Phase: 2, Since: metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local()},
				KubeletPolicy: "static", PinnableCPUs: "2-5", RemainingPods: 3,
			},
		},
		"how a simulated pod runs": {
			parse: codec(ParseSimulate), text: `{"runFor":"5s","exitCode":1}`,
			want: Simulate{RunFor: &metav1.Duration{Duration: 5 * time.Second}, ExitCode: 1},
		},
		"a kubelet as its agent reports it": {
			parse: codec(ParseKubelet),
			text: `{"version":"v1.36.3","cpu":{"policy":"static","options":{"full-pcpus-only":"True"},"reserved":"0,` +
				`16"},` +
				`"memory":{"policy":"Static","reserved":{"0":{"memory":"1Gi"}}},` +
				`"topology":{"policy":"restricted","scope":"pod","options":{"max-allowable-numa-nodes":"1"}},` +
				`"gates":{"PodLevelResourceManagers":false}}`,
			want: Kubelet{
				Version: "v1.36.3",
				CPU: KubeletCPU{
					Policy: "static", Options: map[string]string{"full-pcpus-only": "true"},
					Reserved: "0,16",
				},
				Memory: KubeletMemory{
					Policy: "Static", Reserved: map[int32]corev1.ResourceList{0: {"memory": resource.MustParse("1Gi")}},
				},
				Topology: KubeletTopology{
					Policy: "restricted", Scope: "pod",
					Options: map[string]string{"max-allowable-numa-nodes": "1"},
				},
				Gates: map[string]bool{"PodLevelResourceManagers": false},
			},
		},
		"a kubelet that says nothing has the policies none": {
			parse: codec(ParseKubelet), text: `{}`,
			want: Kubelet{
				CPU: KubeletCPU{Policy: "none"}, Memory: KubeletMemory{Policy: "None"},
				Topology: KubeletTopology{Policy: "none", Scope: "container"},
			},
		},
		"a policy of the kubelet in another case": {
			parse: codec(ParseKubelet), text: `{"topology":{"policy":"Restricted"}}`,
			want: Kubelet{
				CPU: KubeletCPU{Policy: "none"}, Memory: KubeletMemory{Policy: "None"},
				Topology: KubeletTopology{Policy: "restricted", Scope: "container"},
			},
			warnings: []Warning{{
				"topology.policy",
				`"Restricted" is read as "restricted": values are case-sensitive on output`,
			}},
		},
		"what the managers of a kubelet hold": {
			parse: codec(ParseNUMAState),
			text: `{"memory":{"0":{"allocatable":{"memory":"4Gi"},"free":{"memory":"1Gi"},"group":[0],` +
				`"assignments":2}},` +
				`"devices":{"nvidia.com/gpu":[{"numa":[0],"total":4,"free":3,"unhealthy":1}]},` +
				`"pods":{"u":{"c":{"cpus":"2-5","memory":{"0-1":"3Gi"},"hugepages":{"hugepages-2Mi":{"0":"4Mi"}},` +
				`"devices":{"nvidia.com/gpu":{"mask":[0],"count":1}}}}}}`,
			want: NUMAState{
				Memory: map[int32]NUMAMemory{0: {
					Allocatable: corev1.ResourceList{"memory": resource.MustParse("4Gi")},
					Free:        corev1.ResourceList{"memory": resource.MustParse("1Gi")}, Group: NUMANodes{0},
					Assignments: 2,
				}},
				Devices: map[string][]NUMADevices{"nvidia.com/gpu": {{
					NUMA: NUMANodes{0}, Total: 4, Free: 3,
					Unhealthy: 1,
				}}},
				Pods: map[types.UID]PlacedContainers{"u": {"c": {
					CPUs: "2-5", Memory: map[string]resource.Quantity{"0-1": resource.MustParse("3Gi")},
					Hugepages: map[string]map[string]resource.Quantity{"hugepages-2Mi": {"0": resource.MustParse(
						"4Mi")}},
					Devices: map[string]PlacedDevices{"nvidia.com/gpu": {Mask: NUMANodes{0}, Count: 1}},
				}}},
			},
		},
		"a pod whose UID looks like a large number": {
			parse: codec(ParseNUMAState), text: `{"pods":{"12e45678":{"2e345":{"cpus":"1"}}}}`,
			want: NUMAState{Pods: map[types.UID]PlacedContainers{"12e45678": {"2e345": {CPUs: "1"}}}},
		},
		"a pod whose name looks like a large number": {
			parse: codec(ParsePodCPUAllocs), text: `[{"name":"1e999","uid":"7e123456-0","cpuset":"1"}]`,
			want: PodCPUAllocs{{Name: "1e999", UID: "7e123456-0", CPUSet: "1"}},
		},
		"a prediction": {
			parse: codec(ParsePredictedPlacement),
			text: `{"model":"1.36","gen":412,"containers":{"c":{"mask":[0],"preferred":true,"cpus":"2-5",` +
				`"memory":{"0":"4Gi"},` +
				`"devices":{"nvidia.com/gpu":{"mask":[0],"count":1}}}}}`,
			want: PredictedPlacement{Model: "1.36", Gen: 412, Containers: PlacedContainers{"c": {
				Mask: NUMANodes{0}, Preferred: true, CPUs: "2-5",
				Memory:  map[string]resource.Quantity{"0": resource.MustParse("4Gi")},
				Devices: map[string]PlacedDevices{"nvidia.com/gpu": {Mask: NUMANodes{0}, Count: 1}},
			}}},
		},
		"no mode is Own": {parse: codec(ParseMode), text: ``, want: ModeOwn},
		"a mode in another case": {
			parse: codec(ParseMode), text: `follow`, want: ModeFollow,
			warnings: []Warning{{"", `"follow" is read as "Follow": values are case-sensitive on output`}},
		},
		"a report": {
			parse: codec(ParseReport), text: `{"gen":412,"hash":"h","boot":"b"}`,
			want: Report{Gen: 412, Hash: "h", Boot: "b"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := tt.parse(tt.text)
			if err != nil {
				t.Fatalf("parse %s: %v", tt.text, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("parse %s (-want +got):\n%s", tt.text, diff)
			}
			if diff := cmp.Diff(tt.warnings, warnings); diff != "" {
				t.Errorf("warnings for %s (-want +got):\n%s", tt.text, diff)
			}
		})
	}
}

func TestParseErrorsNameTheByteAndTheField(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		parse parser
		text  string
		want  string
	}{
		"not JSON at all": {
			codec(ParseResourceSpec), `FullPCPUs`,
			"byte 1: invalid character 'F' looking for beginning of value",
		},
		"an empty text": {codec(ParseResourceSpec), ``, "byte 0: unexpected end of JSON input"},
		"a truncated object": {
			codec(ParseResourceSpec), `{"preferredCPUBindPolicy":`,
			"byte 26: unexpected end of JSON input",
		},
		"a second value": {
			codec(ParseResourceSpec), `{} {}`,
			"byte 4: invalid character '{' after top-level value",
		},
		"a number for a policy": {
			codec(ParseResourceSpec), `{"preferredCPUBindPolicy":1}`,
			"byte 27: preferredCPUBindPolicy: want a string, got number",
		},
		"a list for the object": {codec(ParseResourceSpec), `[]`, "byte 1: want an object, got array"},
		"an unknown bind policy": {
			codec(ParseResourceSpec), `{"requiredCPUBindPolicy":"Pack"}`,
			`byte 25: requiredCPUBindPolicy: Unsupported value "Pack": supported Default, FullPCPUs, SpreadByPCPUs, ` +
				`ConstrainedBurst`,
		},
		"an unknown exclusive": {
			codec(ParseResourceSpec), `{"preferredCPUExclusivePolicy":"Socket"}`,
			`byte 31: preferredCPUExclusivePolicy: Unsupported value "Socket": supported None, PCPULevel, ` +
				`NUMANodeLevel`,
		},
		"a required burst": {
			codec(ParseResourceSpec), `{"requiredCPUBindPolicy":"ConstrainedBurst"}`,
			"byte 25: requiredCPUBindPolicy: ConstrainedBurst can only be preferred",
		},
		"an unknown topology policy": {
			codec(ParseNUMATopologySpec), `{"numaTopologyPolicy":"Numa"}`,
			`byte 22: numaTopologyPolicy: Unsupported value "Numa": supported BestEffort, Restricted, SingleNUMANode`,
		},
		"a string for a CPU id": {
			codec(ParseCPUTopologyDetail), `{"detail":[{"id":"0"}]}`,
			"byte 20: detail.id: want a whole number that fits int32, got string",
		},
		"a CPU id that overflows": {
			codec(ParseCPUTopologyDetail), `{"detail":[{"id":4294967296}]}`,
			"byte 27: detail.id: want a whole number that fits int32, got number 4294967296",
		},
		"a word for a boolean": {
			codec(ParsePodCPUAllocs), ` [{"managedByKubelet":"yes"}]`,
			`byte 1: want true or false, got "yes"`,
		},
		"an amount that takes seconds to read": {
			codec(ParseResourceStatus),
			`{"numaNodeResources":[{"node":0,"resources":{"cpu":"1e-9999999"}}]}`,
			`byte 21: numaNodeResources: quantity "1e-9999999" is out of range`,
		},
		"a number that takes seconds to read": {
			codec(ParseReservation),
			`{"reservedCPUs":"0","resources":{"memory": 1E9999999}}`,
			`byte 32: resources: quantity 1E9999999 is out of range`,
		},
		"an amount with spaces and zeros that takes seconds to read": {
			codec(ParseReservation),
			"{\"resources\":{\"memory\":\"\u00a0 -.5e+000100000000 \"}}",
			"byte 13: resources: quantity \"\u00a0 -.5e+000100000000 \" is out of range",
		},
		"an amount of many digits": {
			codec(ParseKubelet),
			`{"memory":{"reserved":{"0":{"memory":"` + strings.Repeat("9", 65) + `Mi"}}}}`,
			`byte 10: memory: quantity "` + strings.Repeat("9", 31) + ` is out of range`,
		},
		"a negative run time": {
			codec(ParseSimulate), `{"runFor":"-5s"}`,
			"byte 10: runFor: must not be negative",
		},
		"a simulated use that is negative": {
			codec(ParseSimulate), `{"cpu":"-500m"}`,
			"byte 7: cpu: must not be negative",
		},
		"a simulated use that is not a quantity": {
			codec(ParseSimulate), `{"memory":"NaN"}`,
			"byte 10: memory: quantities must match the regular expression " +
				"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
		},
		"a simulated use that takes seconds to read": {
			codec(ParseSimulate), `{"memory":"1e999999999"}`,
			`byte 10: memory: quantity "1e999999999" is out of range`,
		},
		"an unknown pattern of use": {
			codec(ParseSimulate), `{"cpu":"1","pattern":"square"}`,
			`byte 21: pattern: Unsupported value "square": supported sine, burst, steps`,
		},
		"an exit code above 255": {
			codec(ParseSimulate), `{"exitCode":256}`,
			"byte 12: exitCode: must be 0…255",
		},
		"a negative burst": {
			codec(ParseCPUBurst), `{"policy":"cpuBurstOnly","cpuBurstPercent":-1}`,
			"byte 43: cpuBurstPercent: must be 0…10000 percent of the CPU limit",
		},
		"a burst of more than 100 times the limit": {
			codec(ParseCPUBurst), `{"cpuBurstPercent":10001}`,
			"byte 19: cpuBurstPercent: must be 0…10000 percent of the CPU limit",
		},
		"an unknown policy of bursts": {
			codec(ParseCPUBurst), `{"policy":"static"}`,
			`byte 10: policy: Unsupported value "static": supported none, auto, cpuBurstOnly, cfsQuotaBurstOnly`,
		},
		"an unknown mode": {
			codec(ParseMode), `Follows`,
			`byte 0: Unsupported value "Follows": supported Own, Follow, Blind`,
		},
		"an unknown policy of the kubelet": {
			codec(ParseKubelet),
			`{"version":"v1.36.0","topology":{"policy":"strict"}}`,
			`byte 32: topology.policy: Unsupported value "strict": supported none, best-effort, restricted, ` +
				`single-numa-node`,
		},
		"memory that is reserved below zero": {
			codec(ParseKubelet), `{"memory":{"reserved":{"0":{"memory":"-1"}}}}`,
			`byte 10: memory.reserved: must not be negative`,
		},
		"a NUMA node below zero": {
			codec(ParseKubelet), `{"memory":{"reserved":{"-1":{}}}}`,
			`byte 10: memory.reserved: must not be negative`,
		},
		"fewer devices than none": {
			codec(ParseNUMAState), `{"devices":{"g":[{"numa":[0],"total":-1}]}}`,
			`byte 11: devices.total: must not be negative`,
		},
		"a word for a NUMA node": {
			codec(ParseNUMAState), `{"memory":{"zero":{}}}`,
			`byte 12: memory: want a whole number that fits int32, got number zero`,
		},
		"negative memory of a container": {
			codec(ParseNUMAState), `{"pods":{"u":{"c":{"memory":{"0":"-4Gi"}}}}}`,
			`byte 8: pods.memory: must not be negative`,
		},
		"a prediction of a negative generation": {
			codec(ParsePredictedPlacement), `{"gen":-1}`,
			`byte 7: gen: must not be negative`,
		},
		"parts of devices that do not add up": {
			codec(ParsePredictedPlacement),
			`{"containers":{"c":{"devices":{"g":{"count":2,"split":[{"count":1}]}}}}}`,
			`byte 14: containers.devices.split: the counts must add up to 2, got 1`,
		},
		"an unknown apply policy": {
			codec(ParseReservation), `{"applyPolicy":"All"}`,
			`byte 15: applyPolicy: Unsupported value "All": supported Default, ReservedCPUsOnly`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, err := tt.parse(tt.text)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("parse %q = %v, %v; want an *Error", tt.text, got, err)
			}
			if err.Error() != tt.want {
				t.Errorf("parse %q\n got %s\nwant %s", tt.text, err, tt.want)
			}
		})
	}
}

func TestEncodeWritesOnlyTheCanonicalForm(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		value any
		want  string
	}{
		"exclusive CPUs": {ResourceStatus{CPUSet: "0-3"}, `{"cpuset":"0-3"}`},
		"pools of a pod carry no CPUs": {
			ResourceStatus{CPUSharedPools: []CPUSharedPool{{}}},
			`{"cpuSharedPools":[{"socket":0,"node":0}]}`,
		},
		"no pool is an empty list": {CPUSharedPools(nil), `[]`},
		"an empty pool is written out": {
			CPUSharedPools{{Socket: 1, Node: 2}},
			`[{"socket":1,"node":2,"cpuset":""}]`,
		},
		"no allocation is an empty list": {PodCPUAllocs(nil), `[]`},
		"no CPU is an empty list":        {CPUTopologyDetail{}, `{"detail":[]}`},
		"ids of zero are written": {
			CPUTopologyDetail{Detail: []CPUInfo{{}}},
			`{"detail":[{"id":0,"core":0,"socket":0,"node":0}]}`,
		},
		"a take-over that has not begun": {Takeover{Phase: 1}, `{"phase":1,"remainingPods":0}`},
		"a prediction of nothing": {
			PredictedPlacement{Model: "1.36"},
			`{"model":"1.36","gen":0,"containers":{}}`,
		},
		"devices without topology": {
			NUMAState{Devices: map[string][]NUMADevices{"g": {{Total: 1}}}},
			`{"devices":{"g":[{"numa":[],"total":1,"free":0}]}}`,
		},
		"quantities as canonical strings": {Reservation{Resources: corev1.ResourceList{"cpu": resource.MustParse(
			"1500m")}}, `{"resources":{"cpu":"1500m"}}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Encode(tt.value); got != tt.want {
				t.Errorf("Encode = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestParseNodeLabels(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		labels map[string]string
		want   NodeLabels
		issues []LabelIssue
	}{
		"none": {},
		"the canonical keys": {
			labels: map[string]string{
				NodeCPUBindPolicy: "FullPCPUsOnly", NodeNUMAAllocateStrategy: "DistributeEvenly",
				NodeNUMATopologyPolicy: "Restricted",
			},
			want: NodeLabels{
				CPUBind: NodeBindFullPCPUsOnly, NUMAAllocate: StrategyDistributeEvenly,
				NUMATopology: TopologyRestricted,
			},
		},
		"the spellings of seed 000": {
			labels: map[string]string{
				NodeCPUBindPolicyAlias:      "SpreadByPCPUs",
				NodeNUMATopologyPolicyAlias: "BestEffort",
			},
			want: NodeLabels{CPUBind: NodeBindSpreadByPCPUs, NUMATopology: TopologyBestEffort},
		},
		"old values": {
			labels: map[string]string{NodeCPUBindPolicy: "PCPUOnly"},
			want:   NodeLabels{CPUBind: NodeBindFullPCPUsOnly},
		},
		"the kubelet's values": {
			labels: map[string]string{NodeNUMATopologyPolicy: "single-numa-node"},
			want:   NodeLabels{NUMATopology: TopologySingleNUMANode},
		},
		"an empty bind policy is None": {
			labels: map[string]string{NodeCPUBindPolicy: ""},
			want:   NodeLabels{CPUBind: NodeBindNone},
		},
		"None is a choice": {
			labels: map[string]string{NodeNUMATopologyPolicy: "none"},
			want:   NodeLabels{NUMATopology: TopologyNone},
		},
		"key and alias of one meaning": {labels: map[string]string{
			NodeCPUBindPolicy:      "FullPCPUsOnly",
			NodeCPUBindPolicyAlias: "FullPCPUs",
		}, want: NodeLabels{CPUBind: NodeBindFullPCPUsOnly}},
		"the canonical key wins over its alias": {
			labels: map[string]string{NodeNUMATopologyPolicy: "Restricted", NodeNUMATopologyPolicyAlias: "BestEffort"},
			want:   NodeLabels{NUMATopology: TopologyRestricted},
			issues: []LabelIssue{{
				NodeNUMATopologyPolicyAlias, "BestEffort",
				"conflicting values for node.koordinator.sh/numa-topology-policy and its alias " +
					"node.koordinator.sh/numa-topology-alignment-policy", AliasConflict,
			}},
		},
		"an unknown value is as if absent": {
			labels: map[string]string{NodeNUMAAllocateStrategy: "Pack"},
			issues: []LabelIssue{{
				NodeNUMAAllocateStrategy, "Pack",
				`Unsupported value "Pack": supported MostAllocated, LeastAllocated, DistributeEvenly`, Unusable,
			}},
		},
		"another case": {
			labels: map[string]string{NodeCPUBindPolicy: "fullpcpusonly"},
			want:   NodeLabels{CPUBind: NodeBindFullPCPUsOnly},
			issues: []LabelIssue{{
				NodeCPUBindPolicy, "fullpcpusonly",
				`"fullpcpusonly" is read as "FullPCPUsOnly": values are case-sensitive on output`, Spelling,
			}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, issues := ParseNodeLabels(tt.labels)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("labels %v (-want +got):\n%s", tt.labels, diff)
			}
			if diff := cmp.Diff(tt.issues, issues); diff != "" {
				t.Errorf("issues of %v (-want +got):\n%s", tt.labels, diff)
			}
		})
	}
}

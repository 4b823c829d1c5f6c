package annotation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func unknown(key, known string) Ignored {
	return Ignored{key, fmt.Sprintf("has no effect: unknown key; the nearest known key is %q", known)}
}

func TestKeysWithoutEffectAreNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at   Place
		keys []string
		want []Ignored
	}{
		"keys that are read": {at: PodAnnotation, keys: []string{ResourceSpecKey, VolcanoTopologyPolicy}},
		"keys of other programs": {
			at:   PodAnnotation,
			keys: []string{"example.com/owner", "kubectl.kubernetes.io/restartedAt"},
		},
		"a gang":     {at: PodAnnotation, keys: []string{GangName}},
		"a PodGroup": {at: PodLabel, keys: []string{PodGroup, CommunityPodGroup}},
		"a key of gangs that is not read": {
			at: PodAnnotation, keys: []string{"scheduling.k8s.io/group-name"},
			want: []Ignored{{
				"scheduling.k8s.io/group-name", "has no effect: gang scheduling: planned",
			}},
		},
		"a misspelt key of gangs": {
			at: PodAnnotation, keys: []string{"gang.scheduling.koordinator.sh/min_available"},
			want: []Ignored{{
				"gang.scheduling.koordinator.sh/min_available",
				`has no effect: unknown key, did you mean "gang.scheduling.koordinator.sh/min-available"?`,
			}},
		},
		"a label of gangs written as an annotation": {
			at: PodAnnotation, keys: []string{PodGroup},
			want: []Ignored{{PodGroup, "has no effect here: it is a Pod label"}},
		},
		"what will not come, sorted": {
			at: PodAnnotation, keys: []string{"scheduling.volcano.sh/queue-name", "koordinator.sh/memoryQOS"},
			want: []Ignored{
				{"koordinator.sh/memoryQOS", "has no effect: memory QoS: not planned"},
				{"scheduling.volcano.sh/queue-name", "has no effect: Volcano's queues and task order: not planned"},
			},
		},
		"a part of an NPU, which the agent injects into no container": {
			at: PodResource, keys: []string{"huawei.com/npu-core"},
			want: []Ignored{{
				"huawei.com/npu-core", "no component of Tenon provides this resource: parts of Ascend NPUs, " +
					"which the agent does not put into containers: not planned",
			}},
		},
		"batch and mid amounts": {
			at: PodResource, keys: []string{"kubernetes.io/batch-cpu", "koordinator.sh/mid-memory"},
		},
		"a misspelt key": {
			at: PodLabel, keys: []string{"koordinator.sh/qosclass"},
			want: []Ignored{{
				"koordinator.sh/qosclass",
				`has no effect: unknown key, did you mean "koordinator.sh/qosClass"?`,
			}},
		},
		"a misspelt domain": {
			at: PodAnnotation, keys: []string{"scheduling.koordiantor.sh/resource-spec"},
			want: []Ignored{{
				"scheduling.koordiantor.sh/resource-spec",
				`has no effect: unknown key, did you mean "scheduling.koordinator.sh/resource-spec"?`,
			}},
		},
		"a label written as an annotation": {
			at: PodAnnotation, keys: []string{QoSClass},
			want: []Ignored{{QoSClass, "has no effect here: it is a Pod label"}},
		},
		"what the scheduler writes": {at: PodAnnotation, keys: []string{DeviceAllocatedKey, ResourceStatusKey}},
		"keys of our domains that are close to none, with the nearest of their domain": {
			at: PodAnnotation, keys: []string{
				"gang.scheduling.koordinator.sh/min-member", "gang.scheduling.koordinator.sh/min-avail", "tenon.sh/sim",
				"pod-group.scheduling.sigs.k8s.io/policy", "descheduler.alpha.kubernetes.io/prefer-none",
				"koordinator.sh",
			},
			want: []Ignored{
				unknown("descheduler.alpha.kubernetes.io/prefer-none", PreferNoEviction),
				unknown("gang.scheduling.koordinator.sh/min-avail", GangMinAvailable),
				unknown("gang.scheduling.koordinator.sh/min-member", GangMinAvailable),
				unknown("koordinator.sh", CPUBurstKey),
				unknown("pod-group.scheduling.sigs.k8s.io/policy", GangMatchPolicyAlias),
				unknown("tenon.sh/sim", SimulateKey),
			},
		},
		"a key of a domain that has no key here": {
			at: PodLabel, keys: []string{"tenon.sh/qosClass"},
			want: []Ignored{unknown("tenon.sh/qosClass", QoSClass)},
		},
		"domains that only look like ours": {
			at: PodLabel,
			keys: []string{
				"mykoordinator.sh/a", "koordinator.sh.example.com/a", "kueue.x-k8s.io/queue-name",
			},
		},
		"a feature without effect at the wrong place": {
			at: PodLabel, keys: []string{"koordinator.sh/memoryQOS"},
			want: []Ignored{{"koordinator.sh/memoryQOS", "has no effect: memory QoS: not planned"}},
		},
		"a key of another object": {
			at: PodLabel, keys: []string{QuotaParent},
			want: []Ignored{{QuotaParent, "has no effect here: it is an ElasticQuota label"}},
		},
		"a misspelt key among those of a prefix": {
			at: PodAnnotation, keys: []string{"volcano.sh/numa-topology-polcy", "volcano.sh/job-name"},
			want: []Ignored{
				{"volcano.sh/job-name", "has no effect: Volcano's queues and task order: not planned"},
				{
					"volcano.sh/numa-topology-polcy",
					`has no effect: unknown key, did you mean "volcano.sh/numa-topology-policy"?`,
				},
			},
		},
		"a resource that a Device may list": {at: PodResource, keys: []string{"koordinator.sh/accelerator"}},
		"a node's label that is three edits away": {
			at: NodeLabel, keys: []string{"node.koordinator.sh/cpu-bind-policies"},
			want: []Ignored{unknown("node.koordinator.sh/cpu-bind-policies", NodeCPUBindPolicy)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, IgnoredKeys(test.at, test.keys)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// notOfObjects are constants that look like keys and are set on no object of the table, with what they are.
var notOfObjects = map[string]string{
	BindKeyPrefix:             "the beginning of keys",
	EnforcementDegraded:       "a condition of a Node",
	ExpectedStart:             "a condition of a PodGroup",
	KubeletStateContradictory: "a condition of a Node",
	EvictionRequester:         "a requester of evictions",
	MigrationFinalizer:        "a finalizer",
	ResourcePresence:          "a resource that pods do not request",
	RotateCertificates:        "an annotation of a Secret",
	RequiredPlugins:           "a key of container runtimes",
	ManagedBy:                 "a label of Kubernetes",
}

// TestTheTableHasEveryKeyOfThisPackage reads the constants of the package's sources.
func TestTheTableHasEveryKeyOfThisPackage(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	listed, n := map[string]bool{}, 0
	for _, s := range Supports() {
		for _, key := range s.Keys {
			listed[key] = listed[key] || s.State == Done || s.State == Planned
		}
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST || strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, spec := range group.Specs {
				for _, value := range spec.(*ast.ValueSpec).Values {
					literal, _ := value.(*ast.BasicLit)
					if literal == nil || !strings.Contains(literal.Value, ".sh/") &&
						!strings.Contains(literal.Value, ".io/") {
						continue
					}
					n++
					key, err := strconv.Unquote(literal.Value)
					if err != nil || !listed[key] && notOfObjects[key] == "" {
						t.Errorf("%s: %s is not in the table as done or planned: %v", name, literal.Value, err)
					}
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d keys were found in %d files", n, len(files))
	}
}

// TestTheTableHasTheKeysOfKoordinator: its labels and annotations of Pods and Nodes, in July 2026.
func TestTheTableHasTheKeysOfKoordinator(t *testing.T) {
	t.Parallel()
	for at, keys := range map[Place]string{
		PodLabel: `koordinator.sh/qosClass koordinator.sh/priority koordinator.sh/priority-class
			pod.koordinator.sh/mutating-update pod.koordinator.sh/skip-enhanced-validation
			koordinator.sh/eviction-enabled pod.koordinator.sh/is-pre-allocatable koordinator.sh/core-sched-group-id
			koordinator.sh/core-sched-policy pod-group.scheduling.sigs.k8s.io pod-group.scheduling.sigs.k8s.io/name
			pod-group.scheduling.sigs.k8s.io/min-available quota.scheduling.koordinator.sh/name
			quota.scheduling.koordinator.sh/preemptible scheduling.koordinator.sh/scheduler-name
			scheduling.koordinator.sh/operating-mode scheduling.koordinator.sh/preemption-policy
			scheduling.koordinator.sh/disable-preemptible scheduling.koordinator.sh/reservation-ignored
			koordinator.sh/gpu-isolation-provider`,
		PodAnnotation: `koordinator.sh/networkQOS koordinator.sh/eviction-policy koordinator.sh/eviction-priority
			pod.koordinator.sh/pre-allocatable-priority koordinator.sh/oom-score-adj koordinator.sh/oom-score-adj-spec
			koordinator.sh/cpuBurst koordinator.sh/cpuQOS koordinator.sh/memoryQOS koordinator.sh/blkioQOS
			node.koordinator.sh/resctrl gang.scheduling.koordinator.sh/name gang.scheduling.koordinator.sh/min-available
			gang.scheduling.koordinator.sh/waiting-time gang.scheduling.koordinator.sh/total-number
			gang.scheduling.koordinator.sh/mode gang.scheduling.koordinator.sh/groups
			gang.scheduling.koordinator.sh/timeout gang.scheduling.koordinator.sh/match-policy
			pod-group.scheduling.sigs.k8s.io/match-policy internal.scheduling.koordinator.sh/bind-gang-group-id
			internal.scheduling.koordinator.sh/bind-gang-member-count scheduling.koordinator.sh/eviction-cost
			scheduling.koordinator.sh/soft-eviction scheduling.koordinator.sh/device-allocated
			scheduling.koordinator.sh/device-allocate-hint scheduling.koordinator.sh/device-joint-allocate
			scheduling.koordinator.sh/gpu-partition-spec scheduling.koordinator.sh/gpu-minors
			scheduling.koordinator.sh/load-estimated-scaling-factors
			scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled
			scheduling.koordinator.sh/load-estimated-seconds-after-initialized
			internal.scheduling.koordinator.sh/original-scheduler-name scheduling.koordinator.sh/scheduling-hint
			internal.scheduling.koordinator.sh/scheduling-hint gang.scheduling.koordinator.sh/network-topology-index
			gang.scheduling.koordinator.sh/network-topology-spec scheduling.koordinator.sh/network-topology-selector
			scheduling.koordinator.sh/numa-topology-spec scheduling.koordinator.sh/resource-spec
			scheduling.koordinator.sh/resource-status scheduling.koordinator.sh/reservation-owners
			scheduling.koordinator.sh/reservation-current-owner scheduling.koordinator.sh/reservation-allocated
			scheduling.koordinator.sh/reservation-affinity scheduling.koordinator.sh/exact-match-reservation
			node.koordinator.sh/extended-resource-spec pod.koordinator.sh/replace-resources`,
		NodeLabel: `node.koordinator.sh/cpu-normalization-enabled node.koordinator.sh/gpu-vendor
			node.koordinator.sh/gpu-model node.koordinator.sh/gpu-driver-version
			node.koordinator.sh/gpu-partition-policy node.koordinator.sh/secondary-device-well-planned
			node.koordinator.sh/cpu-reclaim-ratio
			node.koordinator.sh/memory-reclaim-ratio node.koordinator.sh/mid-static-cpu-reserved-ratio
			node.koordinator.sh/mid-static-memory-reserved-ratio node.koordinator.sh/enable-numa-reservation
			node.koordinator.sh/cpu-bind-policy node.koordinator.sh/numa-allocate-strategy
			node.koordinator.sh/numa-topology-policy koordinator.sh/gpu-isolation-provider`,
		NodeAnnotation: `node.koordinator.sh/cpu-normalization-ratio scheduling.koordinator.sh/usage-thresholds
			node.koordinator.sh/colocation-strategy node.koordinator.sh/network-bandwidth
			node.koordinator.sh/reservation node.koordinator.sh/resource-amplification-ratio
			node.koordinator.sh/raw-allocatable node.koordinator.sh/originExtendedAllocatable
			node.koordinator.sh/thirdPartyAllocations node.koordinator.sh/system-qos-resource`,
	} {
		for _, key := range strings.Fields(keys) {
			if !slices.ContainsFunc(Supports(), func(s Support) bool {
				return s.Place == at && slices.ContainsFunc(s.Keys, func(k string) bool { return matches(k, key) })
			}) {
				t.Errorf("the table has no %s %s", at, key)
			}
		}
	}
}

// A key has one state at each place, so that a warning and the table cannot differ.
func TestEveryKeyIsListedOnce(t *testing.T) {
	t.Parallel()
	type placed struct {
		at  Place
		key string
	}
	seen := map[placed]string{}
	for _, s := range Supports() {
		for _, k := range s.Keys {
			if other, ok := seen[placed{s.Place, k}]; ok {
				t.Errorf("%s %s is part of %s and of %s", s.Place, k, other, s.Feature)
			}
			seen[placed{s.Place, k}] = s.Feature
		}
	}
}

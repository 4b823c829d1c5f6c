package annotation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
			at: PodAnnotation, keys: []string{"scheduling.volcano.sh/queue-name", "koordinator.sh/cpuBurst"},
			want: []Ignored{
				{"koordinator.sh/cpuBurst", "has no effect: CPU burst: not planned"},
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
		"a node's misspelt label": {
			at: NodeLabel, keys: []string{"node.koordinator.sh/cpu-bind-policies"},
			want: nil, // three edits away: it may well be another key
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

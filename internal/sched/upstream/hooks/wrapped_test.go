package hooks

import (
	"reflect"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestTheWatchedCacheWrapsWhatChangesIt: embedding would hide a method of a new version of Kubernetes that changes a
// pod or a node, and rankings would keep the node's old score. Each method is wrapped, or is listed here with why it
// need not be.
func TestTheWatchedCacheWrapsWhatChangesIt(t *testing.T) {
	t.Parallel()
	want := []string{
		"Dump", "GetNode", "GetPod", "IsAssumedPod", "NodeCount", "PodCount", "PodGroupStates", // read
		"BindPod", // sends a request
		// Groups of pods, which change no pod on a node: only the gate GenericWorkload, which is refused, calls them.
		"AddPodGroup", "UpdatePodGroup", "RemovePodGroup",
		"AddPodGroupMember", "RemovePodGroupMember", "UpdatePodGroupMember",
		"AddCompositePodGroup", "UpdateCompositePodGroup", "RemoveCompositePodGroup",
		"PodGroups", "CompositePodGroups", "CompositePodGroupStates", "GetRootKeyForGroup",
		"BuildHierarchySnapshotFromPod",
	}
	slices.Sort(want)
	if got := testkit.Promoted(reflect.TypeFor[*watched]()); !slices.Equal(got, want) {
		t.Errorf("the watched cache does not wrap\n%q, want\n%q: read what a new method changes", got, want)
	}
}

// TestTheQueuesWrapWhatChangesThem: a method of a new version that adds, moves or removes a pod would not be counted,
// and rankings would not learn of a nomination. Each method is wrapped, or is listed here with why it need not be.
func TestTheQueuesWrapWhatChangesThem(t *testing.T) {
	t.Parallel()
	rest := []string{
		"GetPod", "InFlightPods", "NominatedPodsForNode", "PendingPods", "PodsInActiveQ", "PodsInBackoffQ",
		"SchedulingCycle", "UnschedulablePods", // read
		"PatchPodStatus", // sends a request
		"Activate",       // asks again about a pod: nothing has changed that lets another pod fit
		"Close", "Done",  // no pod enters or leaves
		// Groups of pods, which only the gate GenericWorkload makes: it is refused.
		"AddAttemptedPodGroupIfNeeded", "GetPodGroup", "PendingPodGroupPods", "IncompletePodGroupPodsPods",
		"AddPodGroup", "UpdatePodGroup", "DeletePodGroup",
		"AddCompositePodGroup", "UpdateCompositePodGroup", "DeleteCompositePodGroup",
	}
	for queue, more := range map[reflect.Type][]string{
		reflect.TypeFor[*eventQueue](): {"Run"},
		reflect.TypeFor[*heldQueue](): {
			"Pop", "Take", "AddUnschedulablePodIfNotPresent", // no pod is taken before the queue runs
			"AddNominatedPod", "DeleteNominatedPodIfExists", "UpdateNominatedPod", // also for pods that are held
		},
	} {
		want := slices.Sorted(slices.Values(append(more, rest...)))
		if got := testkit.Promoted(queue); !slices.Equal(got, want) {
			t.Errorf("%s does not wrap\n%q, want\n%q: read what a new method changes", queue, got, want)
		}
	}
}

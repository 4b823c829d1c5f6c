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

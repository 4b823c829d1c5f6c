package annotation

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of a PodMigrationJob.
const (
	// PassedArbitration is an annotation: "true" once the descheduler lets the job start.
	PassedArbitration = "descheduler.koordinator.sh/passed-arbitration"
	// MigrationStartKey is an annotation that holds a MigrationStart. It is written with PassedArbitration.
	MigrationStartKey = "tenon.sh/migration-start"
	// AbortMigration is an annotation that users set to "true" to stop the job.
	AbortMigration = "tenon.sh/abort-migration"
	// MigrationFinalizer is a finalizer of jobs that have started and not ended: the descheduler deletes their
	// Reservation first.
	MigrationFinalizer = "tenon.sh/migration"
)

// Annotations of a PodMigrationJob that the descheduler created for a plugin.
const (
	// MigrationPlugin is which profile and plugin moved the pod, as PROFILE/PLUGIN.
	MigrationPlugin = "tenon.sh/migration-plugin"
	// MigrationReason is why, for people.
	MigrationReason = "tenon.sh/migration-reason"
	// MigrationRoomKey holds a MigrationRoom: the pods that get what the pod leaves.
	MigrationRoomKey = "tenon.sh/migration-room"
)

// Annotations of a Pod that users of the Kubernetes descheduler set.
const (
	// PreferNoEviction has a pod moved last, or never with noEvictionPolicy Mandatory. Its presence counts.
	PreferNoEviction = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
	// RequestEvictOnly keeps a pod from being removed but by the Eviction API. Its presence counts.
	RequestEvictOnly = "descheduler.alpha.kubernetes.io/request-evict-only"
	// EvictionInProgress is on a pod that another program is moving. Its presence counts.
	EvictionInProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	// OwnDeletionCost is the pod-deletion-cost that the descheduler wrote: one that differs is a user's.
	OwnDeletionCost = "tenon.sh/pod-deletion-cost"
)

// EvictionRequester is the requester of an EvictionRequest that the descheduler makes.
const EvictionRequester = "tenon.sh/descheduler"

// Keys of Reservations and pods that the descheduler writes.
const (
	// MigrationJobKey is an annotation of a Reservation: the UID of the PodMigrationJob that it was created for.
	MigrationJobKey = "tenon.sh/migration-job"
	// SoftEvictionKey is an annotation of a Pod that holds a SoftEviction. Another program is to delete the pod.
	SoftEvictionKey = "scheduling.koordinator.sh/soft-eviction"
)

// MigrationStart is what a job was about when it started. It is needed when the pod is gone.
type MigrationStart struct {
	// Time is when arbitration passed.
	Time metav1.Time `json:"time"`
	// Node is the node of the pod, "" for a pod without node.
	Node string `json:"node,omitempty"`
	// Workload is the key of the pod's workload, Gang that of its gang; "" where it has none.
	Workload string `json:"workload,omitempty"`
	Gang     string `json:"gang,omitempty"`
}

// ParseMigrationStart reads a MigrationStart.
func ParseMigrationStart(text string) (MigrationStart, []Warning, error) {
	return read[MigrationStart](text, nil)
}

// MigrationRoom is for whom a job makes room, together with the other jobs of the same pods.
type MigrationRoom struct {
	Pods []RoomPod `json:"pods"`
}

// RoomPod is a pod that waits, and the node on which it fits once all pods have moved.
type RoomPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node"`
}

// ParseMigrationRoom reads a MigrationRoom.
func ParseMigrationRoom(text string) (MigrationRoom, []Warning, error) {
	return read[MigrationRoom](text, nil)
}

// SoftEviction asks for the deletion of a pod.
type SoftEviction struct {
	Timestamp     *metav1.Time          `json:"timestamp,omitempty"`
	DeleteOptions *metav1.DeleteOptions `json:"deleteOptions,omitempty"`
	// Initiator is who asks.
	Initiator string `json:"initiator,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Annotations of a Pod about its eviction, written by users.
const (
	// EvictionCost is an int32: pods with a lower one are moved first. 2147483647: the pod is never moved. Default: 0.
	EvictionCost = "scheduling.koordinator.sh/eviction-cost"
	// Evictable lets the descheduler move a pod that it would leave: a bare pod, one with local storage, a high
	// priority or labels that are not selected. Its presence counts, whatever its value. No limit is lifted.
	Evictable = "descheduler.alpha.kubernetes.io/evict"
	// EvictionPriority is an int32: an agent evicts best-effort pods with a lower one first, whatever their priority.
	// Default, also for a value that cannot be read: 0.
	EvictionPriority = "koordinator.sh/eviction-priority"
	// EvictionPolicyKey is an annotation that holds an EvictionPolicy.
	EvictionPolicyKey = "koordinator.sh/eviction-policy"
)

// EvictionPolicy has the features for which agents may evict a best-effort pod: BEMemoryEvict, BECPUEvict. A pod
// without it may be evicted for each of them, and one with a value that cannot be read for none.
type EvictionPolicy []string

// ParseEvictionPolicy reads an EvictionPolicy.
func ParseEvictionPolicy(text string) (EvictionPolicy, []Warning, error) {
	return read[EvictionPolicy](text, nil)
}

// ParseEvictionCost reads an EvictionCost, which has neither a plus sign nor leading zeros.
func ParseEvictionCost(text string) (int32, []Warning, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, nil, invalid(text, "must be a whole number that fits int32, without plus sign and leading zeros")
	}
	return int32(n), nil, nil
}

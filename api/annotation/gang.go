package annotation

// Labels of a Pod that name its gang. A pod's spec.schedulingGroup comes before them, then the first one found counts.
const (
	// PodGroup names a PodGroup of scheduling.sigs.k8s.io.
	PodGroup = "pod-group.scheduling.sigs.k8s.io"
	// CommunityPodGroup names a PodGroup of scheduling.x-k8s.io.
	CommunityPodGroup = "scheduling.x-k8s.io/pod-group"
	// LightweightGang names a gang without an object.
	LightweightGang = "pod-group.scheduling.sigs.k8s.io/name"
	// LightweightMinAvailable is how many members a gang without an object needs.
	LightweightMinAvailable = "pod-group.scheduling.sigs.k8s.io/min-available"
)

// Annotations of a Pod that name its gang, read where no label does.
const (
	// GangName names a gang without an object.
	GangName = "gang.scheduling.koordinator.sh/name"
	// GangMinAvailable is how many members the gang needs, before LightweightMinAvailable.
	GangMinAvailable = "gang.scheduling.koordinator.sh/min-available"
)

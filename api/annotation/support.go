package annotation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/api/nearest"
)

// Place is where a key is set.
type Place string

// Places of keys. KindOf is the kind of an object itself.
const (
	PodLabel       Place = "Pod label"
	PodAnnotation  Place = "Pod annotation"
	PodResource    Place = "Pod resource"
	NodeLabel      Place = "Node label"
	NodeAnnotation Place = "Node annotation"
	NodeTaint      Place = "Node taint"
	ObjectKind     Place = "Kind"

	QuotaLabel            Place = "ElasticQuota label"
	QuotaAnnotation       Place = "ElasticQuota annotation"
	ReservationLabel      Place = "Reservation label"
	ReservationAnnotation Place = "Reservation annotation"
	MigrationAnnotation   Place = "PodMigrationJob annotation"
	ProfileAnnotation     Place = "ClusterColocationProfile annotation"
	DeviceLabel           Place = "Device label"
	DeviceAnnotation      Place = "Device annotation"
	TopologyAnnotation    Place = "NodeResourceTopology annotation"
	NamespaceLabel        Place = "Namespace label"
	ConfigMapAnnotation   Place = "ConfigMap annotation"
)

// State is what this version does with a key.
type State string

// States of support.
const (
	Done       State = "done"
	Planned    State = "planned"
	NotPlanned State = "not planned"
)

// Support is what this version does with some keys of Koordinator, Volcano or the NodeResourceTopology ecosystem.
type Support struct {
	Feature string
	State   State
	Place   Place
	// Keys are complete, or prefixes that end in *. Aliases follow the canonical key.
	Keys []string
}

// Supports returns the keys that users of these projects set, by feature. It is the source of admission warnings, of
// notes in `tenon explain` and of the support table in the reference.
func Supports() []Support {
	const koord, sched, node = "koordinator.sh/", "scheduling.koordinator.sh/", "node.koordinator.sh/"
	const gangs = "gang scheduling"
	return []Support{
		{"QoS classes and priority bands", Done, PodLabel, []string{QoSClass, PriorityClass, Priority}},
		{"CPU binding", Done, PodAnnotation, []string{ResourceSpecKey, ResourceStatusKey}},
		{"isolated CPUs", Done, PodAnnotation, []string{IsolationKey}},
		{"CPU binding", Done, NodeLabel, []string{NodeCPUBindPolicy, NodeCPUBindPolicyAlias, NodeNUMAAllocateStrategy}},
		{"NUMA alignment", Done, PodAnnotation, []string{NUMATopologySpecKey, VolcanoTopologyPolicy}},
		{"NUMA alignment", Done, NodeLabel, []string{NodeNUMATopologyPolicy, NodeNUMATopologyPolicyAlias}},
		{"NUMA alignment", Done, ObjectKind, []string{
			"NodeResourceTopology.topology.node.k8s.io", "Numatopology.nodeinfo.volcano.sh",
		}},
		{"node reservation", Done, NodeAnnotation, []string{NodeReservation, NodeSystemQoSResource}},
		{"take-over from the kubelet", Done, NodeLabel, []string{TopologyMode}},
		{"take-over from the kubelet", Done, NodeAnnotation, []string{LeaveKey}},
		{"nodes that autoscalers add", Done, NodeTaint, []string{StartupTaint}},
		{"nodes that autoscalers keep", Done, NodeAnnotation, []string{ScaleDownDisabled, DoNotDisrupt}},
		{"nodes that autoscalers add", Done, NodeLabel, []string{ScaleHelper}},
		{"nodes that autoscalers add", Done, PodLabel, []string{ScaleHelper}},
		{"nodes that autoscalers add", Done, PodAnnotation, []string{ScaleHelper, ConsumeProvisioningRequest}},
		{"what a node has", Done, TopologyAnnotation, []string{
			KubeletCPUManagerPolicy, KubeletCPUManagerPolicyAlias1, KubeletCPUManagerPolicyAlias2, CPUTopology,
			PodCPUAllocsKey, CPUSharedPoolsKey, BECPUSharedPoolsKey, Writer, TakeoverKey, ReportKey, KubeletKey,
			NUMAStateKey, IsolatedCPUsKey,
		}},
		{"elastic quota", Done, PodLabel, []string{QuotaName, QuotaPreemptible}},
		{"elastic quota", Done, QuotaLabel, []string{
			QuotaIsParent, QuotaParent, QuotaAllowLent, QuotaTreeID, QuotaIsRoot, QuotaIgnoreDefaultTree,
			QuotaAllowForceUpdate, QuotaProfile,
		}},
		{"elastic quota", Done, QuotaAnnotation, []string{
			QuotaSharedWeight, QuotaNamespaces, QuotaTotal, QuotaUnschedulable, QuotaResourceKeys, QuotaStrictKeys,
			QuotaAdmission, QuotaRuntime, QuotaRequest, QuotaChildRequest, QuotaNonPreemptibleRequest,
			QuotaNonPreemptibleUsed, QuotaGuaranteed, QuotaAllocated,
		}},
		{"elastic quota", Done, ObjectKind, []string{
			"ElasticQuota.scheduling.sigs.k8s.io", "ElasticQuota.scheduling.x-k8s.io",
			"ElasticQuotaProfile.quota.koordinator.sh",
		}},
		{"new configuration of Tenon's own pods", Done, PodAnnotation, []string{"tenon.sh/config-hash"}},
		{"simulated containers", Done, PodAnnotation, []string{SimulateKey}},
		{"allocations written by the scheduler", Done, PodAnnotation, []string{
			PredictedPlacementKey, GangTimeout, BoundGangGroup, BoundGangMembers, QuotaBound,
		}},

		{"run times of pods", Done, PodAnnotation, []string{ExpectedRuntime}},
		{"run times of pods", Done, QuotaAnnotation, []string{ExpectedRuntime}},

		{gangs, Done, PodAnnotation, []string{
			GangName, GangMinAvailable, GangTotalNumber, GangMode, GangGroups, GangMatchPolicy, GangMatchPolicyAlias,
			GangWaitingTime, GangInterrupted, GangNetworkTopology, GangNetworkTopologyIndex,
		}},
		{gangs, Done, PodLabel, []string{KueueGroup}},
		{gangs, Done, PodAnnotation, []string{KueueGroupTotal, KueueGroupServing, KueueGroupFast}},
		{gangs, Done, NodeLabel, []string{"nvidia.com/gpu.clique"}},
		{gangs, Done, PodLabel, []string{PodGroup, CommunityPodGroup, LightweightGang, LightweightMinAvailable}},
		{"gangs of operators' objects", Done, PodLabel, []string{GangLabel}},
		{"gangs of operators' objects", Done, PodAnnotation, []string{GangWish, GangRule}},
		{"gangs of operators' objects", Done, NamespaceLabel, []string{GangLabel, GangsLabel}},
		{gangs, Done, ObjectKind, []string{
			"PodGroup.scheduling.sigs.k8s.io", "PodGroup.scheduling.x-k8s.io", "PodGroup.scheduling.k8s.io",
			"ClusterNetworkTopology.scheduling.koordinator.sh",
		}},

		{"devices", Done, PodResource, []string{
			ResourceGPU, ResourceGPUCore, ResourceGPUMemory, ResourceGPUMemoryRatio, ResourceGPUShared,
			"kubernetes.io/gpu", "kubernetes.io/gpu-core", "kubernetes.io/gpu-memory", "kubernetes.io/gpu-memory-ratio",
			ResourceRDMA, ResourceFPGA, "kubernetes.io/rdma", "kubernetes.io/fpga",
		}},
		{"devices", Done, PodAnnotation, []string{
			DeviceAllocateHintKey, DeviceJointAllocateKey, GPUPartitionSpecKey, DeviceAllocatedKey, GPUMinorsKey,
			BindTimestampKey,
		}},
		{"devices", Done, PodLabel, []string{GPUIsolationLabel}},
		{"devices", Done, NodeLabel, []string{GPUIsolationLabel, GPUVendorLabel, GPUModelLabel, GPUDriverLabel}},
		{"devices", Done, NamespaceLabel, []string{DeviceSchedulingLabel}},
		{"devices", Done, DeviceLabel, []string{MIGProfileLabel, MIGParentLabel, GPUPartitionPolicyLabel}},
		{"devices", Done, DeviceAnnotation, []string{
			DevicesCheckpointsKey, DevicesCheckpointsAlias, GPUPartitionsKey, DeviceLinksKey, DeviceModeKey,
		}},
		{"devices", Done, ObjectKind, []string{"Device.scheduling.koordinator.sh"}},

		{"reservations", Done, PodAnnotation, []string{
			ReservationAffinityKey, ExactMatchReservationKey, ReservationAllocatedKey, PreAllocatablePriority,
			ReservationOwnersKey, ReservationCurrentOwnerKey, ReservePodKey,
		}},
		{"reservations", Done, PodLabel, []string{ReservationIgnored, OperatingMode, IsPreAllocatable}},
		{"reservations", Done, ReservationLabel, []string{PreAllocationRequired, ReservationOrder}},
		{"reservations", Done, ReservationAnnotation, []string{ReservationRestrictedOptionsKey, MigrationJobKey}},
		{"reservations", Done, ObjectKind, []string{"Reservation.scheduling.koordinator.sh"}},

		{"descheduling", Done, PodAnnotation, []string{
			EvictionCost, Evictable, PreferNoEviction, RequestEvictOnly, EvictionInProgress, SoftEvictionKey,
			OwnDeletionCost,
		}},
		{"descheduling", Done, MigrationAnnotation, []string{
			PassedArbitration, MigrationStartKey, AbortMigration, MigrationPlugin, MigrationReason, MigrationRoomKey,
		}},
		{"descheduling", Done, ObjectKind, []string{"PodMigrationJob.scheduling.koordinator.sh"}},

		{"explanations as objects", Done, ObjectKind, []string{"ScheduleExplanation.scheduling.koordinator.sh"}},

		{"load-aware scheduling", Done, PodAnnotation, []string{
			EstimatedScalingFactorsKey, EstimatedSecondsAfterPodScheduled, EstimatedSecondsAfterInitialized,
		}},
		{"load-aware scheduling", Done, NodeAnnotation, []string{UsageThresholdsKey, RawAllocatableKey}},
		{"load-aware scheduling", Done, ObjectKind, []string{"NodeMetric.slo.koordinator.sh"}},

		{"batch and mid resources", Done, PodResource, []string{
			"kubernetes.io/batch-*", "kubernetes.io/mid-*", koord + "batch-*", koord + "mid-*",
		}},
		{"batch and mid resources", Done, PodAnnotation, []string{ExtendedResourceSpecKey}},
		{"batch and mid resources", Done, NodeLabel, []string{
			NodeCPUReclaimRatio, NodeMemoryReclaimRatio, NodeMidStaticCPURatio, NodeMidStaticMemoryRatio,
		}},
		{"batch and mid resources", Done, NodeAnnotation, []string{NodeColocationStrategy, NodeThirdPartyAllocations}},
		{"batch and mid resources", Done, ConfigMapAnnotation, []string{LastValidStrategy, StrategyProblem}},
		{"batch and mid resources", Done, ProfileAnnotation, []string{SkipUpdateResources}},
		{"batch and mid resources", Done, ObjectKind, []string{
			"ClusterColocationProfile.config.koordinator.sh", "NodeSLO.slo.koordinator.sh",
		}},

		{"CPU burst", Done, PodAnnotation, []string{CPUBurstKey}},
		{"isolation of exclusive CPUs", Done, PodAnnotation, []string{InterruptsKey, SleepKey}},

		{"evictions of best-effort pods", Done, PodAnnotation, []string{EvictionPolicyKey, EvictionPriority}},

		{"evictions of other pods than best-effort ones", NotPlanned, PodLabel, []string{koord + "eviction-enabled"}},
		{"what batch pods and YARN may have together", NotPlanned, NodeAnnotation, []string{
			node + "originExtendedAllocatable",
		}},
		{"devices", Planned, NodeLabel, []string{node + "gpu-*", node + "secondary-device-well-planned"}},
		{"gang scheduling", Planned, PodAnnotation, []string{"scheduling.k8s.io/group-name"}},
		{"CPU normalization and amplification", Planned, NodeAnnotation, []string{
			node + "resource-amplification-ratio", node + "cpu-normalization-ratio",
		}},
		{"CPU normalization and amplification", Planned, NodeLabel, []string{node + "cpu-normalization-enabled"}},
		{"CPU normalization and amplification", Planned, TopologyAnnotation, []string{node + "cpu-basic-info"}},
		{"per-NUMA kubelet reservation", Planned, NodeLabel, []string{node + "enable-numa-reservation"}},
		{"preemption policies", Planned, PodLabel, []string{
			sched + "disable-preemptible", sched + "preemption-policy",
		}},
		{"scheduling hints", Planned, PodAnnotation, []string{
			"internal.scheduling.koordinator.sh/scheduling-hint", sched + "scheduling-hint",
			"internal.scheduling.koordinator.sh/original-scheduler-name",
		}},
		{"network topology of a pod alone", Planned, PodAnnotation, []string{sched + "network-topology-selector"}},
		{"scheduling hints", Planned, PodLabel, []string{sched + "scheduler-name"}},

		{"parts of Ascend NPUs, which the agent does not put into containers", NotPlanned, PodResource, []string{
			"huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp",
		}},
		{"CPU QoS (group identity, cpu.idle)", NotPlanned, PodAnnotation, []string{koord + "cpuQOS"}},
		{"OOM scores", NotPlanned, PodAnnotation, []string{koord + "oom-score-adj", koord + "oom-score-adj-spec"}},
		{"other resources by annotation", NotPlanned, PodAnnotation, []string{"pod.koordinator.sh/replace-resources"}},
		{"settings of Koordinator's webhooks", NotPlanned, PodLabel, []string{
			"pod.koordinator.sh/mutating-update", "pod.koordinator.sh/skip-enhanced-validation",
		}},
		{"memory QoS", NotPlanned, PodAnnotation, []string{koord + "memoryQOS"}},
		{"block I/O and network QoS", NotPlanned, PodAnnotation, []string{koord + "blkioQOS", koord + "networkQOS"}},
		{"block I/O and network QoS", NotPlanned, NodeAnnotation, []string{node + "network-bandwidth"}},
		{"last-level cache and memory bandwidth control", NotPlanned, PodAnnotation, []string{
			node + "resctrl", koord + "resctrl",
		}},
		{"core scheduling", NotPlanned, PodLabel, []string{koord + "core-sched-*"}},
		{"Volcano's queues and task order", NotPlanned, PodAnnotation, []string{
			"scheduling.volcano.sh/*", "volcano.sh/*",
		}},
		{"Volcano's queues and task order", NotPlanned, PodLabel, []string{"scheduling.volcano.sh/*", "volcano.sh/*"}},
		{"Volcano's jobs and queues", NotPlanned, ObjectKind, []string{
			"Job.batch.volcano.sh", "PodGroup.scheduling.volcano.sh", "Queue.scheduling.volcano.sh",
		}},
	}
}

// Ignored is a key that has no effect, or a part of it only.
type Ignored struct{ Key, Text string }

// String returns the key and the text.
func (i Ignored) String() string { return i.Key + ": " + i.Text }

// IgnoredKeys returns those of keys, set at a place, that have no effect in this version, sorted: keys of features that
// it does not have, and misspellings of keys that it reads.
func IgnoredKeys(at Place, keys []string) []Ignored {
	var out []Ignored
	supports := Supports()
	for _, key := range keys {
		if text := ignored(supports, at, key); text != "" {
			out = append(out, Ignored{key, text})
		}
	}
	slices.SortFunc(out, func(a, b Ignored) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// UnservedKind returns the feature that a kind of object belongs to, with its state, where this version does not read
// the kind; "" for any other kind.
func UnservedKind(kind, group string) string {
	for _, s := range Supports() {
		if s.Place == ObjectKind && s.State != Done && slices.Contains(s.Keys, kind+"."+group) {
			return fmt.Sprintf("%s: %s", s.Feature, s.State)
		}
	}
	return ""
}

// ignored returns why a key has no effect at a place; "" for one that is read there, or that is of other software.
func ignored(supports []Support, at Place, key string) string {
	if SetByScheduler(key) && at == PodAnnotation {
		return "" // it is removed, with a warning of its own
	}
	var read []string
	var elsewhere Place
	exact, prefix := "", "" // the feature without effect that lists the key, or a prefix of it
	for _, s := range supports {
		for _, k := range s.Keys {
			switch known := matches(k, key); {
			case known && s.Place == at && s.State == Done:
				return ""
			case known && s.State == Done:
				elsewhere = s.Place
			case known && k == key:
				exact = fmt.Sprintf("%s: %s", s.Feature, s.State)
			case known && s.Place == at:
				prefix = fmt.Sprintf("%s: %s", s.Feature, s.State)
			case s.Place == at && s.State == Done:
				read = append(read, k)
			}
		}
	}
	meant := nearest.Word(key, read)
	switch feature := cmp.Or(exact, prefix); {
	case at == PodResource && feature != "":
		return "no component of Tenon provides this resource: " + feature
	case exact != "":
		return "has no effect: " + exact
	case elsewhere != "":
		article := "a"
		if strings.HasPrefix(string(elsewhere), "E") {
			article = "an"
		}
		return fmt.Sprintf("has no effect here: it is %s %s", article, elsewhere)
	case meant != "":
		return fmt.Sprintf("has no effect: unknown key, did you mean %q?", meant)
	case prefix != "":
		return "has no effect: " + prefix
	case at != PodResource && isOwn(key):
		return fmt.Sprintf("has no effect: unknown key; the nearest known key is %q", nearest.Closest(key, read))
	}
	return ""
}

// isOwn reports whether Tenon reads every key that has an effect in the domain of a key.
func isOwn(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	for _, own := range []string{
		"koordinator.sh", "tenon.sh", "volcano.sh", PodGroup, "descheduler.alpha.kubernetes.io",
	} {
		if domain == own || strings.HasSuffix(domain, "."+own) {
			return true
		}
	}
	return false
}

func matches(pattern, key string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(key, prefix)
	}
	return pattern == key
}

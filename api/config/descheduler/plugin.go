package descheduler

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Scope says which pods a plugin looks at. Most plugins have it.
type Scope struct {
	// Namespaces whose pods the plugin looks at. Default: all.
	Namespaces Namespaces `json:"namespaces,omitempty"`
	// LabelSelector selects the pods that the plugin looks at. Default: all pods.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// Target says which pods and nodes a plugin of Koordinator looks at.
type Target struct {
	// Paused does not run the plugin.
	Paused bool `json:"paused,omitempty"`
	// EvictableNamespaces are the namespaces whose pods the plugin may move. Default: all.
	EvictableNamespaces Namespaces `json:"evictableNamespaces,omitempty"`
	// NodeSelector selects the nodes that the plugin looks at. Default: all nodes of the profile.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// PodSelectors select the pods that the plugin may move: those of any of them. Default: all pods.
	PodSelectors []PodSelector `json:"podSelectors,omitempty"`
}

// PodSelector selects pods by their labels.
type PodSelector struct {
	// Name says what the pods are.
	Name string `json:"name,omitempty"`
	// Selector selects the pods.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Percentages are parts of 100 of the allocatable amounts of a node, by resource.
type Percentages map[string]float64

// DefaultEvictorArgs say which pods the plugins of the profile may move, besides the limits of MigrationController.
type DefaultEvictorArgs struct {
	metav1.TypeMeta `json:",inline"`
	Predicates      `json:",inline"`

	// MinReplicas is how many replicas the pod's owner must have. 0 and 1 are no limit.
	MinReplicas int32 `json:"minReplicas,omitempty" min:"0"`
	// MinPodAge is how old a pod must be.
	MinPodAge *metav1.Duration `json:"minPodAge,omitempty" min:"0"`
	// IgnorePodsWithoutPDB keeps pods that no PodDisruptionBudget selects from being moved.
	IgnorePodsWithoutPDB bool `json:"ignorePodsWithoutPDB,omitempty"`
	// NoEvictionPolicy is whether pods with the annotation prefer-no-eviction are moved last or never.
	NoEvictionPolicy string `json:"noEvictionPolicy,omitempty" default:"\"Preferred\"" allowed:"Preferred|Mandatory"`
	// PodProtections add and remove protections of pods.
	PodProtections Protections `json:"podProtections,omitempty"`
	// EvictDaemonSetPods is accepted from configurations of the Kubernetes descheduler.
	EvictDaemonSetPods *bool `json:"evictDaemonSetPods,omitempty" unused:"daemons"`
}

// Protections of pods, by name.
type Protections struct {
	// ExtraEnabled are protections that pods do not have by default.
	ExtraEnabled []string `json:"extraEnabled,omitempty" allowed:"protections"`
	// DefaultDisabled are protections that pods have by default, and now do not.
	DefaultDisabled []string `json:"defaultDisabled,omitempty" allowed:"lifted"`
	// Config of the protections.
	Config struct {
		PodsWithPVC struct {
			ProtectedStorageClasses []PodSelector `json:"protectedStorageClasses,omitempty" refused:"classes"`
		} `json:"PodsWithPVC,omitempty"`
	} `json:"config,omitempty"`
}

// NodeAffinityArgs are those of RemovePodsViolatingNodeAffinity.
type NodeAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	Scope           `json:",inline"`

	// NodeAffinityType is the affinity that pods must have.
	NodeAffinityType []string `json:"nodeAffinityType,omitempty" default:"required" allowed:"affinities"`
}

// NodeTaintsArgs are those of RemovePodsViolatingNodeTaints.
type NodeTaintsArgs struct {
	metav1.TypeMeta `json:",inline"`
	Scope           `json:",inline"`

	// IncludePreferNoSchedule also counts taints with the effect PreferNoSchedule.
	IncludePreferNoSchedule bool `json:"includePreferNoSchedule,omitempty"`
	// ExcludedTaints do not count, as KEY or KEY=VALUE.
	ExcludedTaints []string `json:"excludedTaints,omitempty"`
	// IncludedTaints are the only ones that count, as KEY or KEY=VALUE. Default: all.
	IncludedTaints []string `json:"includedTaints,omitempty"`
}

// InterPodAntiAffinityArgs are those of RemovePodsViolatingInterPodAntiAffinity.
type InterPodAntiAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	Scope           `json:",inline"`
}

// TopologySpreadArgs are those of RemovePodsViolatingTopologySpreadConstraint.
type TopologySpreadArgs struct {
	metav1.TypeMeta `json:",inline"`
	Scope           `json:",inline"`

	// Constraints are the values of whenUnsatisfiable that count.
	Constraints []string `json:"constraints,omitempty" default:"hard" allowed:"spread"`
	// TopologyBalanceNodeFit moves only pods that the scheduler finds another node for.
	TopologyBalanceNodeFit bool `json:"topologyBalanceNodeFit,omitempty" default:"true"`
}

// DuplicatesArgs are those of RemoveDuplicates.
type DuplicatesArgs struct {
	metav1.TypeMeta `json:",inline"`
	// Namespaces whose pods the plugin looks at. Default: all.
	Namespaces Namespaces `json:"namespaces,omitempty"`
	// ExcludeOwnerKinds are the kinds of owners whose pods are not moved.
	ExcludeOwnerKinds []string `json:"excludeOwnerKinds,omitempty"`
}

// TooManyRestartsArgs are those of RemovePodsHavingTooManyRestarts.
type TooManyRestartsArgs struct {
	metav1.TypeMeta `json:",inline"`
	Scope           `json:",inline"`

	// PodRestartThreshold is how often the containers of a pod may restart, together.
	PodRestartThreshold int32 `json:"podRestartThreshold" min:"1"`
	// IncludingInitContainers also counts restarts of init containers.
	IncludingInitContainers bool `json:"includingInitContainers,omitempty"`
	// States are the phases of pods, or the reasons for which a container waits; one must hold. Default: any.
	States []string `json:"states,omitempty"`
}

// FailedPodsArgs are those of RemoveFailedPods.
type FailedPodsArgs struct {
	metav1.TypeMeta `json:",inline"`
	Scope           `json:",inline"`

	// MinPodLifetimeSeconds is how old a pod must be.
	MinPodLifetimeSeconds *int64 `json:"minPodLifetimeSeconds,omitempty" min:"0"`
	// ExcludeOwnerKinds are the kinds of owners whose pods are not removed.
	ExcludeOwnerKinds []string `json:"excludeOwnerKinds,omitempty"`
	// Reasons for which the pod or a container of it failed; one must hold. Default: any.
	Reasons []string `json:"reasons,omitempty"`
	// ExitCodes of containers; one must hold. Default: any.
	ExitCodes []int32 `json:"exitCodes,omitempty"`
	// IncludingInitContainers also looks at init containers.
	IncludingInitContainers bool `json:"includingInitContainers,omitempty"`
}

// LifeTimeArgs are those of PodLifeTime.
type LifeTimeArgs struct {
	metav1.TypeMeta `json:",inline"`
	Scope           `json:",inline"`

	// MaxPodLifeTimeSeconds is how old a pod may become.
	MaxPodLifeTimeSeconds int64 `json:"maxPodLifeTimeSeconds" min:"1"`
	// States are the phases of pods, or the reasons for which a container waits or ended; one must hold.
	// Default: any.
	States []string `json:"states,omitempty"`
	// IncludingInitContainers also looks at init containers.
	IncludingInitContainers bool `json:"includingInitContainers,omitempty"`
	// IncludingEphemeralContainers also looks at ephemeral containers.
	IncludingEphemeralContainers bool `json:"includingEphemeralContainers,omitempty"`
}

// LowNodeUtilizationArgs are those of LowNodeUtilization: pods move from nodes that are used much to nodes that are
// used little.
type LowNodeUtilizationArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Thresholds below which, for every resource, a node is used little.
	Thresholds Percentages `json:"thresholds" min:"0" max:"100"`
	// TargetThresholds above which, for any resource, a node is used much. They have the resources of thresholds.
	TargetThresholds Percentages `json:"targetThresholds" min:"0" max:"100"`
	// UseDeviationThresholds takes both thresholds as distances from the mean of all nodes.
	UseDeviationThresholds bool `json:"useDeviationThresholds,omitempty"`
	// NumberOfNodes is how many nodes must be used little before a pod is moved.
	NumberOfNodes int32 `json:"numberOfNodes,omitempty" min:"0"`
	// EvictableNamespaces are the namespaces whose pods may be moved. Default: all.
	EvictableNamespaces Namespaces `json:"evictableNamespaces,omitempty"`
	// EvictionLimits limit the plugin within a round.
	EvictionLimits struct {
		Node *int32 `json:"node,omitempty" min:"1"`
	} `json:"evictionLimits,omitempty"`
	// EvictionModes has OnlyThresholdingResources where pods that request none of the resources are not moved.
	EvictionModes []string `json:"evictionModes,omitempty" allowed:"OnlyThresholdingResources"`
	// MetricsUtilization is accepted from configurations of the Kubernetes descheduler.
	MetricsUtilization map[string]any `json:"metricsUtilization,omitempty" refused:"requests"`
}

// HighNodeUtilizationArgs are those of HighNodeUtilization: nodes that are used little are emptied.
type HighNodeUtilizationArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Thresholds below which, for every resource, a node is used little.
	Thresholds Percentages `json:"thresholds" min:"0" max:"100"`
	// NumberOfNodes is how many nodes must be used little before a pod is moved.
	NumberOfNodes int32 `json:"numberOfNodes,omitempty" min:"0"`
	// EvictableNamespaces are the namespaces whose pods may be moved. Default: all.
	EvictableNamespaces Namespaces `json:"evictableNamespaces,omitempty"`
	// EvictionModes has OnlyThresholdingResources where pods that request none of the resources are not moved.
	EvictionModes []string `json:"evictionModes,omitempty" allowed:"OnlyThresholdingResources"`
}

// LowNodeLoadArgs are those of LowNodeLoad: pods move from nodes whose measured use is high to nodes where it is low.
type LowNodeLoadArgs struct {
	metav1.TypeMeta `json:",inline"`
	Target          `json:",inline"`
	LoadBand        `json:",inline"`

	// DryRun decides everything and moves no pod.
	DryRun bool `json:"dryRun,omitempty"`
	// NodeFit moves a pod only to a node that the scheduler finds for it. Without it the least used node is reserved.
	NodeFit bool `json:"nodeFit,omitempty" default:"true"`
	// NumberOfNodes is how many low nodes are too few: pods move only while more nodes are low.
	NumberOfNodes int32 `json:"numberOfNodes,omitempty" min:"0"`
	// NodeMetricExpirationSeconds is from which age on a NodeMetric does not count. Its node is left out then.
	NodeMetricExpirationSeconds int64 `json:"nodeMetricExpirationSeconds,omitempty" default:"180" min:"1"`
	// DetectorCacheTimeout is after which time without a NodeMetric it is forgotten that a node was high. Less than two
	// rounds count as two.
	DetectorCacheTimeout metav1.Duration `json:"detectorCacheTimeout,omitempty" default:"\"5m\"" min:"1"`
	// NodePools are nodes with thresholds of their own, which move pods only among themselves. A node is of the first
	// pool that selects it. Those of none have the thresholds above; without these, they are left out.
	NodePools []LoadPool `json:"nodePools,omitempty"`
}

// LoadPool is a pool of nodes.
type LoadPool struct {
	LoadBand `json:",inline"`

	// Name of the pool.
	Name string `json:"name"`
	// NodeSelector selects the nodes of the pool.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// LoadBand says which use of a node is low and which is high. Resources are cpu and memory.
type LoadBand struct {
	// LowThresholds below which, for every resource, the use of a node is low.
	LowThresholds Percentages `json:"lowThresholds,omitempty" min:"1" max:"100"`
	// HighThresholds above which, for any resource, the use of a node is high. They have the resources of
	// lowThresholds.
	HighThresholds Percentages `json:"highThresholds,omitempty" min:"1" max:"100"`
	// ProdLowThresholds are lowThresholds for the use of production pods alone. Default: it does not count.
	ProdLowThresholds Percentages `json:"prodLowThresholds,omitempty" min:"1" max:"100"`
	// ProdHighThresholds are highThresholds for the use of production pods alone: only such pods move for it.
	ProdHighThresholds Percentages `json:"prodHighThresholds,omitempty" min:"1" max:"100"`
	// UseDeviationThresholds takes all thresholds as distances from the mean of the pool.
	UseDeviationThresholds bool `json:"useDeviationThresholds,omitempty"`
	// ResourceWeights are what resources count where uses are compared. Default: 1 each.
	ResourceWeights map[string]int64 `json:"resourceWeights,omitempty" min:"1" max:"100"`
	// AnomalyCondition is how long the use must be high before a pod is moved.
	AnomalyCondition AnomalyCondition `json:"anomalyCondition,omitempty"`
}

// AnomalyCondition counts rounds that find a new NodeMetric.
type AnomalyCondition struct {
	// Timeout after which a node that was high for long enough is counted from the start again.
	Timeout metav1.Duration `json:"timeout,omitempty" default:"\"1m\"" min:"1"`
	// ConsecutiveAbnormalities is how many rounds in a row may find the use high before one more moves pods.
	ConsecutiveAbnormalities int32 `json:"consecutiveAbnormalities,omitempty" default:"5" min:"1"`
	// ConsecutiveNormalities is how many rounds in a row may find the use not high before one more ends the anomaly.
	ConsecutiveNormalities int32 `json:"consecutiveNormalities,omitempty" default:"3" min:"1"`
}

// FragmentationAwareArgs are those of FragmentationAware: pods leave nodes whose resources are used unevenly.
type FragmentationAwareArgs struct {
	metav1.TypeMeta `json:",inline"`
	Target          `json:",inline"`

	// DryRun decides everything and moves no pod.
	DryRun bool `json:"dryRun,omitempty"`
	// NodeFit moves only pods that the scheduler finds another node for.
	NodeFit bool `json:"nodeFit,omitempty" default:"true"`
	// Resources that are compared.
	Resources []string `json:"resources,omitempty" default:"[\"cpu\",\"memory\"]"`
	// ImbalanceThreshold is the standard deviation of the allocated fractions from which on a node is uneven.
	ImbalanceThreshold float64 `json:"imbalanceThreshold,omitempty" default:"0.15" min:"0" max:"1"`
	// MinImprovementThreshold is by how much the deviation must fall with a pod.
	MinImprovementThreshold float64 `json:"minImprovementThreshold,omitempty" default:"0.02" min:"0" max:"1"`
}

// ScaleDownBinPackArgs are those of ScaleDownBinPack: what is scaled down first leaves the emptiest nodes.
type ScaleDownBinPackArgs struct {
	metav1.TypeMeta `json:",inline"`
	Target          `json:",inline"`

	// Strategy writes pod-deletion-cost to pods, or moves pods.
	Strategy string `json:"strategy,omitempty" default:"\"CalculateOnly\"" allowed:"CalculateOnly|EvictDirectly"`
	// MaxPodsToEvict is how many pods a round moves with EvictDirectly. Default: all of the emptiest node.
	MaxPodsToEvict *int32 `json:"maxPodsToEvict,omitempty" min:"0" zero:"noMove"`
	// Resources that are compared.
	Resources []string `json:"resources,omitempty" default:"[\"cpu\",\"memory\"]"`
	// ResourceWeights are what resources count. Default: 1 each.
	ResourceWeights map[string]float64 `json:"resourceWeights,omitempty" min:"0"`
}

// CustomPriorityArgs are those of CustomPriority: pods move from expensive nodes to cheaper ones.
type CustomPriorityArgs struct {
	metav1.TypeMeta `json:",inline"`
	Target          `json:",inline"`

	// DryRun decides everything and moves no pod.
	DryRun bool `json:"dryRun,omitempty"`
	// NodeFit moves only pods that the scheduler finds a cheaper node for. Without it requests are compared alone.
	NodeFit bool `json:"nodeFit,omitempty" default:"true"`
	// EvictionOrder has the groups of nodes, the most expensive first.
	EvictionOrder []NodeGroup `json:"evictionOrder,omitempty"`
	// Mode moves the pods that find a place, or those of nodes all of whose pods do.
	Mode string `json:"mode,omitempty" default:"\"BestEffort\"" allowed:"BestEffort|DrainNode"`
	// AutoCordon makes nodes that are emptied unschedulable.
	AutoCordon bool `json:"autoCordon,omitempty" refused:"cordon"`
}

// MakeRoomArgs are those of MakeRoom: pods move so that others fit that wait.
type MakeRoomArgs struct {
	metav1.TypeMeta `json:",inline"`
	Scope           `json:",inline"`

	// PendingFor is how long the scheduler must have found no node for a pod before others move for it.
	PendingFor metav1.Duration `json:"pendingFor,omitempty" default:"\"5m\"" min:"0"`
	// MaxMoves is how many pods may move for a pod, or for a gang, that waits.
	MaxMoves int32 `json:"maxMoves,omitempty" default:"2" min:"1" max:"8"`
	// MaxWaitingPerRound is for how many pods and gangs that wait the scheduler is asked in a round.
	MaxWaitingPerRound int32 `json:"maxWaitingPerRound,omitempty" default:"5" min:"1"`
}

// DefragmentArgs are those of Defragment: pods move so that less of the free GPUs and CPUs is unusable.
type DefragmentArgs struct {
	metav1.TypeMeta `json:",inline"`
	Target          `json:",inline"`

	// DryRun decides everything and moves no pod.
	DryRun bool `json:"dryRun,omitempty"`
	// MinFall is by how much what is free and unusable must fall with each move, in percent of a GPU or, on nodes
	// without GPUs, of the CPUs of a NUMA node.
	MinFall int32 `json:"minFall,omitempty" default:"50" min:"1" max:"6400"`
	// MaxMovesPerRound is how many pods move in a round.
	MaxMovesPerRound int32 `json:"maxMovesPerRound,omitempty" default:"2" min:"1" max:"8"`
}

// NodeGroup is a group of nodes of the same price.
type NodeGroup struct {
	// Name of the group.
	Name string `json:"name"`
	// NodeSelector selects the nodes of the group.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// KeepThreshold is the use, in percent, from which on pods of the group's nodes are not moved. Default: all are.
	KeepThreshold Percentages `json:"keepThreshold,omitempty" min:"0" max:"100"`
	// RejectThreshold is the use, in percent, up to which nodes of the group take pods. Default: 100.
	RejectThreshold Percentages `json:"rejectThreshold,omitempty" min:"0" max:"100"`
}

// DryRunner is the arguments of a plugin that can decide without moving a pod.
type DryRunner interface{ IsDryRun() bool }

// IsDryRun returns DryRun.
func (a *LowNodeLoadArgs) IsDryRun() bool { return a.DryRun }

// IsDryRun returns DryRun.
func (a *CustomPriorityArgs) IsDryRun() bool { return a.DryRun }

// IsDryRun returns DryRun.
func (a *DefragmentArgs) IsDryRun() bool { return a.DryRun }

// IsDryRun returns DryRun.
func (a *FragmentationAwareArgs) IsDryRun() bool { return a.DryRun }

package event

// Reasons, in the order of the list.
const (
	none Reason = iota
	Drifted
	DriftRepaired
	EnforcementFailed
	EffectiveWiderThanDesired
	CPUHandOverPending
	UnallocatedExclusivePod
	UnallocatedDevicePod
	DeviceUnavailable
	DeviceConflict
	DeviceMismatch
	DeviceMemoryExceeded
	AllocationRefused
	AllocationConflict
	AllocationUnusable
	BoundCPUOffline
	BadAnnotation
	AgentNotReady
	UnknownPod
	EnforcementDegraded
	NRIDisconnected
	HookSocketUnusable
	RuntimeCallSlow
	AgentRestarted
	SecondAgent
	APIServerUnreachable
	KubeletRestarted
	KubeletSettingsChanged
	KubeletStateUnreadable
	KubeletStateContradictory
	DeviceHoldersUnclear
	KubeletStaticActive
	KubeletAssumed
	TopologyModeConflict
	TopologySourceDegraded
	TopologyWriterConflict
	TopologyChanged
	TopologyPublished
	TopologyLarge
	TopologyCut
	TopologyTooLarge
	TakeoverPhase
	NodeLeft
	BestEffortSuppressed
	BestEffortEvicted
	OrphanHeld
	CheckpointLost
	ExclusivePolicyIgnored
	PlacementMispredicted
	PlacementUnconfirmed
	KubeletModelSuspect
	AccountRepaired
	NUMANodeOvercommitted
	GangHeld
	GangRoundFailed
	GangTimeout
	GangInterrupted
	GangDeadlockReleased
	Preempted
	GangPreempted
	GangScheduled
	GangDegraded
	GangConfigMismatch
	QuotaNotFound
	QuotaRevocationPlanned
	QuotaRevocationCancelled
	QuotaRevoked
	QuotaRevocation
	OveruseNotRevocable
	QuotaNotFollowed
	StrategyInvalid
	StrategyIgnored
	MigrationStarted
	PodMigrated
	MigrationFailed
	PodEvicted
	EvictionGivenUp

	numReasons
)

const (
	agent       = "tenon-agent"
	scheduler   = "tenon-scheduler"
	manager     = "tenon-manager"
	descheduler = "tenon-descheduler"
)

// facts are the entries without their texts.
var facts = [numReasons]Entry{
	none: {},

	Drifted:                   {Name: "Drifted", From: agent, On: "Pod"},
	DriftRepaired:             {Name: "DriftRepaired", From: agent, On: "Pod", Normal: true},
	EnforcementFailed:         {Name: "EnforcementFailed", From: agent, On: "Pod"},
	EffectiveWiderThanDesired: {Name: "EffectiveWiderThanDesired", From: agent, On: "Pod"},
	CPUHandOverPending:        {Name: "CPUHandOverPending", From: agent, On: "Pod"},
	UnallocatedExclusivePod:   {Name: "UnallocatedExclusivePod", From: agent, On: "Pod"},
	UnallocatedDevicePod:      {Name: "UnallocatedDevicePod", From: agent, On: "Pod"},
	DeviceUnavailable:         {Name: "DeviceUnavailable", From: agent, On: "Pod"},
	DeviceConflict:            {Name: "DeviceConflict", From: agent, On: "Pod"},
	DeviceMismatch:            {Name: "DeviceMismatch", From: agent, On: "Pod"},
	DeviceMemoryExceeded:      {Name: "DeviceMemoryExceeded", From: agent, On: "Pod"},
	AllocationRefused:         {Name: "AllocationRefused", From: agent, On: "Pod"},
	AllocationConflict:        {Name: "AllocationConflict", From: agent, On: "Pod"},
	AllocationUnusable:        {Name: "AllocationUnusable", From: agent, On: "Pod"},
	BoundCPUOffline:           {Name: "BoundCPUOffline", From: agent, On: "Pod"},
	BadAnnotation:             {Name: "BadAnnotation", From: agent, On: "Pod"},
	AgentNotReady:             {Name: "AgentNotReady", From: agent, On: "Pod"},
	UnknownPod:                {Name: "UnknownPod", From: agent, On: "Pod"},
	EnforcementDegraded:       {Name: "EnforcementDegraded", From: agent, On: "Node, Pod", Condition: true},
	NRIDisconnected:           {Name: "NRIDisconnected", From: agent, On: "Node"},
	HookSocketUnusable:        {Name: "HookSocketUnusable", From: agent, On: "Node"},
	RuntimeCallSlow:           {Name: "RuntimeCallSlow", From: agent, On: "Node"},
	AgentRestarted:            {Name: "AgentRestarted", From: agent, On: "Node"},
	SecondAgent:               {Name: "SecondAgent", From: agent, On: "Node"},
	APIServerUnreachable:      {Name: "APIServerUnreachable", From: agent, On: "Node"},
	KubeletRestarted:          {Name: "KubeletRestarted", From: agent, On: "Node", Normal: true},
	KubeletSettingsChanged:    {Name: "KubeletSettingsChanged", From: agent, On: "Node", Normal: true},
	KubeletStateUnreadable:    {Name: "KubeletStateUnreadable", From: agent, On: "Node", Condition: true},
	KubeletStateContradictory: {Name: "KubeletStateContradictory", From: agent, On: "Node", Condition: true},
	DeviceHoldersUnclear:      {Name: "DeviceHoldersUnclear", From: agent, On: "Node", Condition: true},
	KubeletStaticActive:       {Name: "KubeletStaticActive", From: agent, On: "Node", Condition: true},
	KubeletAssumed:            {Name: "KubeletAssumed", From: agent, On: "Node", Condition: true},
	TopologyModeConflict:      {Name: "TopologyModeConflict", From: agent, On: "Node", Condition: true},
	TopologySourceDegraded:    {Name: "TopologySourceDegraded", From: agent, On: "Node", Condition: true},
	TopologyWriterConflict:    {Name: "TopologyWriterConflict", From: agent, On: "Node", Condition: true},
	TopologyChanged:           {Name: "TopologyChanged", From: agent, On: "Node"},
	TopologyPublished:         {Name: "TopologyPublished", From: agent, On: "Node", Normal: true},
	TopologyLarge:             {Name: "TopologyLarge", From: agent, On: "Node"},
	TopologyCut:               {Name: "TopologyCut", From: agent, On: "Node"},
	TopologyTooLarge:          {Name: "TopologyTooLarge", From: agent, On: "Node"},
	TakeoverPhase:             {Name: "TakeoverPhase", From: agent, On: "Node", Normal: true},
	NodeLeft:                  {Name: "NodeLeft", From: agent, On: "Node", Condition: true},
	BestEffortSuppressed:      {Name: "BestEffortSuppressed", From: agent, On: "Node", Condition: true},
	BestEffortEvicted:         {Name: "BestEffortEvicted", From: agent, On: "Pod"},
	OrphanHeld:                {Name: "OrphanHeld", From: agent, On: "Node", Normal: true},
	CheckpointLost:            {Name: "CheckpointLost", From: agent, On: "Node"},
	ExclusivePolicyIgnored:    {Name: "ExclusivePolicyIgnored", From: scheduler, On: "Pod"},
	PlacementMispredicted:     {Name: "PlacementMispredicted", From: scheduler, On: "Pod"},
	PlacementUnconfirmed:      {Name: "PlacementUnconfirmed", From: scheduler, On: "Pod"},
	KubeletModelSuspect:       {Name: "KubeletModelSuspect", From: scheduler, On: "Node"},
	AccountRepaired:           {Name: "AccountRepaired", From: scheduler, On: "Node"},
	NUMANodeOvercommitted:     {Name: "NUMANodeOvercommitted", From: scheduler, On: "Node"},
	GangHeld:                  {Name: "GangHeld", From: scheduler, On: "Pod"},
	GangRoundFailed:           {Name: "GangRoundFailed", From: scheduler, On: "Pod"},
	GangTimeout:               {Name: "GangTimeout", From: scheduler, On: "Pod"},
	GangInterrupted:           {Name: "GangInterrupted", From: scheduler, On: "Pod"},
	GangDeadlockReleased:      {Name: "GangDeadlockReleased", From: scheduler, On: "Pod"},
	Preempted:                 {Name: "Preempted", From: scheduler, On: "Pod", Normal: true},
	GangPreempted:             {Name: "GangPreempted", From: scheduler, On: "PodGroup", Normal: true},
	GangScheduled:             {Name: "GangScheduled", From: manager, On: "PodGroup", Normal: true},
	GangDegraded:              {Name: "GangDegraded", From: manager, On: "PodGroup"},
	GangConfigMismatch:        {Name: "GangConfigMismatch", From: scheduler, On: "Pod"},
	QuotaNotFound:             {Name: "QuotaNotFound", From: scheduler, On: "Pod"},
	QuotaRevocationPlanned:    {Name: "QuotaRevocationPlanned", From: manager, On: "Pod"},
	QuotaRevocationCancelled:  {Name: "QuotaRevocationCancelled", From: manager, On: "Pod", Normal: true},
	QuotaRevoked:              {Name: "QuotaRevoked", From: manager, On: "Pod"},
	QuotaRevocation:           {Name: "QuotaRevocation", From: manager, On: "ElasticQuota", Normal: true},
	OveruseNotRevocable:       {Name: "OveruseNotRevocable", From: manager, On: "ElasticQuota"},
	QuotaNotFollowed:          {Name: "QuotaNotFollowed", From: manager, On: "ElasticQuota"},
	StrategyInvalid:           {Name: "StrategyInvalid", From: manager, On: "ConfigMap, Node"},
	StrategyIgnored:           {Name: "StrategyIgnored", From: manager, On: "ConfigMap"},
	MigrationStarted:          {Name: "MigrationStarted", From: descheduler, On: "PodMigrationJob", Normal: true},
	PodMigrated:               {Name: "PodMigrated", From: descheduler, On: "PodMigrationJob", Normal: true},
	MigrationFailed:           {Name: "MigrationFailed", From: descheduler, On: "PodMigrationJob"},
	PodEvicted:                {Name: "PodEvicted", From: descheduler, On: "Pod", Normal: true},
	EvictionGivenUp:           {Name: "EvictionGivenUp", From: descheduler, On: "PodMigrationJob"},
}

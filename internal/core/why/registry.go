package why

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
)

// Entry describes a code. The registry is the source of the documentation of codes, of the metric's label set and of
// every text. Its texts are in texts.json, under the code's name.
type Entry struct {
	// Name is the code's CamelCase name.
	Name string
	// Class is how early the code is checked.
	Class Class
	// Plugin is the plugin that refuses, "any" when several do.
	Plugin string
	// Resolvable: waiting or preemption may help.
	Resolvable bool
	// Amount: the code is about an amount. Its reasons carry Asked and Free, Free < Asked, or neither, see Reason.
	Amount bool
	// Extra is the JSON name of Reason.Extra, "" when the code has none; ExtraMeaning describes it.
	Extra, ExtraMeaning string
	// Upstream: adapters put an upstream plugin's own text into Finding.Detail, which then replaces Text.
	Upstream bool
	// Text states the unmet condition, without numbers: it is equal for all nodes that refuse for the same reason.
	// Chinese is the same text in Chinese.
	Text, Chinese string
	// Cause and Remedy are a sentence each.
	Cause, Remedy string
}

// Registry returns the entries of all codes, sorted by class and name.
func Registry() []Entry {
	entries := slices.Clone(registry[1:])
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Name, b.Name))
	})
	return entries
}

// Entry returns the registry's entry of c; the zero Entry for a code that is not registered.
func (c Code) Entry() Entry {
	if c < numCodes {
		return registry[c]
	}
	return Entry{}
}

// Class returns the code's class.
func (c Code) Class() Class { return c.Entry().Class }

// Resolvable reports whether waiting or preemption may help.
func (c Code) Resolvable() bool { return c.Entry().Resolvable }

// Plugins of entries.
const (
	numaPlugin    = "NodeNUMAResource"
	fitPlugin     = "NodeResourcesFit"
	defaultPreemp = "DefaultPreemption"
	quotaPlugin   = "ElasticQuota"
	gangPlugin    = "Coscheduling"
	devicePlugin  = "DeviceShare"
	roomPlugin    = "Reservation"
	loadPlugin    = "LoadAwareScheduling"
)

var (
	// textsJSON has the texts of each code.
	//go:embed texts.json
	textsJSON          []byte
	registry, variants = withTexts(facts)
)

// codeTexts are the texts of one code in texts.json.
type codeTexts struct {
	Text, Chinese, Cause, Remedy string
	Extra                        string   // what Reason.Extra means
	Variants                     []string // texts in place of Text, by Reason.Extra: that of 1 first
}

// withTexts completes entries with their texts, once at the start of a program: a lookup is an index into an array.
func withTexts(entries [numCodes]Entry) ([numCodes]Entry, [numCodes][]string) {
	texts := decodeTexts()
	var variants [numCodes][]string
	for i := range entries {
		e, t := &entries[i], texts[entries[i].Name]
		e.Text, e.Chinese, e.Cause, e.Remedy, e.ExtraMeaning = t.Text, t.Chinese, t.Cause, t.Remedy, t.Extra
		variants[i] = t.Variants
	}
	return entries, variants
}

// decodeTexts reads the texts of all codes, which are built into the program. Unknown fields are a broken build.
func decodeTexts() (texts map[string]codeTexts) {
	d := json.NewDecoder(bytes.NewReader(textsJSON))
	d.DisallowUnknownFields()
	if err := d.Decode(&texts); err != nil {
		panic(fmt.Sprintf("why: texts.json is part of the program: %v", err))
	}
	return texts
}

// facts are the entries without their texts.
var facts = [numCodes]Entry{
	None: {Name: "None"},

	BadAnnotation:        {Name: "BadAnnotation", Class: Request, Plugin: "any", Extra: "offset"},
	CPURequestNotInteger: {Name: "CPURequestNotInteger", Class: Request, Plugin: numaPlugin},
	InvalidField:         {Name: "InvalidField", Class: Request, Plugin: "webhook"},
	RequestLimitMismatch: {Name: "RequestLimitMismatch", Class: Request, Plugin: "any"},
	InvalidDeviceRequest: {Name: "InvalidDeviceRequest", Class: Request, Plugin: devicePlugin},

	NoScheduler:    {Name: "NoScheduler", Class: Attention, Plugin: "any", Resolvable: true},
	NotAttempted:   {Name: "NotAttempted", Class: Attention, Plugin: "any", Resolvable: true},
	ObjectNotGiven: {Name: "ObjectNotGiven", Class: Attention, Plugin: "any", Upstream: true},

	SchedulingGate: {Name: "SchedulingGate", Class: Gate, Plugin: "SchedulingGates", Resolvable: true, Upstream: true},

	QuotaExceeded: {
		Name: "QuotaExceeded", Class: Quota, Plugin: quotaPlugin,
		Resolvable: true, Amount: true, Upstream: true,
	},
	QuotaPoolUsed: {
		Name: "QuotaPoolUsed", Class: Quota, Plugin: quotaPlugin,
		Resolvable: true, Amount: true, Upstream: true,
	},
	QuotaNotFound: {Name: "QuotaNotFound", Class: Quota, Plugin: quotaPlugin, Upstream: true},

	GangNotFound:       {Name: "GangNotFound", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true},
	GangGroupNotMutual: {Name: "GangGroupNotMutual", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true},
	GangNotReady:       {Name: "GangNotReady", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true},
	GangHolding:        {Name: "GangHolding", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true},
	GangSiblingFailed:  {Name: "GangSiblingFailed", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true},
	GangPreempting:     {Name: "GangPreempting", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true},
	GangTimeout:        {Name: "GangTimeout", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true},
	GangDeadlockReleased: {
		Name: "GangDeadlockReleased", Class: Gang, Plugin: gangPlugin,
		Resolvable: true, Upstream: true,
	},
	GangLayerNotFound: {Name: "GangLayerNotFound", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true},
	GangReserved:      {Name: "GangReserved", Class: Gang, Plugin: gangPlugin, Resolvable: true, Upstream: true},

	InvalidTopology:  {Name: "InvalidTopology", Class: Data, Plugin: numaPlugin, Extra: "count"},
	TopologyMissing:  {Name: "TopologyMissing", Class: Data, Plugin: numaPlugin},
	NUMAInfoEmpty:    {Name: "NUMAInfoEmpty", Class: Data, Plugin: numaPlugin},
	TopologyStale:    {Name: "TopologyStale", Class: Data, Plugin: numaPlugin, Resolvable: true, Extra: "ageSeconds"},
	TooManyNUMANodes: {Name: "TooManyNUMANodes", Class: Data, Plugin: numaPlugin, Extra: "allowed"},
	KubeletPanics:    {Name: "KubeletPanics", Class: Data, Plugin: numaPlugin, Extra: "numaID"},

	SMTAlignment:       {Name: "SMTAlignment", Class: Placement, Plugin: numaPlugin, Extra: "threadsPerCore"},
	BindPolicyConflict: {Name: "BindPolicyConflict", Class: Placement, Plugin: numaPlugin},
	TopologyPolicy: {
		Name: "TopologyPolicy", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Amount: true, Extra: "numaNodes",
	},
	TopologyMismatch: {Name: "TopologyMismatch", Class: Placement, Plugin: numaPlugin},
	TopologyUndecided: {
		Name: "TopologyUndecided", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Extra: "numaNodes",
	},
	NUMANodeShared: {
		Name: "NUMANodeShared", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Extra: "numaNodes",
	},
	PoolNotConfined:       {Name: "PoolNotConfined", Class: Placement, Plugin: numaPlugin},
	CPUManagerNotStatic:   {Name: "CPUManagerNotStatic", Class: Placement, Plugin: numaPlugin},
	TopologyPolicyDiffers: {Name: "TopologyPolicyDiffers", Class: Placement, Plugin: numaPlugin, Extra: "policies"},
	InsufficientExclusiveCPU: {
		Name: "InsufficientExclusiveCPU", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Amount: true, Extra: "requiredBindPolicy",
	},
	SharedPoolTooSmall: {
		Name: "SharedPoolTooSmall", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Amount: true,
	},
	SharedPoolCommitted: {
		Name: "SharedPoolCommitted", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Amount: true,
	},
	SharedPoolFloor: {
		Name: "SharedPoolFloor", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Amount: true, Extra: "floor",
	},
	InsufficientKubeletCPU: {
		Name: "InsufficientKubeletCPU", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Amount: true,
	},
	KubeletTopologyAffinity: {
		Name: "KubeletTopologyAffinity", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Extra: "cause",
	},
	KubeletSMTAlignment: {
		Name: "KubeletSMTAlignment", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Extra: "threadsPerCore",
	},
	KubeletAdmission: {
		Name: "KubeletAdmission", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Extra: "cause",
	},
	KubeletWouldHang: {Name: "KubeletWouldHang", Class: Placement, Plugin: numaPlugin, Extra: "seconds"},
	KubeletSharesCPUs: {
		Name: "KubeletSharesCPUs", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Extra: "sharedCPUs",
	},
	KubeletRejected: {
		Name: "KubeletRejected", Class: Placement, Plugin: numaPlugin,
		Resolvable: true, Extra: "backoffSeconds",
	},
	EnforcementDegraded:       {Name: "EnforcementDegraded", Class: Placement, Plugin: numaPlugin},
	KubeletAssumed:            {Name: "KubeletAssumed", Class: Placement, Plugin: numaPlugin},
	DeviceMissing:             {Name: "DeviceMissing", Class: Placement, Plugin: devicePlugin},
	DevicesOfKubelet:          {Name: "DevicesOfKubelet", Class: Placement, Plugin: devicePlugin},
	ForeignDevices:            {Name: "ForeignDevices", Class: Placement, Plugin: devicePlugin, Extra: "holders"},
	PartitionTableMissing:     {Name: "PartitionTableMissing", Class: Placement, Plugin: devicePlugin},
	PartitionCountUnsupported: {Name: "PartitionCountUnsupported", Class: Placement, Plugin: devicePlugin},
	SharedTemplateMissing:     {Name: "SharedTemplateMissing", Class: Placement, Plugin: devicePlugin},
	DeviceShareUnsupported:    {Name: "DeviceShareUnsupported", Class: Placement, Plugin: devicePlugin},
	GPUIsolationMissing:       {Name: "GPUIsolationMissing", Class: Placement, Plugin: devicePlugin},
	VirtualFunctionsMissing:   {Name: "VirtualFunctionsMissing", Class: Placement, Plugin: devicePlugin},
	DeviceJointAllocation: {
		Name: "DeviceJointAllocation", Class: Placement, Plugin: devicePlugin, Resolvable: true,
	},
	InsufficientNUMADevices: {
		Name: "InsufficientNUMADevices", Class: Placement, Plugin: devicePlugin,
		Resolvable: true,
	},
	InsufficientPartitions: {
		Name: "InsufficientPartitions", Class: Placement, Plugin: devicePlugin,
		Resolvable: true, Amount: true,
	},
	InsufficientScopedDevices: {
		Name: "InsufficientScopedDevices", Class: Placement, Plugin: devicePlugin,
		Resolvable: true, Amount: true,
	},
	InsufficientDevices: {
		Name: "InsufficientDevices", Class: Placement, Plugin: devicePlugin,
		Resolvable: true, Amount: true, Extra: "whole",
	},

	ReservationAffinity: {Name: "ReservationAffinity", Class: Placement, Plugin: roomPlugin, Resolvable: true},
	ReservationRestricted: {
		Name: "ReservationRestricted", Class: Placement, Plugin: roomPlugin, Resolvable: true, Amount: true,
	},
	PreAllocationRequired: {Name: "PreAllocationRequired", Class: Placement, Plugin: roomPlugin, Resolvable: true},
	PreAllocationUnmet:    {Name: "PreAllocationUnmet", Class: Placement, Plugin: roomPlugin, Resolvable: true},
	PreAllocationUnsupported: {
		Name: "PreAllocationUnsupported", Class: Placement, Plugin: roomPlugin,
	},
	PreAllocationClusterDisabled: {
		Name: "PreAllocationClusterDisabled", Class: Placement, Plugin: roomPlugin,
	},
	ReservedForOthers: {
		Name: "ReservedForOthers", Class: Placement, Plugin: roomPlugin, Resolvable: true, Upstream: true,
	},

	UsageThreshold: {
		Name: "UsageThreshold", Class: Capacity, Plugin: loadPlugin, Resolvable: true, Amount: true,
		Extra: "measure",
	},
	MetricExpired: {Name: "MetricExpired", Class: Capacity, Plugin: loadPlugin, Resolvable: true},

	InsufficientCPU:    {Name: "InsufficientCPU", Class: Capacity, Plugin: fitPlugin, Resolvable: true, Amount: true},
	InsufficientMemory: {Name: "InsufficientMemory", Class: Capacity, Plugin: "any", Resolvable: true, Amount: true},
	InsufficientEphemeralStorage: {
		Name: "InsufficientEphemeralStorage", Class: Capacity, Plugin: fitPlugin,
		Resolvable: true, Amount: true,
	},
	InsufficientPods: {Name: "InsufficientPods", Class: Capacity, Plugin: fitPlugin, Resolvable: true, Amount: true},
	InsufficientExtended: {
		Name: "InsufficientExtended", Class: Capacity, Plugin: fitPlugin,
		Resolvable: true, Amount: true, Upstream: true, Extra: "allocatable",
	},

	GangOtherDomain:   {Name: "GangOtherDomain", Class: Constraint, Plugin: gangPlugin, Upstream: true},
	NodeAffinity:      {Name: "NodeAffinity", Class: Constraint, Plugin: "NodeAffinity", Upstream: true},
	NodeName:          {Name: "NodeName", Class: Constraint, Plugin: "NodeName", Upstream: true},
	NodeUnschedulable: {Name: "NodeUnschedulable", Class: Constraint, Plugin: "NodeUnschedulable", Upstream: true},
	TaintToleration:   {Name: "TaintToleration", Class: Constraint, Plugin: "TaintToleration", Upstream: true},
	NodePorts:         {Name: "NodePorts", Class: Constraint, Plugin: "NodePorts", Resolvable: true, Upstream: true},
	PodAffinity: {
		Name: "PodAffinity", Class: Constraint, Plugin: "InterPodAffinity", Resolvable: true, Upstream: true,
	},
	PodTopologySpread: {
		Name: "PodTopologySpread", Class: Constraint, Plugin: "PodTopologySpread",
		Resolvable: true, Upstream: true,
	},
	Volume:         {Name: "Volume", Class: Constraint, Plugin: "any", Upstream: true},
	UpstreamFilter: {Name: "UpstreamFilter", Class: Constraint, Plugin: "any", Upstream: true},

	NoVictims: {Name: "NoVictims", Class: Victims, Plugin: defaultPreemp, Resolvable: true, Upstream: true},
	VictimsTerminating: {
		Name: "VictimsTerminating", Class: Victims, Plugin: defaultPreemp,
		Resolvable: true, Upstream: true,
	},
	NominatedElsewhere: {
		Name: "NominatedElsewhere", Class: Victims, Plugin: defaultPreemp,
		Resolvable: true, Upstream: true,
	},
	Preempted: {Name: "Preempted", Class: Victims, Plugin: defaultPreemp, Resolvable: true, Upstream: true},

	UnallocatedExclusivePod: {Name: "UnallocatedExclusivePod", Class: Enforcement, Plugin: "agent"},
}

package evict

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy has the limits on evictions. The reader of the configuration has checked its fields and filled in defaults: a
// zero value limits nothing, except where the field says otherwise.
type Policy struct {
	Paused bool // refuse all evictions

	EvictInterval time.Duration // between evictions; EvictBurst is how many are allowed at once, 0 is 1
	EvictBurst    int

	// Concurrent jobs.
	MaxMigratingGlobally, MaxMigratingPerNode, MaxMigratingPerNamespace, MaxMigratingPerTargetNode int
	DomainLimits                                                                                   []DomainLimit

	MaxMigratingPerWorkload, MaxUnavailablePerWorkload IntOrPercent // of the desired replicas
	// Windows limit over time. That of a workload allows as many as may move at the same time where it has no number;
	// that of a namespace has a number, which is not a percentage. nil does not limit.
	WorkloadWindow, NamespaceWindow *Window

	Include, Exclude   []string                            // namespaces; no Include is all
	NamespaceSelector  func(labels map[string]string) bool // nil selects all
	NamespacePercent   *int                                // of all namespaces, by a stable hash; nil is 100
	LabelSelector      func(labels map[string]string) bool // of pods; nil selects all
	PriorityThreshold  *int32                              // pods with this priority or a higher one are refused
	MinPodAge          time.Duration
	ReturnWindow       time.Duration
	OwnerBackoff       time.Duration // after a move of a workload; doubles with failures
	SkipEvictionGates  []string      // of Gates
	SkipExpectedNumber bool          // skipCheckExpectedReplicas

	EvictFailedBarePods, EvictAllBarePods, EvictLocalStoragePods, EvictSystemCriticalPods bool
	IgnorePVCPods, AllowUnknownOwners, AllowParkedPartition                               bool

	// Pods to evict in one round of the descheduler; nil does not limit.
	MaxPerRound, MaxPerRoundAndNode, MaxPerRoundAndNamespace *int
}

// DomainLimit bounds the concurrent jobs whose source nodes have one value of a label.
type DomainLimit struct {
	TopologyKey  string
	MaxMigrating int
}

// Window bounds the evictions of one workload or namespace in each interval of a length.
type Window struct {
	Duration     time.Duration
	MaxMigrating IntOrPercent
	Burst        int // at once, the others evenly over Duration; 0 does not limit
}

// IntOrPercent is a number of at least 1, or a percentage of another one. The zero value follows a table, see Of.
type IntOrPercent struct {
	Number  int
	Percent bool
}

// Gates returns the checks that SkipEvictionGates may name.
func Gates() []string {
	var all []string
	for _, c := range checks {
		if c.gate != "" && !slices.Contains(all, c.gate) {
			all = append(all, c.gate)
		}
	}
	slices.Sort(all)
	return all
}

// skips reports whether the policy leaves out a gate by its name.
func (p *Policy) skips(gate string) bool {
	return gate != "" && slices.Contains(p.SkipEvictionGates, gate)
}

// Retention is how long after its end a job is needed to decide about others.
func (p *Policy) Retention() time.Duration {
	most := max(backoffMemory, p.ReturnWindow)
	for _, w := range []*Window{p.WorkloadWindow, p.NamespaceWindow} {
		if w != nil {
			most = max(most, w.Duration)
		}
	}
	return most
}

// Of returns the number of so many replicas: a percentage is rounded down and at least 1, and nothing is more than all
// replicas. The zero value follows the table: 1 up to 3 replicas, 2 up to 10, else 10 %.
func (i IntOrPercent) Of(replicas int) int {
	n := i.Number
	switch {
	case i.Percent:
		n = max(replicas*n/100, 1)
	case n > 0:
	case replicas <= 3:
		n = 1
	case replicas <= 10:
		n = 2
	default:
		n = replicas / 10
	}
	return min(n, replicas)
}

// Code is a kind of refusal. Its name is the API: it is in the status of jobs, in Events and metrics.
type Code string

// Codes, in the order in which Check reports them.
const (
	LookupFailed         Code = "LookupFailed"
	NamespaceNotInCanary Code = "NamespaceNotInCanary"
	Protected            Code = "Protected"
	BarePod              Code = "BarePod"
	UnknownOwner         Code = "UnknownOwner"
	SystemCritical       Code = "SystemCritical"
	PriorityThreshold    Code = "PriorityThreshold"
	LabelSelector        Code = "LabelSelector"
	LocalStorage         Code = "LocalStorage"
	PVC                  Code = "PVC"
	NodeFit              Code = "NodeFit"
	ExpectedReplicas     Code = "ExpectedReplicas"
	GaveUp               Code = "GaveUp"
	Paused               Code = "Paused"
	MinAge               Code = "MinAge"
	RolloutInProgress    Code = "RolloutInProgress"
	EvictionWouldUpgrade Code = "EvictionWouldUpgrade"
	ScalingDown          Code = "ScalingDown"
	GangMinimum          Code = "GangMinimum"
	AlreadyEvicting      Code = "AlreadyEvicting"
	WorkloadUnavailable  Code = "WorkloadUnavailable"
	PDBViolation         Code = "PDBViolation"
	CapWorkload          Code = "CapWorkload"
	CapNode              Code = "CapNode"
	CapNamespace         Code = "CapNamespace"
	CapDomain            Code = "CapDomain"
	CapGlobal            Code = "CapGlobal"
	ReturnWindow         Code = "ReturnWindow"
	OwnerBackoff         Code = "OwnerBackoff"
	RateLimited          Code = "RateLimited"
)

// Refusal is why a pod may not be evicted.
type Refusal struct {
	Code    Code
	Subject string // what the limit or rule is about: a node, a workload, a namespace, a field
	// Have is how many count already, or what the pod has, and Limit the number that its code compares with: Have is
	// at least Limit for a limit, and below it for a minimum. Both are 0 for a code without numbers.
	Have, Limit int
	Until       time.Time // the earliest time at which the refusal can be gone by itself; zero where that is not known
}

// Final reports whether waiting cannot help: the job fails.
func (r Refusal) Final() bool { return texts[r.Code].Final }

// String states the code and the condition with its numbers: "CapNode: node n1 has 2 of 2 migrations".
func (r Refusal) String() string {
	text := strings.NewReplacer("{subject}", r.Subject, "{have}", strconv.Itoa(r.Have),
		"{limit}", strconv.Itoa(r.Limit)).Replace(texts[r.Code].Text)
	if !r.Until.IsZero() {
		text += ", until " + r.Until.UTC().Format(time.RFC3339)
	}
	return string(r.Code) + ": " + text
}

// Text states the condition, with {subject}, {have} and {limit} for what a refusal says.
func (c Code) Text() string { return texts[c].Text }

// Remedy says what a user can do about a code.
func (c Code) Remedy() string { return texts[c].Remedy }

// entry is what texts.json has of a code.
type entry struct {
	Final        bool
	Text, Remedy string
}

var (
	//go:embed texts.json
	textsJSON []byte
	texts     = decodeTexts()
)

// decodeTexts reads the texts of all codes, which are built into the program.
func decodeTexts() (all map[Code]entry) {
	if err := json.Unmarshal(textsJSON, &all); err != nil {
		panic(fmt.Sprintf("evict: texts.json is part of the program: %v", err))
	}
	return all
}

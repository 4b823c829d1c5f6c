package evict

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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

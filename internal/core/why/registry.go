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
// every text. It stands in codes.json, under the code's name.
type Entry struct {
	// Name is the code's CamelCase name.
	Name string
	// Class is how early the code is checked.
	Class Class
	// Condition is the reason of the pod's condition PodScheduled: Unschedulable unless codes.json names another one.
	Condition string
	// NewNode is which node that is added to the cluster may help; empty for codes that no condition of a pod has.
	NewNode NewNode
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

// NewNode is which node that a cluster autoscaler adds may let a refused pod fit.
type NewNode string

// Values of NewNode. A code has the condition Unschedulable if it is EmptyNode or OtherNode.
const (
	EmptyNode   NewNode = "empty" // one as the others, without pods
	OtherNode   NewNode = "other" // one with other labels, taints, settings or hardware
	NoNode      NewNode = "no"
	NoCondition NewNode = "" // the code is in no condition of a pod
)

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

// isAmount reports whether the code is about an amount.
func (c Code) isAmount() bool { return c < numCodes && registry[c].Amount }

// Class returns the code's class.
func (c Code) Class() Class { return c.Entry().Class }

// Resolvable reports whether waiting or preemption may help.
func (c Code) Resolvable() bool { return c.Entry().Resolvable }

// Reasons of the condition PodScheduled of a pod without a node. Cluster autoscalers add nodes only for pods with the
// reason Unschedulable, so codes that a new, empty node cannot resolve have another one.
const (
	Unschedulable         = "Unschedulable"
	BadRequest            = "BadRequest"            // the pod, or what it names, must be changed
	OverQuota             = "QuotaExceeded"         // its quota must have more left
	WaitingForGang        = "WaitingForGang"        // other pods or a PodGroup must exist or fit first
	WaitingForReservation = "WaitingForReservation" // a Reservation must be available
	SchedulingGated       = "SchedulingGated"       // another controller must remove a gate
	SchedulerError        = "SchedulerError"        // the scheduler failed
)

// Condition returns the reason of the condition PodScheduled; Unschedulable for no code.
func (c Code) Condition() string { return cmp.Or(c.Entry().Condition, Unschedulable) }

// Refuses reports whether the reason of a condition PodScheduled, which is False, says that a scheduling attempt was
// refused or that the pod waits for others. Gates and errors of the scheduler do neither.
func Refuses(reason string) bool {
	return slices.Contains([]string{
		Unschedulable, BadRequest, OverQuota, WaitingForGang, WaitingForReservation,
	}, reason)
}

// described is what codes.json has of a code, under the code's name.
type described struct {
	Entry
	// Variants are texts in place of Text, by Reason.Extra: that of 1 first.
	Variants []string
}

var (
	// codesJSON has the entry of each code, in the order of the codes.
	//go:embed codes.json
	codesJSON          []byte
	registry, variants = decodeCodes()
)

// decodeCodes reads the entries of all codes, which are built into the program, once at its start: a lookup is an index
// into an array. Unknown fields are a broken build.
func decodeCodes() (entries [numCodes]Entry, variants [numCodes][]string) {
	d := json.NewDecoder(bytes.NewReader(codesJSON))
	d.DisallowUnknownFields()
	_, err := d.Token()
	for i := 0; err == nil && i < len(entries); i++ {
		var name json.Token
		if name, err = d.Token(); err == nil {
			var one described
			err = d.Decode(&one)
			entries[i], variants[i] = one.Entry, one.Variants
			entries[i].Name, entries[i].Condition = fmt.Sprint(name), cmp.Or(one.Condition, Unschedulable)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("why: codes.json is part of the program: %v", err))
	}
	return entries, variants
}
